//! Whether all ranks have the same parameters: compared by hash, and looked at one by one only where hashes differ.

use paceline_comm::Collective;
use sha2::{Digest, Sha256};

use crate::agreement::gather;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::parameter::Parameter;

/// Checks that all ranks of a group have parameters of the same names, shapes, types and spreads in the same order. `worlds`
/// are the ranks' numbers in the world, for messages.
pub(crate) fn same_parameters(group: &Group, worlds: &[usize], parameters: &[Parameter]) -> Result<()> {
    let lines: Vec<String> = parameters.iter().map(line).collect();
    let hash = Sha256::digest(lines.join("\n").as_bytes());
    group.count(Collective::AllGather, hash.len() * group.size());
    let hashes = gather(group.comm(), &hash, "a digest of the ranks' parameters")?;
    if hashes.iter().all(|hash| *hash == hashes[0]) {
        return Ok(());
    }
    let texts = gather(group.comm(), lines.join("\n").as_bytes(), "the ranks' parameters")?;
    let lists: Vec<Vec<_>> = texts.iter().map(|text| text.split(|byte| *byte == b'\n').collect()).collect();
    let rank = lists.iter().position(|list| *list != lists[0]).expect("hashes differ");
    let place = (0..).find(|place| lists[rank].get(*place) != lists[0].get(*place)).expect("lists differ");
    let says = |rank: usize| match lists[rank].get(place) {
        Some(line) if !line.is_empty() => String::from_utf8_lossy(line).into_owned(),
        _ => "nothing".to_owned(),
    };
    let (there, here) = (says(rank), says(0));
    Err(Error::Differs(format!(
        "rank {}'s parameter #{place} is {there}, and rank {}'s is {here}: all ranks must build the same model, in the \
         same order",
        worlds[rank], worlds[0]
    )))
}

fn line(parameter: &Parameter) -> String {
    format!("{} {:?} {:?} ({})", parameter.name(), parameter.part().shape(), parameter.dtype(), parameter.spread())
}
