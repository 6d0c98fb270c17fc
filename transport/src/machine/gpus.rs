//! GPUs: PCI devices of certain classes, and what a driver's library knows beyond sysfs.

use super::{Attributes, Gpu, Machine, NvLink, PciAddress, PciDevice};

/// What a driver's library says of a GPU.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuFacts {
    /// Where it is.
    pub address: PciAddress,
    /// What its maker calls it.
    pub name: Option<String>,
    /// The compute capability, such as 90.
    pub sm: Option<u32>,
    /// Its NVLinks that are up; those to one target may come in parts.
    pub links: Vec<NvLink>,
}

/// Who knows of GPUs what sysfs doesn't show.
pub trait GpuLinks {
    /// What is known of each GPU.
    ///
    /// # Errors
    ///
    /// Why nothing is known: no library, no driver, no rights.
    fn gpus(&self) -> Result<Vec<GpuFacts>, String>;
}

const NVIDIA: u16 = 0x10de;
const VENDORS: [u16; 3] = [NVIDIA, 0x1002, 0x8086];

/// Whether a device is a GPU of NVIDIA, AMD or Intel: a display controller, or an accelerator as AMD's newer ones are.
pub(super) fn is_gpu(device: &PciDevice) -> bool {
    let class = device.class.map(|class| class >> 8);
    let is_vendors = device.vendor.is_none_or(|vendor| VENDORS.contains(&vendor));
    is_vendors && class.is_some_and(|class| matches!(class, 0x0300 | 0x0302 | 0x0380 | 0x1200))
}

/// Finds the GPUs among the devices.
pub(super) fn read(machine: &mut Machine, links: Option<&dyn GpuLinks>) {
    let mut found: Vec<usize> = (0..machine.devices.len()).filter(|at| is_gpu(&machine.devices[*at])).collect();
    found.sort_by_key(|at| machine.devices[*at].address);
    for (number, device) in (0..).zip(found) {
        let attributes = Attributes::new();
        machine.gpus.push(Gpu { device, number, name: None, sm: None, links: Vec::new(), attributes });
    }
    let has_nvidia = machine.gpus.iter().any(|gpu| machine.devices[gpu.device].vendor == Some(NVIDIA));
    match links.map(GpuLinks::gpus) {
        None if has_nvidia => {
            machine.note("NVLinks aren't known: they take NVIDIA's library (feature nvml)".to_owned());
        }
        None => {}
        Some(Err(why)) if has_nvidia => machine.note(format!("NVLinks aren't known: {why}")),
        Some(Err(why)) => tracing::debug!("no facts about GPUs: {why}"),
        Some(Ok(facts)) => facts.into_iter().for_each(|facts| add(machine, facts)),
    }
}

fn add(machine: &mut Machine, facts: GpuFacts) {
    let of = machine.gpus.iter().position(|gpu| machine.devices[gpu.device].address == facts.address);
    let Some(of) = of else {
        machine.note(format!("the GPU at {} has a driver, but isn't on the PCI bus that is seen", facts.address));
        return;
    };
    let gpu = &mut machine.gpus[of];
    (gpu.name, gpu.sm) = (facts.name, facts.sm);
    for link in facts.links {
        match gpu.links.iter_mut().find(|known| known.target == link.target) {
            Some(known) => known.count = known.count.saturating_add(link.count),
            None => gpu.links.push(link),
        }
    }
}
