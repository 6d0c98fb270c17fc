//! What the tests of paceline as a whole share: worlds of ranks, inputs whose results are known, cases to
//! run, and jobs of real processes.
//!
//! Everything that is drawn is drawn from a seed, which failures print.

pub mod case;
pub mod corpus;
pub mod exact;
pub mod noise;
pub mod places;
pub mod process;
pub mod world;

pub use paceline_transport::sim::Random;

/// Whether the environment asks for more than the small default: `PACELINE_FULL`, `PACELINE_BIG`.
#[must_use]
pub fn is_asked_for(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Whether tests are to run on this kind of link: all are, unless `PACELINE_TEST_LINKS` lists some.
#[must_use]
pub fn is_link_asked_for(name: &str) -> bool {
    let listed = std::env::var("PACELINE_TEST_LINKS").unwrap_or_default();
    listed.is_empty() || listed.split(',').any(|link| link.trim() == name)
}

/// Kinds of links between processes that tests are to run on: shm and tcp, or what `PACELINE_TEST_LINKS` lists.
///
/// # Panics
///
/// If it lists none that joins processes.
#[must_use]
pub fn process_links() -> Vec<&'static str> {
    let is_listed = std::env::var("PACELINE_TEST_LINKS").is_ok_and(|listed| !listed.is_empty());
    let known = if is_listed { &["shm", "tcp", "rdma"][..] } else { &["shm", "tcp"] };
    let links: Vec<&str> = known.iter().copied().filter(|link| is_link_asked_for(link)).collect();
    assert!(!links.is_empty(), "PACELINE_TEST_LINKS lists no kind of link between processes");
    links
}

/// The seed of what is drawn: `PACELINE_SEED`, or always the same one.
///
/// # Panics
///
/// If the variable is set to something that is no number.
#[must_use]
pub fn seed() -> u64 {
    std::env::var("PACELINE_SEED").map_or(20_240_817, |text| text.parse().expect("PACELINE_SEED is a number"))
}

/// A number that depends on every bit of `value`.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
