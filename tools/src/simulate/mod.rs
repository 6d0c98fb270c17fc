//! `paceline simulate`: how long a call would take on a cluster that is described.

mod arguments;
mod engine;
mod machine;
mod plot;
mod table;

use std::io::Write;
use std::path::Path;

use paceline_comm::topology::{Cluster, Estimate, Fabric, Trouble};
use serde::Serialize;

pub use arguments::Arguments;
pub use engine::Played;

/// One size, and what each row would take.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    /// The whole message: the vector, or all ranks' blocks together.
    pub bytes: u64,
    /// Rows, the quickest first.
    pub rows: Vec<Estimate>,
}

/// All that was asked and answered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answers {
    /// The collective.
    pub collective: &'static str,
    /// The cluster, or the part of it that makes the call.
    pub cluster: Cluster,
    /// What is wrong with it.
    pub trouble: Trouble,
    /// How many groups call at the same time.
    pub groups: u32,
    /// One for each size.
    pub answers: Vec<Answer>,
    /// The same calls by the engine on a simulated network, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub played: Vec<Played>,
}

/// Answers, in the form that is asked for, on standard output and in files.
///
/// # Errors
///
/// What is wrong with the description, or with a file.
pub fn main(arguments: &Arguments) -> Result<(), String> {
    let answers = answer(arguments)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&answers).map_err(|error| error.to_string())? + "\n"
    } else {
        table::text(&answers)
    };
    // Who reads only the beginning is content.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match &arguments.plot {
        Some(file) => plot::draw(&answers, file),
        None => Ok(()),
    }
}

/// What each row would take, for each size.
///
/// # Errors
///
/// What is wrong with the description.
pub fn answer(arguments: &Arguments) -> Result<Answers, String> {
    let whole = cluster(arguments)?;
    whole.check()?;
    let groups = arguments.stride.unwrap_or(1);
    let cluster = if groups > 1 { whole.strided(groups)? } else { whole };
    let trouble = Trouble {
        slow_adapter: arguments.slow_adapter,
        dead_adapters: arguments.dead_adapters,
        slow_near: arguments.slow_near,
        straggler_s: arguments.straggler_us * 1e-6,
    };
    let of_bytes = |bytes: u64| {
        let mut rows = cluster.estimate(arguments.collective, bytes, &trouble)?;
        if let Some(wanted) = &arguments.row {
            let names: Vec<&str> = rows.iter().map(|estimate| estimate.row).collect();
            let unknown = format!("{} has no row {wanted}; there are: {}", arguments.collective, names.join(", "));
            rows.retain(|estimate| estimate.row == wanted);
            if rows.is_empty() {
                return Err(unknown);
            }
        }
        Ok(Answer { bytes, rows })
    };
    let sizes = arguments.sizes();
    let played = |bytes: &u64| {
        let question = engine::Question {
            collective: arguments.collective,
            bytes: *bytes,
            row: arguments.row.clone(),
            dead_rank: arguments.dead_rank,
            seed: arguments.seed,
        };
        engine::play(&cluster, &trouble, &question)
    };
    let played = if arguments.engine { sizes.iter().map(played).collect::<Result<_, String>>()? } else { Vec::new() };
    // The engine meets dead adapters; a price can't be given where nobody gets through.
    let answers = sizes.into_iter().map(of_bytes).collect::<Result<Vec<_>, String>>();
    let answers = if arguments.engine { answers.unwrap_or_default() } else { answers? };
    Ok(Answers { collective: arguments.collective.name(), cluster, trouble, groups, answers, played })
}

/// The cluster of a file or a name, with what else is said of it.
fn cluster(arguments: &Arguments) -> Result<Cluster, String> {
    let named = Cluster::named(&arguments.cluster);
    let mut cluster = match named {
        Some(cluster) => cluster,
        None => read(Path::new(&arguments.cluster))?,
    };
    cluster.hosts = arguments.hosts.unwrap_or(cluster.hosts);
    cluster.ranks_per_host = arguments.ranks_per_host.unwrap_or(cluster.ranks_per_host);
    cluster.adapters_per_host = arguments.adapters.unwrap_or(cluster.adapters_per_host);
    match (arguments.leaf, arguments.rails, arguments.oversubscription) {
        (Some(hosts_per_leaf), _, by) => {
            cluster.fabric = Fabric::FatTree { hosts_per_leaf, oversubscription: by.unwrap_or(1.0) };
        }
        (None, true, by) => cluster.fabric = Fabric::Rails { oversubscription: by.unwrap_or(1.0) },
        (None, false, Some(by)) => match &mut cluster.fabric {
            Fabric::FatTree { oversubscription, .. } | Fabric::Rails { oversubscription } => *oversubscription = by,
            Fabric::Full => return Err("--oversubscription needs --leaf or --rails, to say of what".to_owned()),
        },
        (None, false, None) => {}
    }
    Ok(cluster)
}

fn read(file: &Path) -> Result<Cluster, String> {
    let names = Cluster::NAMES.join(", ");
    if file.extension().is_some_and(|extension| extension == "xml") {
        return machine::cluster(file);
    }
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{}: {error}; clusters that have names are {names}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn asked(line: &str) -> Result<Answers, String> {
        let words = ["simulate"].into_iter().chain(line.split_whitespace());
        answer(&Line::try_parse_from(words).map_err(|error| error.to_string())?.arguments)
    }

    #[test]
    fn questions_are_answered() {
        let all = asked("all_reduce --cluster h100 --hosts 2048 --bytes 1G").unwrap();
        let best = &all.answers[0].rows[0];
        assert!(
            ["two_level", "two_level_tree"].contains(&best.row) && (0.005..0.05).contains(&best.seconds),
            "{best:?}"
        );
        let slow = asked("all_reduce --cluster h100 --hosts 2048 --bytes 1G --slow-adapter 2").unwrap();
        assert!(slow.answers[0].rows[0].seconds > 1.4 * best.seconds);
        let group = asked("all_reduce --cluster h100 --hosts 2048 --bytes 1G --stride 8").unwrap();
        assert_eq!((group.cluster.hosts, group.cluster.ranks_per_host, group.groups), (2048, 1, 8));
        let many = asked("all_reduce --cluster cpu --hosts 4 --bytes 8 --to 1M --row ring").unwrap();
        assert_eq!(many.answers.len(), 18);
        assert!(table::text(&many).lines().count() > 18);
    }

    #[test]
    fn the_engine_takes_what_is_predicted() {
        let line =
            "all_reduce --cluster h100 --hosts 4 --ranks-per-host 4 --adapters 4 --bytes 4M --row two_level --engine";
        let asked = asked(line).unwrap();
        let (played, predicted) = (&asked.played[0], &asked.answers[0].rows[0]);
        let ratio = played.seconds / predicted.seconds;
        assert!(played.errors.is_empty() && (0.5..1.5).contains(&ratio), "{ratio}: {played:?} {predicted:?}");
        assert!((played.leaves_host as f64 / (4 << 20) as f64 - 1.5).abs() < 0.01, "{played:?}");
    }

    #[test]
    fn troubles_are_met_by_the_engine() {
        let played = |more: &str| {
            let line = format!("all_reduce --cluster cpu --hosts 3 --ranks-per-host 2 --bytes 1M --engine {more}");
            asked(&line).unwrap().played.remove(0)
        };
        let well = played("");
        let slow = played("--slow-adapter 4");
        assert!(
            well.errors.is_empty() && slow.errors.is_empty() && slow.seconds > 1.5 * well.seconds,
            "{well:?} {slow:?}"
        );
        let late = played("--straggler-us 100000");
        assert!(late.errors.is_empty() && late.seconds > 0.1, "{late:?}");
        let dead = played("--dead-rank 3");
        assert!(!dead.errors.is_empty() && dead.errors.keys().all(|error| error.contains("rank 3")), "{dead:?}");
        assert_eq!(dead.errors.values().sum::<usize>(), 5, "all others are told: {dead:?}");
        let cut = played("--dead-adapters 2");
        assert!(!cut.errors.is_empty(), "a host that nobody reaches is no success: {cut:?}");
    }

    #[test]
    fn a_cluster_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.json");
        let written = Cluster { fabric: Fabric::Rails { oversubscription: 2.0 }, ..Cluster::named("a100").unwrap() };
        std::fs::write(&file, serde_json::to_string(&written).unwrap()).unwrap();
        let line = format!("all_gather --cluster {} --hosts 3 --bytes 1M", file.display());
        assert_eq!(asked(&line).unwrap().cluster, Cluster { hosts: 3, ..written });
        std::fs::write(&file, "{\"hosts\": 3, \"colour\": 1}").unwrap();
        assert!(asked(&line).unwrap_err().contains("colour"));
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        for (line, why) in [
            ("all_reduce --cluster nowhere", "names are a100"),
            ("all_reduce --row rung", "has no row rung; there are: "),
            ("send", "no rows"),
            ("all_reduce --oversubscription 2", "--leaf or --rails"),
            ("all_reduce --hosts 3 --stride 7", "every 7th"),
            ("all_reduce --hosts 0", "hosts must"),
            ("all_reduce --hosts 2 --dead-adapters 8", "nobody reaches"),
            ("all_reduce --slow-adapter 0.5", "slow-adapter"),
            ("all_reduce --hosts 512 --bytes 1K --engine", "4096 ranks are more than the 1024"),
            ("all_reduce --hosts 100 --bytes 1G --engine", "in this process, at most"),
            ("all_reduce --hosts 1 --bytes 1K --engine --dead-rank 8", "no rank 8"),
            ("all_reduce --hosts 2 --bytes 1K --engine --rails", "rails are only priced"),
        ] {
            let said = asked(line).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
