//! What can be used of this host's devices, and what is wrong with the rest.

#![forbid(unsafe_code)]

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::adapter::{Adapter, Adapters};
use super::choice;
use super::connect::{Opening, Trial};
use super::errors::{RdmaError, memlock_limit};
use super::facts::{self, LinkLayer, PortFacts};
use super::options::RdmaOptions;
use super::registration::Registered;
use super::verbs;
use crate::rendezvous::Family;

/// What was found out about a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// The device and the port.
    pub name: String,
    /// What the machine says of it.
    pub facts: Vec<String>,
    /// What would make it slow.
    pub warnings: Vec<String>,
    /// Why it can't be used, if it can't.
    pub problem: Option<RdmaError>,
}

/// Looks at every port of this host, and has each that could be used write to itself.
///
/// # Errors
///
/// There is no device, no library to use it with, or none that the options allow.
pub fn examine(options: &RdmaOptions, family: Family) -> Result<Vec<PortReport>, RdmaError> {
    let ports = facts::ports(Path::new(facts::ROOT));
    if ports.is_empty() {
        return Err(RdmaError::NoDevice);
    }
    let opened = verbs::device_names().map_err(|error| RdmaError::NoLibrary(error.to_owned()))?;
    let known = opened.unwrap_or_default();
    let present: Vec<String> = ports.iter().map(|port| port.device.clone()).collect();
    let wanted: Vec<PortFacts> = ports.into_iter().filter(|port| options.devices.matches(&port.device)).collect();
    if wanted.is_empty() {
        return Err(RdmaError::Filtered { filter: options.devices.text().to_owned(), present });
    }
    Ok(wanted.into_iter().map(|port| examine_port(port, &known, options, family)).collect())
}

fn examine_port(port: PortFacts, known: &[String], options: &RdmaOptions, family: Family) -> PortReport {
    let mut report = PortReport { name: port.name(), facts: describe(&port), warnings: Vec::new(), problem: None };
    if !known.contains(&port.device) {
        report.warnings.push(format!(
            "libibverbs doesn't list {}: its provider may be missing, or /dev/infiniband/uverbs* (it lists: {})",
            port.device,
            if known.is_empty() { "nothing".to_owned() } else { known.join(", ") }
        ));
    }
    report.problem = use_port(port, options, family, &mut report.facts, &mut report.warnings).err();
    report
}

fn describe(port: &PortFacts) -> Vec<String> {
    let layer = if port.layer == LinkLayer::Ethernet { "Ethernet (RoCE)" } else { "InfiniBand" };
    let node = port.node.map_or_else(String::new, |node| format!(", near NUMA node {node}"));
    let mut state = format!("{layer}, {}, {}", port.state, port.physical_state);
    if port.is_software {
        state.push_str(", a program of the kernel's, not hardware");
    }
    write!(state, ", {} Gb/s{node}", port.rate_gbps).expect("strings take everything");
    let interfaces = port.interfaces();
    if !interfaces.is_empty() {
        write!(state, ", interface {}", interfaces.join(", ")).expect("strings take everything");
    }
    let gids = port.gids.iter().map(|row| format!("GID {}: {} {}", row.index, row.kind, row.gid));
    std::iter::once(state).chain(gids).collect()
}

fn use_port(
    port: PortFacts,
    options: &RdmaOptions,
    family: Family,
    found: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<(), RdmaError> {
    let candidate = choice::usable_port(port, options, family)?;
    found.push(format!("GID {} comes first", candidate.gids[0].index));
    let adapter = Arc::new(Adapter::open(candidate, options)?);
    let state = adapter.context.port(adapter.candidate.facts.port);
    if let Ok(state) = state {
        let (now, most) = (128usize << state.mtu.min(5), 128usize << state.max_mtu.min(5));
        found.push(format!("{now} bytes per packet, at most {most}"));
        if now < most && state.is_ethernet {
            let needed = most + 66;
            warnings.push(format!("packets are short: an interface MTU of {needed} would allow {most} bytes"));
        }
    }
    match memlock_limit() {
        Some(limit) if limit < 64 << 20 => warnings.push(format!(
            "this process may pin {} KiB only (RLIMIT_MEMLOCK): `ulimit -l unlimited`, or `* - memlock unlimited` in \
             /etc/security/limits.conf",
            limit >> 10
        )),
        _ => {}
    }
    write_to_itself(&adapter, options, family)?;
    found.push("writes to itself arrive".to_owned());
    Ok(())
}

fn write_to_itself(adapter: &Arc<Adapter>, options: &RdmaOptions, family: Family) -> Result<(), RdmaError> {
    let (ports, memory) = (vec![adapter.clone()], Arc::new(Registered::new(vec![adapter.clone()], Some(false))));
    let adapters = Adapters { ports, options: options.clone(), family, memory };
    let ((mut one, its_offer), (mut other, other_offer)) = (Opening::new(&adapters, 1)?, Opening::new(&adapters, 1)?);
    let here = one.connect(&other_offer, true)?;
    let there = other.connect(&its_offer, false)?;
    here.into_iter().chain(there).collect::<Result<Vec<()>, RdmaError>>()?;
    for trial in [Trial::Small, Trial::Large] {
        let tried = std::thread::scope(|scope| {
            let there = scope.spawn(|| other.try_out(trial, &its_offer));
            let here = one.try_out(trial, &other_offer);
            let there = there.join().expect("a trial doesn't panic");
            here.into_iter().chain(there).collect::<Result<Vec<()>, RdmaError>>()
        });
        tried?;
    }
    Ok(())
}
