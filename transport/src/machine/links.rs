//! What links carry: PCI Express by its generation and width, and a table for links of which the kernel says nothing.

use super::Processor;

/// The speed and width of a PCI Express link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct PciLink {
    /// Transfers of a bit on each lane, in millions per second: 2500, 5000, 8000, 16000, 32000 or 64000.
    pub megatransfers: u32,
    /// How many lanes.
    pub width: u8,
}

/// How many bytes a packet carries at most on the usual hosts (the maximum payload size that their firmware sets).
const PAYLOAD_BYTES: f64 = 256.0;
/// What surrounds them in a packet with an address of 64 bits: framing and sequence number 4, header 16, check sum 4
/// (PCI Express Base Specification 3.0, sections 2.2 and 4.2.2).
const PACKET_BYTES: f64 = 24.0;

impl PciLink {
    /// What it carries in each direction: after the coding of the line (8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, 236 of 256
    /// bytes of a flit above), and after the headers of packets.
    #[must_use]
    pub fn bytes_per_second(self) -> u64 {
        let coding = match self.megatransfers {
            ..=5000 => 8.0 / 10.0,
            5001..=32_000 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        let lane = f64::from(self.megatransfers) * 1e6 / 8.0 * coding;
        (lane * f64::from(self.width) * PAYLOAD_BYTES / (PAYLOAD_BYTES + PACKET_BYTES)) as u64
    }

    /// Transfers of a bit on each lane, in billions per second.
    #[must_use]
    pub fn gigatransfers(self) -> f64 {
        f64::from(self.megatransfers) / 1000.0
    }

    /// The generation that has this speed, `None` if none has.
    #[must_use]
    pub fn generation(self) -> Option<u32> {
        [2500, 5000, 8000, 16_000, 32_000, 64_000]
            .iter()
            .position(|speed| *speed == self.megatransfers)
            .map(|at| at as u32 + 1)
    }

    /// What both of two ends can do.
    #[must_use]
    pub fn narrower(self, other: PciLink) -> PciLink {
        PciLink { megatransfers: self.megatransfers.min(other.megatransfers), width: self.width.min(other.width) }
    }

    /// From the kernel's texts, or those of a file: `16.0 GT/s PCIe` and `16`.
    pub(super) fn parse(speed: &str, width: &str) -> Option<PciLink> {
        let (number, unit) = speed.trim().split_once(' ')?;
        let gigatransfers: f64 = number.parse().ok()?;
        // 255 is what the kernel says if it doesn't know.
        let width: u8 = width.trim().parse().ok().filter(|width| (1..=32).contains(width))?;
        let is_sound = unit.starts_with("GT/s") && (0.1..=1024.0).contains(&gigatransfers);
        is_sound.then_some(PciLink { megatransfers: (gigatransfers * 1000.0).round() as u32, width })
    }

    /// As the kernel writes the speed.
    pub(super) fn speed_text(self) -> String {
        format!("{:?} GT/s PCIe", self.gigatransfers())
    }
}

const GB: u64 = 1_000_000_000;

/// A row: processors' vendor, family, the models from and to, what the link between two sockets carries for devices that write
/// to each other, in bytes per second, and what the link is.
type SocketRow = (&'static str, Option<u32>, (u32, u32), u64, &'static str);

/// What goes between sockets, in each direction, as NCCL takes it to be (`src/graph/topo.h`, version 2.27: `BDW_QPI_BW`,
/// `SKL_QPI_BW`, `SRP_QPI_BW`, `ERP_QPI_BW`, `AMD_BW`, `ZPI_BW`), which NVIDIA measured between GPUs. Makers state two to four times as much, for
/// processors. The first row that fits counts.
const SOCKETS: &[SocketRow] = &[
    ("GenuineIntel", Some(6), (0xcf, u32::MAX), 40 * GB, "UPI of Emerald Rapids and later"),
    ("GenuineIntel", Some(6), (0x8f, 0xce), 22 * GB, "UPI of Sapphire Rapids"),
    ("GenuineIntel", Some(6), (0x55, 0x8e), 10 * GB, "UPI of Skylake to Ice Lake"),
    ("GenuineIntel", None, (0, u32::MAX), 6 * GB, "QPI of Broadwell and earlier"),
    ("AuthenticAMD", None, (0, u32::MAX), 16 * GB, "Infinity Fabric"),
    ("HygonGenuine", None, (0, u32::MAX), 16 * GB, "Infinity Fabric"),
    ("CentaurHauls", None, (0, u32::MAX), 6 * GB, "ZPI"),
    ("  Shanghai  ", None, (0, u32::MAX), 6 * GB, "ZPI"),
];

/// The same for processors by their architecture (`P9_BW`, `ARM_BW`).
const SOCKETS_BY_ARCH: &[(&str, u64)] = &[("ppc64", 32 * GB), ("arm64", 6 * GB), ("aarch64", 6 * GB)];

/// What one NVLink carries in each direction, by compute capability, the first row that is no greater; what NCCL takes
/// (`src/graph/topo.h`, version 2.27: `SM60_NVLINK_BW` to `SM100_NVLINK_BW`), which is what is left of the 20, 25, 25, 26.6 and 50
/// GB/s that NVIDIA states for the generations 1 to 5.
const NVLINKS: &[(u32, u64)] =
    &[(100, 40_100_000_000), (90, 20_600_000_000), (86, 12 * GB), (70, 20 * GB), (60, 18 * GB)];
/// For GPUs of which only the links are known.
const NVLINK_UNKNOWN: u64 = 20 * GB;

/// What the link between two sockets carries, in bytes per second; `None` for processors that aren't in the table.
#[must_use]
pub fn between_sockets(processor: &Processor) -> Option<u64> {
    let vendor = processor.vendor.as_deref().unwrap_or_default();
    let model = processor.model.unwrap_or(0);
    let fits = |row: &&SocketRow| {
        let (of, family, (first, last), ..) = **row;
        of == vendor && family.is_none_or(|family| processor.family == Some(family)) && first <= model && model <= last
    };
    let by_arch = || {
        let arch = processor.arch.as_deref()?;
        SOCKETS_BY_ARCH.iter().find(|(of, _)| arch.starts_with(of)).map(|row| row.1)
    };
    SOCKETS.iter().find(fits).map(|row| row.3).or_else(by_arch)
}

/// What one NVLink of a GPU with this compute capability carries, in bytes per second.
#[must_use]
pub fn nvlink(sm: Option<u32>) -> u64 {
    let row = |sm: u32| NVLINKS.iter().find(|(from, _)| *from <= sm).map(|row| row.1);
    sm.and_then(row).unwrap_or(NVLINK_UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_pci_express_carry_what_their_generation_says() {
        let check = |speed: &str, width: &str, gigabytes: f64| {
            let rate = PciLink::parse(speed, width).unwrap().bytes_per_second() as f64 / 1e9;
            assert!((rate - gigabytes).abs() < 0.01, "{speed} x{width}: {rate}");
        };
        check("2.5 GT/s PCIe", "1", 0.25 * 256.0 / 280.0);
        check("5.0 GT/s PCIe", "8", 4.0 * 256.0 / 280.0);
        check("8.0 GT/s PCIe", "16", 15.754 * 256.0 / 280.0);
        check("16 GT/s", "16", 31.508 * 256.0 / 280.0);
        check("32.0 GT/s PCIe\n", "16\n", 63.015 * 256.0 / 280.0);
        check("64.0 GT/s PCIe", "16", 118.0 * 256.0 / 280.0);
        for (speed, width) in
            [("Unknown", "16"), ("16.0 GT/s", "255"), ("16.0 GT/s", "0"), ("", ""), ("NaN GT/s", "4"), ("1 MT/s", "4")]
        {
            assert_eq!(PciLink::parse(speed, width), None, "{speed} {width}");
        }
    }

    #[test]
    fn generations_are_told_apart() {
        let intel = |model| Processor {
            vendor: Some("GenuineIntel".to_owned()),
            family: Some(6),
            model: Some(model),
            ..Processor::default()
        };
        assert_eq!(
            [0x4f, 0x55, 0x6a, 0x8f, 0xcf].map(|model| between_sockets(&intel(model)).unwrap() / GB),
            [6, 10, 10, 22, 40]
        );
        assert_eq!(between_sockets(&Processor::default()), None);
        let arm = Processor { arch: Some("aarch64".to_owned()), ..Processor::default() };
        assert_eq!(between_sockets(&arm), Some(6 * GB));
        assert_eq!([60, 70, 80, 86, 90, 100].map(|sm| nvlink(Some(sm)) / 100_000_000), [180, 200, 200, 120, 206, 401]);
    }
}
