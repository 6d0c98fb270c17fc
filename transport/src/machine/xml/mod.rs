//! NCCL's format for topologies: what `NCCL_TOPO_DUMP_FILE` writes and `NCCL_TOPO_FILE` reads.
//!
//! ```xml
//! <system version="1">
//!   <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
//!     <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
//!       <pci busid="0000:07:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
//!         <gpu dev="0" sm="80"><nvlink target="0000:c7:00.0" count="2" tclass="0x068000"/></gpu>
//!       </pci>
//!       <pci busid="0000:0c:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
//!         <nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>
//!       </pci>
//!     </pci>
//!   </cpu>
//! </system>
//! ```
//!
//! Attributes that aren't understood are kept and written again; elements that aren't are noted.

mod attributes;
mod read;
mod write;

/// The longest file that is read.
pub const BYTES_MAX: usize = 4 << 20;

/// Why a text is no topology.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum XmlError {
    /// It is longer than [`BYTES_MAX`].
    #[error("the file has {0} bytes, and no topology has more than {BYTES_MAX}")]
    TooLong(u64),
    /// It can't be read.
    #[error("the file can't be read: {0}")]
    Unreadable(String),
    /// It isn't XML.
    #[error("line {line}, column {column}: this is no XML: {why}")]
    Syntax {
        /// From 1.
        line: u32,
        /// From 1.
        column: u32,
        /// What the parser says.
        why: String,
    },
    /// It is XML, but not of this format.
    #[error("line {line}, column {column}: {what}; expected {expected}")]
    Format {
        /// From 1.
        line: u32,
        /// From 1.
        column: u32,
        /// What is there.
        what: String,
        /// What should be there.
        expected: String,
    },
}
