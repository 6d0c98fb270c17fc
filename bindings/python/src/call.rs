//! What Python asks for as a call: which collective, over which arrays, and where the result goes.

use paceline_comm::{Buffers, Collective, Communicator, Counts, DataType, ReduceOp, Request};
use pyo3::prelude::*;

use crate::allocate;
use crate::array::{Array, Span};
use crate::errors::{self, What};
use crate::operator;

/// The arguments of a method that names a collective.
pub struct Ask<'a, 'py> {
    collective: Collective,
    input: Option<&'a Bound<'py, PyAny>>,
    output: Option<&'a Bound<'py, PyAny>>,
    op: Option<&'a Bound<'py, PyAny>>,
    /// The root, or the peer.
    root: isize,
    source: isize,
    counts: Option<(Vec<usize>, Vec<usize>)>,
}

impl<'a, 'py> Ask<'a, 'py> {
    /// Of rank 0, or to it, and without arrays.
    pub fn new(collective: Collective) -> Self {
        Ask { collective, input: None, output: None, op: None, root: 0, source: 0, counts: None }
    }

    /// The same from an array, or from none.
    pub fn input(self, input: impl Into<Option<&'a Bound<'py, PyAny>>>) -> Self {
        Ask { input: input.into(), ..self }
    }

    /// The same into an array, or into one to be made.
    pub fn output(self, output: impl Into<Option<&'a Bound<'py, PyAny>>>) -> Self {
        Ask { output: output.into(), ..self }
    }

    /// The same with an operator, or the sum.
    pub fn op(self, op: Option<&'a Bound<'py, PyAny>>) -> Self {
        Ask { op, ..self }
    }

    /// The same with a root, or a peer.
    pub fn root(self, root: isize) -> Self {
        Ask { root, ..self }
    }

    /// The same with a rank to receive from.
    pub fn source(self, source: isize) -> Self {
        Ask { source, ..self }
    }

    /// The same with blocks of different lengths: sent, and received.
    pub fn counts(self, sent: Vec<usize>, received: Vec<usize>) -> Self {
        Ask { counts: Some((sent, received)), ..self }
    }
}

/// A call that can run without Python, as long as what it is about is held.
pub struct Call {
    collective: Collective,
    data_type: DataType,
    op: ReduceOp,
    root: usize,
    source: usize,
    count: usize,
    place: Place,
    counts: Option<(Vec<usize>, Vec<usize>)>,
}

#[derive(Clone, Copy)]
enum Place {
    Apart { input: Span, output: Span },
    Within(Span),
}

/// A call, the arrays that it is about, and what it gives.
pub struct Prepared<'a, 'py> {
    pub call: Call,
    arrays: [Option<Array<'a, 'py>>; 2],
    pub result: Option<Py<PyAny>>,
}

impl Call {
    /// The same for the library.
    ///
    /// # Safety
    ///
    /// The arrays are held in their places while the request lives, and nobody else writes them. (Python's own threads may: as
    /// with any function that works on arrays without the interpreter's lock, what is read then is whatever bytes are there; all
    /// are elements.)
    pub unsafe fn request(&self) -> Request<'_> {
        // SAFETY: the caller's promise, and `Span::new` has no null.
        let read = |span: Span| unsafe { std::slice::from_raw_parts(span.start, span.bytes) };
        // SAFETY: the same; two outputs are never made of one span.
        let write = |span: Span| unsafe { std::slice::from_raw_parts_mut(span.start, span.bytes) };
        let buffers = match self.place {
            Place::Within(span) => Buffers::InPlace(write(span)),
            Place::Apart { input, output } => Buffers::Separate { input: read(input), output: write(output) },
        };
        let request = Request::new(self.collective, self.data_type, self.count, buffers);
        let request = request.op(self.op).root(self.root).source(self.source);
        match &self.counts {
            Some((sent, received)) => {
                request.counts(Counts { send_counts: sent, recv_counts: received, ..Counts::default() })
            }
            None => request,
        }
    }
}

impl Prepared<'_, '_> {
    /// What holds the arrays in their places, beyond this.
    pub fn keep(&self) -> PyResult<Vec<Py<PyAny>>> {
        self.arrays.iter().flatten().map(Array::keep).collect()
    }
}

/// Makes a call of what was asked for, and an array for its result where none was given.
///
/// # Errors
///
/// An array can't be used, or can't be used so. What the library checks itself it checks later.
pub fn prepare<'a, 'py>(py: Python<'py>, comm: &'a Communicator, ask: Ask<'_, 'py>) -> PyResult<Prepared<'a, 'py>> {
    let Ask { collective, op, root, source, counts, .. } = ask;
    let (rank, ranks) = (comm.rank(), comm.size());
    let invalid = |cause: String| errors::at(py, comm, &cause);
    let is_root = usize::try_from(root) == Ok(rank);
    let number = |what: &str, number: isize| {
        usize::try_from(number)
            .map_err(|_| invalid(format!("{what} {number} of {collective}: ranks are numbered from 0")))
    };
    let (root, source) = (number("rank", root)?, number("the source", source)?);
    if let Some((sent, received)) = &counts {
        let sends = !matches!(collective, Collective::AllGather | Collective::Gather);
        let receives = !matches!(collective, Collective::ReduceScatter | Collective::Scatter);
        if sends && sent.len() != ranks || receives && received.len() != ranks {
            return Err(invalid(format!("{collective} with counts takes one for each of {ranks} ranks")));
        }
    }

    let of = |object: &Bound<'py, PyAny>, which| Array::of(object, What { comm, collective, which });
    let input = ask.input.map(|input| of(input, "input")).transpose()?;
    let mut output = ask.output.map(|output| of(output, "output")).transpose()?;
    let Some(kind) = input.as_ref().or(output.as_ref()).map(|array| array.kind) else {
        if collective != Collective::Barrier {
            return Err(invalid(format!("{collective} needs an array on rank {rank}: pass out=")));
        }
        let call = Call {
            collective,
            data_type: DataType::U8,
            op: ReduceOp::Sum,
            root,
            source,
            count: 0,
            place: Place::Within(Span::NONE),
            counts: None,
        };
        return Ok(Prepared { call, arrays: [None, None], result: None });
    };
    if let Some(other) = output.as_ref().filter(|output| output.kind != kind) {
        let (input, output) = (kind.name(), other.kind.name());
        return Err(invalid(format!(
            "the input of {collective} holds {input} and the output {output}; make them the same"
        )));
    }
    let op = if collective.reduces() { operator::of(op, kind.data_type)? } else { ReduceOp::Sum };
    if let Some(why) = kind.refuses(op).filter(|_| collective.reduces()) {
        return Err(invalid(why));
    }

    let block = |elements: usize| match elements.is_multiple_of(ranks) {
        true => Ok(elements / ranks),
        false => Err(invalid(format!("{elements} elements are not {ranks} blocks of one length"))),
    };
    let gives = match collective {
        Collective::Send | Collective::Broadcast => false,
        Collective::Reduce | Collective::Gather => is_root,
        _ => true,
    };
    if output.is_none() && gives {
        let Some(input) = &input else {
            return Err(invalid(format!("rank {rank} of {collective} needs an array for what it gets: pass out=")));
        };
        let shape = match (collective, &counts) {
            (Collective::AllGather | Collective::Gather, None) => Some(rows(input.shape()?, ranks, 1, &invalid)?),
            (Collective::ReduceScatter | Collective::Scatter, None) => {
                block(input.len())?;
                Some(rows(input.shape()?, 1, ranks, &invalid)?)
            }
            (Collective::AllGather | Collective::Gather | Collective::AllToAll, Some((_, received))) => {
                Some(vec![received.iter().fold(0usize, |sum, count| sum.saturating_add(*count))])
            }
            (Collective::ReduceScatter | Collective::Scatter, Some((sent, _))) => Some(vec![sent[rank]]),
            _ => None,
        };
        output = Some(of(&allocate::like(input.object(), shape)?, "output")?);
    }

    let spans = [&input, &output].map(|array| array.as_ref().map_or(Span::NONE, |array| array.span));
    let [from, to] = spans;
    let before = |counts: &[usize]| {
        counts[..rank].iter().fold(0usize, |sum, count| sum.saturating_add(*count)).saturating_mul(kind.bytes())
    };
    let apart = (Place::Apart { input: from, output: to }, &output);
    let (place, written) = match collective {
        Collective::Broadcast if output.is_none() => (Place::Within(from), &input),
        Collective::AllReduce | Collective::Reduce | Collective::AllToAll | Collective::Broadcast
            if from.is_at(to, 0) && from.bytes == to.bytes =>
        {
            (Place::Within(to), &output)
        }
        Collective::AllGather | Collective::Gather if from.bytes <= to.bytes => {
            let offset = counts.as_ref().map_or(rank * from.bytes, |(_, received)| before(received));
            if from.is_at(to, offset) { (Place::Within(to), &output) } else { apart }
        }
        Collective::ReduceScatter | Collective::Scatter if to.bytes <= from.bytes => {
            let offset = counts.as_ref().map_or(rank * to.bytes, |(sent, _)| before(sent));
            if to.is_at(from, offset) { (Place::Within(from), &input) } else { apart }
        }
        _ => apart,
    };
    if written.as_ref().is_some_and(|array| array.readonly) {
        return Err(invalid(format!("{collective} would write into a read-only array; pass one that may be written")));
    }

    let elements = |array: &Option<Array<'_, '_>>| array.as_ref().map_or(0, Array::len);
    let count = match collective {
        Collective::ReduceScatter | Collective::Scatter | Collective::Recv => elements(&output),
        Collective::AllToAll if counts.is_none() => block(elements(&input))?,
        Collective::Broadcast if output.is_some() => elements(&output),
        _ => elements(&input),
    };
    let scaled = |counts: Vec<usize>| counts.into_iter().map(|count| count.saturating_mul(kind.parts)).collect();
    let counts = counts.map(|(sent, received)| (scaled(sent), scaled(received)));
    let result = match collective {
        Collective::Send => None,
        Collective::Broadcast if output.is_none() => ask.input,
        _ => output.as_ref().map(Array::object),
    };
    let result = result.cloned().map(Bound::unbind);
    let call =
        Call { collective, data_type: kind.data_type, op, root, source, count: count * kind.parts, place, counts };
    Ok(Prepared { call, arrays: [input, output], result })
}

/// A shape with more or fewer rows.
fn rows(mut shape: Vec<usize>, times: usize, parts: usize, invalid: &impl Fn(String) -> PyErr) -> PyResult<Vec<usize>> {
    let Some(rows) = shape.first_mut() else { return Ok(vec![times]) };
    if !rows.is_multiple_of(parts) {
        return Err(invalid(format!("{rows} rows can't be dealt out to {parts} ranks: pass out=")));
    }
    *rows = *rows * times / parts;
    Ok(shape)
}
