//! Whether all ranks have the same parameters: compared by hash, and looked at one by one only where hashes differ.

use candle_core::DType;
use paceline_comm::{Collective, ReduceOp};
use sha2::{Digest, Sha256};

use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Group};
use crate::parameter::Parameter;

/// Checks that all ranks of a group have parameters of the same names, shapes, types and spreads in the same order. `worlds`
/// are the ranks' numbers in the world, for messages.
pub(crate) fn same_parameters(group: &Group, worlds: &[usize], parameters: &[Parameter]) -> Result<()> {
    let lines: Vec<String> = parameters.iter().map(line).collect();
    let hash = Sha256::digest(lines.join("\n").as_bytes()).to_vec();
    let hashes = all_gather(group, hash)?;
    if hashes.chunks(32).all(|hash| *hash == hashes[..32]) {
        return Ok(());
    }
    let first = broadcast_text(group, &lines.join("\n"), 0)?;
    let of_first: Vec<&str> = first.lines().collect();
    let differs = (0..lines.len().max(of_first.len()))
        .find(|place| lines.get(*place).map(String::as_str) != of_first.get(*place).copied());
    let places = all_gather(group, differs.map_or(u32::MAX, |place| place as u32).to_le_bytes().to_vec())?;
    let mut places = places.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let rank = places.position(|place| place != u32::MAX).expect("hashes differ");
    let place = broadcast_text(group, &differs.unwrap_or_default().to_string(), rank)?;
    let place: usize = place.parse().expect("a number was sent");
    let there = broadcast_text(group, lines.get(place).map_or("nothing", String::as_str), rank)?;
    let here = of_first.get(place).copied().unwrap_or("nothing");
    Err(Error::Differs(format!(
        "rank {}'s parameter #{place} is {there}, and rank {}'s is {here}: all ranks must build the same model, in the \
         same order",
        worlds[rank], worlds[0]
    )))
}

fn line(parameter: &Parameter) -> String {
    format!("{} {:?} {:?} ({})", parameter.name(), parameter.part().shape(), parameter.dtype(), parameter.spread())
}

fn all_gather(group: &Group, bytes: Vec<u8>) -> Result<Vec<u8>> {
    group.count(Collective::AllGather, bytes.len() * group.size());
    match Elements::U8(bytes).all_gather(group.comm()).doing(|| "comparing the ranks' parameters".to_owned())? {
        Elements::U8(all) => Ok(all),
        other => unreachable!("bytes were sent, and {:?} came", other.dtype()),
    }
}

fn broadcast_text(group: &Group, text: &str, root: usize) -> Result<String> {
    let doing = || "comparing the ranks' parameters".to_owned();
    let mut len = [if group.rank() == root { text.len() as u64 } else { 0 }];
    group.comm().all_reduce_in_place(&mut len, ReduceOp::Max).doing(doing)?;
    let mut bytes = Elements::zeros(DType::U8, len[0] as usize)?;
    if group.rank() == root {
        bytes = Elements::U8(text.as_bytes().to_vec());
    }
    bytes.broadcast(group.comm(), root).doing(doing)?;
    match bytes {
        Elements::U8(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        other => unreachable!("bytes were sent, and {:?} came", other.dtype()),
    }
}
