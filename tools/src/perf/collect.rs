//! Small facts from every rank to every rank, by the communicator itself.

use paceline_comm::{Buffers, Collective, DataType, Request};

use super::comm::{Comm, CommError};

/// Every rank's words, in rank order. All ranks bring equally many.
///
/// # Errors
///
/// Whatever the library reports.
pub fn words<C: Comm>(comm: &C, own: &[u64]) -> Result<Vec<Vec<u64>>, CommError> {
    let input: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut output = vec![0; input.len() * comm.size()];
    let buffers = Buffers::Separate { input: &input, output: &mut output };
    comm.run(Request::new(Collective::AllGather, DataType::U64, own.len(), buffers))?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    Ok(output.chunks(input.len().max(1)).map(|rank| rank.chunks(8).map(word).collect()).collect())
}

/// Every rank's floats, in rank order.
///
/// # Errors
///
/// Whatever the library reports.
pub fn floats<C: Comm>(comm: &C, own: &[f64]) -> Result<Vec<Vec<f64>>, CommError> {
    let own: Vec<u64> = own.iter().map(|value| value.to_bits()).collect();
    Ok(words(comm, &own)?.into_iter().map(|rank| rank.into_iter().map(f64::from_bits).collect()).collect())
}

/// Every rank's text, in rank order, each cut to `len` bytes.
///
/// # Errors
///
/// Whatever the library reports.
pub fn texts<C: Comm>(comm: &C, own: &str, len: usize) -> Result<Vec<String>, CommError> {
    let end = (0..=len.min(own.len())).rev().find(|at| own.is_char_boundary(*at)).unwrap_or(0);
    let mut bytes = own.as_bytes()[..end].to_vec();
    bytes.resize(len.next_multiple_of(8), 0);
    let own: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
    let text = |words: Vec<u64>| {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    };
    Ok(words(comm, &own)?.into_iter().map(text).collect())
}
