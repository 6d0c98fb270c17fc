//! What NVIDIA's management library knows of GPUs. It is looked for at run time.

use super::{GpuFacts, GpuLinks, NvLink, PciAddress};

/// The library, looked for when it is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvml;

/// The most links that the library knows of (`NVML_NVLINK_MAX_LINKS`).
const LINKS_MAX: u32 = 18;
const SWITCH: u32 = 0x06_8000;
const DISPLAY: u32 = 0x03_0200;
/// What drivers say of a switch that they don't show.
const HIDDEN: &str = "fffffff:ffff:ff";

impl GpuLinks for Nvml {
    fn gpus(&self) -> Result<Vec<GpuFacts>, String> {
        let library = nvml_wrapper::Nvml::init().map_err(|error| format!("NVIDIA's library can't be used: {error}"))?;
        let count = library.device_count().map_err(|error| format!("NVIDIA's library counts no GPUs: {error}"))?;
        let mut found = Vec::new();
        for index in 0..count {
            match library.device_by_index(index).map_err(|error| error.to_string()).and_then(|gpu| facts(&gpu)) {
                Ok(facts) => found.push(facts),
                Err(why) => tracing::warn!("NVIDIA's library doesn't describe GPU {index}: {why}"),
            }
        }
        // The wrapper's `remote_device_type` always says "unknown": what isn't a GPU that the library counts is a switch.
        let own: Vec<String> = found.iter().map(|gpu| gpu.address.to_string()).collect();
        let links = found.iter_mut().flat_map(|gpu| &mut gpu.links);
        links.filter(|link| own.contains(&link.target)).for_each(|link| link.class = DISPLAY);
        Ok(found)
    }
}

fn facts(gpu: &nvml_wrapper::Device<'_>) -> Result<GpuFacts, String> {
    let address: PciAddress = gpu.pci_info().map_err(|error| error.to_string())?.bus_id.parse()?;
    let capability = gpu.cuda_compute_capability().ok();
    let sm = capability.and_then(|sm| u32::try_from(sm.major * 10 + sm.minor).ok());
    let links = (0..LINKS_MAX).filter_map(|at| {
        let link = gpu.link_wrapper_for(at);
        link.is_active().ok().filter(|is_active| *is_active)?;
        let target = link.remote_pci_info().ok().map(|remote| remote.bus_id);
        let target = target.map(|text| text.parse().map_or(text, |address: PciAddress| address.to_string()));
        Some(NvLink { target: target.unwrap_or_else(|| HIDDEN.to_owned()), class: SWITCH, count: 1 })
    });
    let links = links.collect();
    Ok(GpuFacts { address, name: gpu.name().ok(), sm, links })
}
