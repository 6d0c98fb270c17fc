//! Where a PCI device is: domain, bus, device and function.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI device, written `0000:07:00.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    /// Sixteen bits on most hosts; more behind some storage controllers.
    pub domain: u32,
    /// The bus within the domain.
    pub bus: u8,
    /// The slot on the bus, below 32.
    pub slot: u8,
    /// The function of the device, below 8.
    pub function: u8,
}

impl PciAddress {
    /// Whether two functions belong to one device, and so share its link.
    #[must_use]
    pub fn is_same_device(self, other: PciAddress) -> bool {
        PciAddress { function: 0, ..self } == PciAddress { function: 0, ..other }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, slot, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.{function}")
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<PciAddress, String> {
        text.parse()
    }
}

/// Hexadecimal digits, at most so many, and nothing else.
fn digits(text: &str, most: usize) -> Option<u32> {
    let plain = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PciAddress, String> {
        let parse = || {
            let (place, function) = text.rsplit_once('.')?;
            let (place, slot) = place.rsplit_once(':')?;
            let (domain, bus) = place.rsplit_once(':').unwrap_or(("0", place));
            let (slot, function) = (digits(slot, 2)?, digits(function, 1)?);
            (slot < 32 && function < 8).then_some(())?;
            let (domain, bus) = (digits(domain, 8)?, digits(bus, 2)?);
            Some(PciAddress { domain, bus: bus as u8, slot: slot as u8, function: function as u8 })
        };
        parse().ok_or_else(|| format!("{text:?} is no PCI address such as 0000:07:00.0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_and_drivers_write_them() {
        let check = |text: &str, want: &str| assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), want);
        check("0000:07:00.0", "0000:07:00.0");
        check("00000000:C7:1F.7", "0000:c7:1f.7");
        check("10000:e0:06.0", "10000:e0:06.0");
        check("07:00.1", "0000:07:00.1");
        for wrong in
            ["", "fffffff:ffff:ff", "0000:07:20.0", "0000:07:00.8", "0000:07:00", "pci0000:00", "0000:+7:00.0", "ä:b.c"]
        {
            assert!(wrong.parse::<PciAddress>().unwrap_err().contains("0000:07:00.0"), "{wrong}");
        }
    }
}
