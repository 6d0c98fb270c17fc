//! Facts about the machine: the process and its host ([`facts`](self)), and how the host's parts are joined ([`Machine`]).
//!
//! A machine is read from a file tree like the kernel's ([`Source`], [`Machine::detect`]) or from a file in NCCL's format
//! ([`Machine::from_xml`]). What can't be seen is missing from it, with a note that says why; nothing of it is guessed, but for
//! the bandwidth of links of which the kernel says nothing ([`links`]).

mod address;
mod facts;
mod gpus;
pub mod links;
mod lists;
mod matrix;
mod nics;
#[cfg(feature = "nvml")]
mod nvml;
mod parts;
mod path;
mod pci;
mod processors;
mod record;
mod share;
mod source;
mod whereabouts;
mod xml;

pub use address::PciAddress;
pub use gpus::{GpuFacts, GpuLinks};
pub use lists::{CORES_MAX, list_text};
#[cfg(feature = "nvml")]
pub use nvml::Nvml;
pub use parts::{
    Allowance, Attributes, Cache, CacheKind, Core, Gpu, Machine, Nic, NicKind, NumaNode, NvLink, Package, PciDevice,
    Processor,
};
pub use path::{Part, Path, PathClass};
pub use record::RecordError;
pub use share::BytesError;
pub use source::Source;
pub use whereabouts::Whereabouts;
pub use xml::{BYTES_MAX as XML_BYTES_MAX, XmlError};

#[cfg(feature = "rdma")]
pub(crate) use facts::kernel_version;
pub(crate) use facts::{boot_id, files_hint, files_missing, host_name, mix, process_id, raise_file_limit, random};
