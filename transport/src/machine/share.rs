//! A machine as bytes, for other ranks; what comes from another rank is checked before anything is looked up in it.

use sha2::{Digest, Sha256};

use super::{CORES_MAX, Machine};

/// The form of the bytes. Ranks of one build share it; others refuse each other's.
const FORM: u8 = 1;

/// The most bytes that are read. A host with 1,024 processors and 64 devices takes about a hundred thousand.
const BYTES_MAX: usize = 4 << 20;

/// Why bytes are no machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("these {bytes} bytes describe no machine: {why}")]
pub struct BytesError {
    /// How many bytes there are.
    pub bytes: usize,
    /// What is wrong.
    pub why: String,
}

impl Machine {
    /// The machine as bytes that [`Machine::from_bytes`] reads, the same for equal machines.
    ///
    /// # Panics
    ///
    /// Never: plain data can always be written.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORM];
        bytes.extend(postcard::to_allocvec(self).expect("plain data"));
        bytes
    }

    /// The machine that another rank has sent.
    ///
    /// # Errors
    ///
    /// The bytes were not written by [`Machine::to_bytes`] of this version, or parts refer to others that aren't there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Machine, BytesError> {
        let wrong = |why: String| BytesError { bytes: bytes.len(), why };
        if bytes.len() > BYTES_MAX {
            return Err(wrong(format!("there may be {BYTES_MAX} at most")));
        }
        let Some((form, rest)) = bytes.split_first() else { return Err(wrong("they are none".to_owned())) };
        if *form != FORM {
            return Err(wrong(format!("their form is {form}, where {FORM} is known: run one version on all ranks")));
        }
        let (machine, after): (Machine, _) =
            postcard::take_from_bytes(rest).map_err(|error| wrong(error.to_string()))?;
        if !after.is_empty() {
            return Err(wrong(format!("{} of them are left over", after.len())));
        }
        machine.check().map_err(wrong)?;
        Ok(machine)
    }

    /// A number that two ranks have in common if they see the same parts: SHA-256 of all but what this process may use, and of
    /// the notes.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let parts = Machine { allowance: None, notes: Vec::new(), ..self.clone() };
        Sha256::digest(parts.to_bytes()).into()
    }

    /// Whether all references lead somewhere, and lists are in the order that lookups rely on.
    ///
    /// # Errors
    ///
    /// Which don't, in words. Fields are public, so that a machine can be made up; [`Machine::path`] panics on a wrong one.
    pub fn check(&self) -> Result<(), String> {
        let list = |what: &str, list: &[u32]| {
            let in_order = list.windows(2).all(|pair| pair[0] < pair[1]);
            let in_range = list.last().is_none_or(|last| *last < CORES_MAX);
            if in_order && in_range {
                Ok(())
            } else {
                Err(format!("the processors of {what} are out of order or range"))
            }
        };
        let place = |what: &str, at: Option<usize>, len: usize| match at {
            Some(at) if at >= len => Err(format!("{what} refers to number {at} of {len}")),
            _ => Ok(()),
        };
        let (nodes, devices) = (self.nodes.len(), self.devices.len());
        for (at, package) in self.packages.iter().enumerate() {
            package.nodes.iter().try_for_each(|node| place(&format!("socket {at}"), Some(*node), nodes))?;
        }
        for (at, node) in self.nodes.iter().enumerate() {
            list(&format!("NUMA node {at}"), &node.cores)?;
        }
        let ids: Vec<u32> = self.cores.iter().map(|core| core.id).collect();
        list("the list of cores", &ids)?;
        for core in &self.cores {
            list(&format!("core {}", core.id), &core.threads)?;
            place(&format!("core {}", core.id), core.node, nodes)?;
        }
        for (at, cache) in self.caches.iter().enumerate() {
            list(&format!("cache {at}"), &cache.cores)?;
        }
        for (at, device) in self.devices.iter().enumerate() {
            // A device comes after the switch above it, so the way up ends.
            place(&format!("the parent of {}", device.address), device.parent, at)?;
            place(&device.address.to_string(), device.node, nodes)?;
        }
        for (at, gpu) in self.gpus.iter().enumerate() {
            place(&format!("GPU {at}"), Some(gpu.device), devices)?;
        }
        for (at, nic) in self.nics.iter().enumerate() {
            place(&format!("network port {at}"), nic.device, devices)?;
            place(&format!("network port {at}"), nic.node, nodes)?;
        }
        let allowance = self.allowance.iter().flat_map(|allowance| &allowance.cores).copied();
        list("this process", &allowance.collect::<Vec<_>>())
    }
}
