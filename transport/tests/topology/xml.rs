//! NCCL's format: files are read and written again, and what is no such file is refused with a line and a reason.

use paceline_transport::machine::{Machine, NicKind, Part, XmlError};
use proptest::prelude::*;

use crate::fixtures::{FILES, machine, machines};

/// Writes, reads and compares; notes are about the reading.
fn check_round_trip(machine: &Machine) {
    let text = machine.to_xml();
    let again = Machine::from_xml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let without_notes = |machine: &Machine| Machine { notes: Vec::new(), ..machine.clone() };
    assert_eq!(without_notes(&again), without_notes(machine), "{text}");
    assert_eq!(again.to_xml(), text);
}

/// Asks for all paths, so that a wrong reference is found.
fn check_sound(machine: &Machine) {
    machine.check().unwrap();
    let mut parts = machine.endpoints();
    parts.extend((0..machine.cores.len()).take(3).map(Part::Core));
    parts.extend((0..machine.nodes.len()).map(Part::Node));
    for from in &parts {
        parts.iter().map(|to| machine.path(*from, *to)).for_each(|path| assert_ne!(path.bytes_per_second, Some(0)));
    }
    let _ = (machine.matrix(), machine.digest());
}

#[test]
fn public_files_are_read_and_written_again() {
    for (name, _) in FILES {
        let machine = machine(name);
        assert_eq!(machine.notes, Vec::<String>::new(), "{name}");
        check_sound(&machine);
        check_round_trip(&machine);
    }
}

#[test]
fn what_was_detected_has_the_same_paths_after_it_was_written() {
    for (name, machine) in machines() {
        let again = Machine::from_xml(&machine.to_xml()).unwrap();
        assert_eq!(again.matrix(), machine.matrix(), "{name}");
        let packages = |machine: &Machine| machine.packages.iter().map(|package| package.id).collect::<Vec<_>>();
        assert_eq!(packages(&again), packages(&machine), "{name}");
    }
}

#[test]
fn files_hold_what_they_say() {
    let check = |name: &str, gpus: usize, nics: usize, nodes: usize, switches: usize, nvswitches: usize| {
        let machine = machine(name);
        let counts =
            (machine.gpus.len(), machine.nics.len(), machine.nodes.len(), machine.switches(), machine.nvswitches());
        assert_eq!(counts, (gpus, nics, nodes, switches, nvswitches), "{name}");
    };
    check("dgx-a100", 8, 12, 6, 24, 6);
    check("hgx-h100", 8, 8, 2, 8, 4);
    check("pcie-8-gpus", 8, 1, 2, 6, 0);
    check("h200-vm", 8, 8, 1, 0, 1);
    check("azure-ndv4", 8, 8, 4, 4, 0);
    let machine = machine("azure-ndv4");
    assert!(machine.nics.iter().all(|nic| nic.kind == NicKind::InfiniBand));
    assert_eq!(machine.nodes[1].cores, (24..48).collect::<Vec<u32>>());
}

#[test]
fn what_is_not_understood_is_kept_or_noted() {
    let text = r#"<system version="2">
        <cpu numaid="0" host_hash="0x1" affinity="3">
            <pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="0" keep="1">
                <gpu dev="0" gdr="1"><c2c bw="44712" count="5"/></gpu>
            </pci>
            <nic><net name="eth0" latency="75.5"/></nic>
        </cpu>
        <magic/>
    </system>"#;
    let machine = Machine::from_xml(text).unwrap();
    let notes = ["version \"2\"", "\"32.0 GT/s PCIe\" and \"0\"", "line 4: <c2c>", "line 8: <magic>"];
    assert_eq!(machine.notes.len(), notes.len(), "{:?}", machine.notes);
    for want in notes {
        assert!(machine.notes.iter().any(|note| note.contains(want)), "{want}: {:?}", machine.notes);
    }
    for kept in ["host_hash=\"0x1\"", "keep=\"1\"", "gdr=\"1\"", "latency=\"75.5\""] {
        assert!(machine.to_xml().contains(kept), "{kept}");
    }
    check_round_trip(&machine);
}

#[test]
fn parts_of_several_hosts_are_joined_by_a_network() {
    let host = |hash: &str| {
        format!(
            r#"<cpu numaid="0" host_hash="{hash}"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0"/></pci>
            <nic><net name="mlx5_0" dev="0" speed="100000"/></nic></cpu>"#
        )
    };
    let text = format!("<system version=\"1\">{}{}</system>", host("0xa"), host("0xb"));
    let machine = Machine::from_xml(&text).unwrap();
    let path = machine.path(Part::Gpu(0), Part::Gpu(1));
    assert_eq!((path.class.letters(), path.bytes_per_second), ("NET", Some(12_500_000_000)));
    assert_eq!(machine.nearest_nics(Part::Gpu(1)), [1]);
    assert!(machine.notes[0].contains("2 hosts"), "{:?}", machine.notes);
}

#[test]
fn what_is_no_topology_is_refused_with_a_line_and_a_reason() {
    let check = |body: &str, want: &str| {
        let error = Machine::from_xml(&format!("<system version=\"1\">\n{body}\n</system>")).unwrap_err().to_string();
        assert!(error.contains(want), "{body}: {error}");
    };
    check("<cpu/>", "line 2, column 1: <cpu> has no numaid");
    check("<cpu numaid=\"x\"/>", "line 2, column 6: numaid=\"x\" of <cpu>; expected a whole number");
    check("<cpu numaid=\"0\" affinity=\"0-15\"/>", "line 2, column 17: affinity=\"0-15\"");
    check("<cpu numaid=\"0\">\n<pci/>\n</cpu>", "line 3, column 1: <pci> has no busid");
    check("<cpu numaid=\"0\">\n<pci busid=\"bus 1\"/>\n</cpu>", "line 3, column 6: busid=\"bus 1\"");
    check(
        "<cpu numaid=\"0\"><pci busid=\"1:0.0\"/>\n<pci busid=\"0000:01:00.0\"/></cpu>",
        "line 3, column 6: 0000:01:00.0 is there twice",
    );
    check(
        "<cpu numaid=\"0\"><pci busid=\"1:0.0\" link_speed=\"8 GT/s\" link_width=\"many\"/></cpu>",
        "link_width=\"many\"",
    );
    check(
        "<cpu numaid=\"0\"><pci busid=\"1:0.0\" vendor=\"0x12345\"/></cpu>",
        "vendor=0x12345 of <pci>; expected sixteen bits",
    );
    check("<cpu numaid=\"0\"><nic>\n<net/></nic></cpu>", "line 3, column 1: <net> has no name");
    check(
        "<cpu numaid=\"0\"><pci busid=\"1:0.0\"><gpu dev=\"0\"><nvlink/></gpu></pci></cpu>",
        "<nvlink> has no target",
    );
    check("<gpu dev=\"0\"/>", "line 2, column 1: <gpu> stands in <system>; expected it in a <cpu>");
    check("<cpu numaid=\"0\">", "line 3, column 1: this is no XML");
    let deep = "<pci busid=\"0000:00:00.0\">".repeat(40) + &"</pci>".repeat(40);
    let deep = (0..40).fold(deep, |text, at| text.replacen("0000:00:00.0", &format!("{:04x}:01:00.0", at + 1), 1));
    check(&format!("<cpu numaid=\"0\">{deep}</cpu>"), "32 PCI devices stand in each other");
    let wrong = Machine::from_xml("<html/>").unwrap_err().to_string();
    assert!(wrong.contains("line 1, column 1: the outermost element is <html>"), "{wrong}");
    assert!(matches!(Machine::from_xml(&" ".repeat(5 << 20)), Err(XmlError::TooLong(_))));
}

/// An attribute that may be missing, wrong, or of any text.
fn attribute(name: &'static str, sound: &'static [&'static str]) -> impl Strategy<Value = String> {
    let sound = prop::sample::select(sound).prop_map(str::to_owned);
    prop_oneof![
        1 => Just(String::new()),
        12 => sound.prop_map(move |value| format!(" {name}=\"{value}\"")),
        1 => "[ -~]{0,8}".prop_map(move |value| format!(" {name}=\"{}\"", value.replace(['<', '&', '"'], "?"))),
    ]
}

fn element(
    name: &'static str,
    attributes: impl Strategy<Value = String>,
    within: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    (attributes, within).prop_map(move |(attributes, within)| format!("<{name}{attributes}>{within}</{name}>\n"))
}

fn several<S: Strategy<Value = String>>(element: S) -> impl Strategy<Value = String> {
    prop::collection::vec(element, 0..3).prop_map(|parts| parts.concat())
}

fn pci() -> impl Strategy<Value = String> {
    let attributes = || {
        let address = (0u32..4, 0u8..32).prop_map(|(bus, slot)| format!(" busid=\"0000:{bus:02x}:{slot:02x}.0\""));
        let class = attribute("class", &["0x060400", "0x030200", "0x020700", "0x068000"]);
        let speed = attribute("link_speed", &["8 GT/s", "16.0 GT/s PCIe", "Unknown", ""]);
        (address, class, speed, attribute("link_width", &["16", "8", "0", ""]))
            .prop_map(|(a, b, c, d)| a + &b + &c + &d)
    };
    let link =
        (attribute("target", &["0000:00:01.0", "0000:01:02.0", "fffffff:ff:ff.0"]), attribute("count", &["1", "12"]));
    let link = element("nvlink", link.prop_map(|(a, b)| a + &b), Just(String::new()));
    let gpu = element(
        "gpu",
        (attribute("dev", &["0", "1"]), attribute("sm", &["60", "80", "90"])).prop_map(|(a, b)| a + &b),
        several(link),
    );
    let leaf = element("pci", attributes(), several(prop_oneof![gpu, nic()]));
    leaf.prop_recursive(4, 24, 3, move |inner| element("pci", attributes(), several(inner)).boxed())
}

fn nic() -> impl Strategy<Value = String> {
    let net =
        (attribute("name", &["mlx5_0", "eth0"]), attribute("speed", &["100000", "0"]), attribute("port", &["1", "2"]));
    element(
        "nic",
        Just(String::new()),
        several(element("net", net.prop_map(|(a, b, c)| a + &b + &c), Just(String::new()))),
    )
}

fn system() -> impl Strategy<Value = String> {
    let cpu = (
        attribute("numaid", &["0", "1", "-1"]),
        attribute("affinity", &["ff", "ff00", ""]),
        attribute("host_hash", &["0x1", "0x2"]),
    );
    let cpu = element("cpu", cpu.prop_map(|(a, b, c)| a + &b + &c), several(prop_oneof![4 => pci(), 1 => nic()]));
    element("system", attribute("version", &["1"]), several(cpu))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn made_up_topologies_are_sound_or_refused(text in system()) {
        if let Ok(machine) = Machine::from_xml(&text) {
            check_sound(&machine);
            check_round_trip(&machine);
        }
    }

    #[test]
    fn damaged_files_are_sound_or_refused(
        file in 0..FILES.len(), at in 0.0..1.0, removed in 0usize..200, put in "\\PC{0,12}",
    ) {
        let mut text = FILES[file].1.to_owned();
        let start = text.floor_char_boundary((text.len() as f64 * at) as usize);
        let end = text.ceil_char_boundary((start + removed).min(text.len()));
        text.replace_range(start..end, &put);
        if let Ok(machine) = Machine::from_xml(&text) {
            check_sound(&machine);
        }
    }

    #[test]
    fn no_text_is_too_much(text in "\\PC*") {
        let _ = Machine::from_xml(&text);
        let _ = Machine::from_xml(&format!("<system><cpu numaid=\"0\">{text}</cpu></system>"));
    }
}
