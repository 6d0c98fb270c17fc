//! Reads drawings of stages, such as `Et*3|(tt|)*29,m|L`.

use super::{Layer, Partition};
use crate::pipeline::cursor::{Cursor, ParseError};

/// The most signs that a drawing may stand for.
const SIGNS_MAX: usize = 1 << 20;
/// How deep parentheses may lie in each other.
const DEPTH_MAX: u32 = 16;

/// A sign of the drawing when repeats are written out.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Embedding,
    Transformer,
    MultiToken,
    Loss,
    Cut,
}

impl Partition {
    /// The division that a text draws, in the notation of Megatron-LM's pipeline layouts.
    ///
    /// | Text | Meaning |
    /// |---|---|
    /// | `E` | the embedding: once, first of all |
    /// | `t` | a transformer layer |
    /// | `m` | a layer that predicts a token further ahead, behind all `t` |
    /// | `L` | the head and the loss: once, last of all |
    /// | `\|` | ends a stage; the last one ends with the text |
    /// | `t*3`, `(tt\|)*29` | repeats a sign, or what is in parentheses |
    /// | `,` and blanks | nothing |
    ///
    /// ```
    /// use paceline_parallel::pipeline::partition::Partition;
    ///
    /// let stages = Partition::drawn("Et*3|(tt|)*29,m|L")?.stages;
    /// assert_eq!(stages.len(), 32);
    /// assert_eq!((stages[0].len(), stages[1].len(), stages[30].len(), stages[31].len()), (4, 2, 1, 1));
    /// # Ok::<(), paceline_parallel::pipeline::ParseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first place where the text is no drawing of a model.
    pub fn drawn(text: &str) -> Result<Partition, ParseError> {
        let mut cursor = Cursor::new(text, 1);
        let mut signs = Vec::new();
        read(&mut cursor, 0, &mut signs)?;
        build(&signs, &cursor)
    }
}

/// Reads up to the end, or to the parenthesis that closes; keeps where each sign stands.
fn read<'a>(cursor: &mut Cursor<'a>, depth: u32, signs: &mut Vec<(Sign, Cursor<'a>)>) -> Result<(), ParseError> {
    loop {
        while cursor.take(',') || cursor.peek().is_some_and(char::is_whitespace) {
            cursor.blanks();
        }
        let (at, first) = (cursor.clone(), signs.len());
        if cursor.take('(') {
            if depth == DEPTH_MAX {
                return Err(at.error(format!("parentheses lie more than {DEPTH_MAX} deep")));
            }
            read(cursor, depth + 1, signs)?;
            if !cursor.take(')') {
                return cursor.expected("')'");
            }
        } else {
            let all = [
                ('E', Sign::Embedding),
                ('t', Sign::Transformer),
                ('m', Sign::MultiToken),
                ('L', Sign::Loss),
                ('|', Sign::Cut),
            ];
            match all.into_iter().find(|&(letter, _)| cursor.take(letter)) {
                Some((_, sign)) => signs.push((sign, at.clone())),
                None if cursor.peek().is_none() || (depth > 0 && cursor.peek() == Some(')')) => return Ok(()),
                None => return cursor.expected("one of E t m L | ( ,"),
            }
        }
        cursor.blanks();
        if cursor.take('*') {
            cursor.blanks();
            let many = cursor.clone();
            let times = cursor.number("how many times")? as usize;
            let run = signs.split_off(first);
            if run.len().saturating_mul(times) > SIGNS_MAX - signs.len() {
                return Err(many.error(format!("the drawing stands for more than {SIGNS_MAX} signs")));
            }
            (0..times).for_each(|_| signs.extend_from_slice(&run));
        }
    }
}

fn build(signs: &[(Sign, Cursor<'_>)], end: &Cursor<'_>) -> Result<Partition, ParseError> {
    let mut stages = vec![Vec::new()];
    let (mut n_transformers, mut n_multi_tokens) = (0, 0);
    let mut last = None;
    for (sign, at) in signs {
        let layer = match sign {
            Sign::Cut => {
                stages.push(Vec::new());
                continue;
            }
            Sign::Embedding => Layer::Embedding,
            Sign::Transformer => Layer::Transformer(n_transformers),
            Sign::MultiToken => Layer::MultiToken(n_multi_tokens),
            Sign::Loss => Layer::Loss,
        };
        match (last, layer) {
            (None, Layer::Embedding) if stages.len() == 1 => {}
            (None, _) => return Err(at.error("the first stage must begin with the embedding, E")),
            (Some(_), Layer::Embedding) => return Err(at.error("there is one embedding, E, first of all")),
            (Some(Layer::Loss), _) => return Err(at.error("nothing can come behind the loss, L")),
            (Some(Layer::MultiToken(_)), Layer::Transformer(_)) => {
                return Err(at.error("a transformer layer, t, can't come behind an m"));
            }
            _ => {}
        }
        n_transformers += u32::from(*sign == Sign::Transformer);
        n_multi_tokens += u32::from(*sign == Sign::MultiToken);
        last = Some(layer);
        let n = stages.len();
        stages[n - 1].push(layer);
    }
    match stages.last().and_then(|stage| stage.last()) {
        Some(Layer::Loss) => Ok(Partition { stages }),
        _ => Err(end.error("the last stage must end with the loss, L")),
    }
}
