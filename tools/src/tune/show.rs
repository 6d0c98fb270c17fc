//! A profile as a table for people.

use std::fmt::Write;

use paceline_comm::Profile;

/// The choices and prices of one run; `unpriced` says why there are no prices.
pub fn profile(profile: &Profile, unpriced: Option<&String>) -> String {
    let mut text = String::new();
    if let Some(first) = profile.choices.first() {
        let among = &first.among;
        let host = &profile.host;
        let cores = host.cores;
        line(&mut text, format!("{} ranks over {}, {} to a core", among.ranks, among.link, among.crowding));
        line(&mut text, format!("on {}: {}, {cores} cores", host.name, host.processor));
    }
    line(&mut text, format!("{:<15} {:>10}  algorithm", "collective", "from bytes"));
    for choices in &profile.choices {
        let mut name = choices.collective.as_str();
        for crossover in &choices.from {
            line(&mut text, format!("{name:<15} {:>10}  {}", crossover.bytes, crossover.row));
            name = "";
        }
    }
    match unpriced {
        Some(why) => line(&mut text, format!("prices: not measured: {why}")),
        None => line(&mut text, "prices, in seconds".to_owned()),
    }
    for (name, price) in profile.prices.values().flat_map(|prices| prices.named()) {
        line(&mut text, format!("{name:<15} {price:>10.2e}"));
    }
    text
}

fn line(text: &mut String, line: String) {
    writeln!(text, "{}", line.trim_end()).expect("strings take everything");
}
