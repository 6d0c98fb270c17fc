//! From a machine to a text.

use std::fmt::Write;

use super::read::KINDS;
use crate::machine::{Attributes, Gpu, Machine, Nic, NumaNode, PciDevice, lists};

impl Machine {
    /// The machine in NCCL's format, its parts in the order of this one's lists.
    ///
    /// NCCL knows neither caches nor sockets, so caches are lost; the number of a node's socket, and of a port its interface,
    /// kind and state, stand in attributes that NCCL passes over. What no node is known of stands in a node -1.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut out = Writer { text: String::new(), depth: 0, is_empty: false };
        out.open("system", &[("version", Some("1".to_owned()))], &Attributes::new());
        for (at, node) in self.nodes.iter().enumerate() {
            self.write_node(&mut out, node, Some(at));
        }
        let is_lost = |device: &PciDevice| device.node.is_none() && device.parent.is_none();
        let loose = |nic: &Nic| nic.device.is_none() && nic.node.is_none();
        if self.devices.iter().any(is_lost) || self.nics.iter().any(loose) {
            let processor = self.nodes.first().map(|node| node.processor.clone()).unwrap_or_default();
            self.write_node(&mut out, &NumaNode { id: -1, processor, ..NumaNode::default() }, None);
        }
        out.close("system");
        out.text
    }

    fn write_node(&self, out: &mut Writer, node: &NumaNode, at: Option<usize>) {
        let processor = &node.processor;
        let attributes = [
            ("numaid", Some(node.id.to_string())),
            ("affinity", Some(lists::mask_text(&node.cores))),
            ("arch", processor.arch.clone()),
            ("vendor", processor.vendor.clone()),
            ("familyid", processor.family.map(|number| number.to_string())),
            ("modelid", processor.model.map(|number| number.to_string())),
            ("package", node.package.map(|number| number.to_string())),
        ];
        out.open("cpu", &attributes, &node.attributes);
        self.write_nics(out, |nic| nic.device.is_none() && nic.node == at);
        for (device, about) in self.devices.iter().enumerate() {
            if about.parent.is_none() && about.node == at {
                self.write_device(out, device);
            }
        }
        out.close("cpu");
    }

    fn write_device(&self, out: &mut Writer, at: usize) {
        let device = &self.devices[at];
        let attributes = [
            ("busid", Some(device.address.to_string())),
            ("class", device.class.map(|class| format!("{class:#08x}"))),
            ("vendor", device.vendor.map(|number| format!("{number:#06x}"))),
            ("device", device.device.map(|number| format!("{number:#06x}"))),
            ("link_speed", device.link.map(|link| link.speed_text())),
            ("link_width", device.link.map(|link| link.width.to_string())),
        ];
        out.open("pci", &attributes, &device.attributes);
        for gpu in self.gpus.iter().filter(|gpu| gpu.device == at) {
            write_gpu(out, gpu);
        }
        self.write_nics(out, |nic| nic.device == Some(at));
        for child in (0..self.devices.len()).filter(|child| self.devices[*child].parent == Some(at)) {
            self.write_device(out, child);
        }
        out.close("pci");
    }

    fn write_nics(&self, out: &mut Writer, is_here: impl Fn(&Nic) -> bool) {
        let mut here = self.nics.iter().filter(|nic| is_here(nic) && nic.name.is_some()).peekable();
        if here.peek().is_none() {
            return;
        }
        out.open("nic", &[], &Attributes::new());
        for nic in here {
            let kind = KINDS.iter().find(|(kind, _)| *kind == nic.kind).map(|(_, name)| (*name).to_owned());
            let attributes = [
                ("name", nic.name.clone()),
                ("dev", Some(nic.number.to_string())),
                ("speed", nic.bytes_per_second.map(|rate| (rate / 125_000).to_string())),
                ("port", Some(nic.port.to_string())),
                ("kind", kind),
                ("state", nic.state.clone()),
                ("interface", nic.interface.clone()),
            ];
            out.open("net", &attributes, &nic.attributes);
            out.close("net");
        }
        out.close("nic");
    }
}

fn write_gpu(out: &mut Writer, gpu: &Gpu) {
    let attributes =
        [("dev", Some(gpu.number.to_string())), ("sm", gpu.sm.map(|sm| sm.to_string())), ("name", gpu.name.clone())];
    out.open("gpu", &attributes, &gpu.attributes);
    for link in &gpu.links {
        let attributes = [
            ("target", Some(link.target.clone())),
            ("count", Some(link.count.to_string())),
            ("tclass", Some(format!("{:#08x}", link.class))),
        ];
        out.open("nvlink", &attributes, &Attributes::new());
        out.close("nvlink");
    }
    out.close("gpu");
}

struct Writer {
    text: String,
    depth: usize,
    /// Nothing has been written since an element was opened.
    is_empty: bool,
}

impl Writer {
    fn open(&mut self, name: &str, attributes: &[(&str, Option<String>)], others: &Attributes) {
        self.text.extend(std::iter::repeat_n("  ", self.depth));
        let known = attributes.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let others = others.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let _ = write!(self.text, "<{name}");
        for (name, value) in known.chain(others) {
            let _ = write!(self.text, " {name}=\"");
            value.chars().for_each(|char| self.escaped(char));
            self.text.push('"');
        }
        self.text.push_str(">\n");
        self.depth += 1;
        self.is_empty = true;
    }

    /// Closes the element that was opened last; one without content becomes one tag.
    fn close(&mut self, name: &str) {
        self.depth -= 1;
        if std::mem::take(&mut self.is_empty) {
            self.text.truncate(self.text.len() - ">\n".len());
            self.text.push_str("/>\n");
            return;
        }
        self.text.extend(std::iter::repeat_n("  ", self.depth));
        let _ = writeln!(self.text, "</{name}>");
    }

    fn escaped(&mut self, char: char) {
        match char {
            '&' => self.text.push_str("&amp;"),
            '<' => self.text.push_str("&lt;"),
            '>' => self.text.push_str("&gt;"),
            '"' => self.text.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(self.text, "&#{};", char as u32);
            }
            // XML has no way to write others.
            '\0'..' ' | '\u{fffe}' | '\u{ffff}' => self.text.push('?'),
            char => self.text.push(char),
        }
    }
}
