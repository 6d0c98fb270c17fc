//! How to start a job on several hosts, as commands to copy.

use std::ffi::OsString;
use std::fmt::Write;

use super::hosts::Hosts;

/// The commands, for every usual way to start processes on hosts.
#[must_use]
pub fn text(hosts: &Hosts, command: &[OsString], port: u16) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let command = words.join(" ");
    let (n, first) = (hosts.ranks(), &hosts.0[0].name);
    let with_ranks =
        hosts.0.iter().map(|host| format!("{}:{}", bracketed(&host.name), host.ranks)).collect::<Vec<_>>().join(",");
    let mut text = format!("# {n} ranks: {}.\n", shares(hosts));
    let mut line = |line: String| writeln!(text, "{line}").expect("strings take everything");
    line(
        "# Nothing has been started. Any one of these starts the job; the command must exist on every host. Set".into(),
    );
    line("# PACELINE_TOKEN to a secret on all ranks if strangers can reach the hosts' ports.".into());
    line("\n# Open MPI".into());
    line(format!("mpirun -n {n} --host {with_ranks} --map-by slot {command}"));
    line("\n# MPICH or Intel MPI".into());
    line(format!("mpiexec -n {n} -hosts {with_ranks} {command}"));
    line("\n# Slurm".into());
    match hosts.even() {
        Some(each) => line(format!(
            "srun --nodes={} --ntasks={n} --ntasks-per-node={each} --nodelist={} --distribution=block {command}",
            hosts.0.len(),
            hosts.names(","),
        )),
        None => {
            let names = hosts.0.iter().flat_map(|host| std::iter::repeat_n(host.name.as_str(), host.ranks));
            line(format!("printf '%s\\n' {} > hostfile", names.collect::<Vec<_>>().join(" ")));
            line(format!("SLURM_HOSTFILE=hostfile srun --ntasks={n} --distribution=arbitrary {command}"));
        }
    }
    line("\n# torchrun, one command on each host".into());
    match hosts.even() {
        Some(each) => hosts.0.iter().enumerate().for_each(|(place, host)| {
            line(format!(
                "torchrun --nnodes={} --nproc-per-node={each} --node-rank={place} --master-addr={first} \
                 --master-port={port} --no-python {command}  # on {}",
                hosts.0.len(),
                host.name,
            ));
        }),
        None => line("# (torchrun starts equally many ranks on every host)".into()),
    }
    line("\n# ssh alone".into());
    let mut rank = 0;
    for host in &hosts.0 {
        for local in 0..host.ranks {
            let remote = format!(
                "cd {} && exec env PACELINE_RANK={rank} PACELINE_SIZE={n} PACELINE_LOCAL_RANK={local} \
                 PACELINE_LOCAL_SIZE={} PACELINE_RENDEZVOUS=tcp://{}:{port} {command}",
                quoted(&folder()),
                host.ranks,
                bracketed(first),
            );
            line(format!("ssh {} {} &", host.name, quoted(&remote)));
            rank += 1;
        }
    }
    line("wait".into());
    text
}

fn shares(hosts: &Hosts) -> String {
    hosts.0.iter().map(|host| format!("{} on {}", host.ranks, host.name)).collect::<Vec<_>>().join(", ")
}

fn folder() -> String {
    std::env::current_dir().map_or_else(|_| ".".to_string(), |path| path.to_string_lossy().into_owned())
}

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_string() }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(hosts: &str, command: &[&str]) -> String {
        text(&hosts.parse().unwrap(), &command.iter().map(OsString::from).collect::<Vec<_>>(), 29400)
    }

    #[test]
    fn every_launcher_gets_its_command() {
        let text = of("a:2,b:2", &["./all_reduce_perf", "-b", "8"]);
        for want in [
            "mpirun -n 4 --host a:2,b:2 --map-by slot ./all_reduce_perf -b 8\n",
            "mpiexec -n 4 -hosts a:2,b:2 ./all_reduce_perf -b 8\n",
            "srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=a,b --distribution=block ./all_reduce_perf -b 8\n",
            "torchrun --nnodes=2 --nproc-per-node=2 --node-rank=1 --master-addr=a --master-port=29400 --no-python ",
            "PACELINE_RANK=3 PACELINE_SIZE=4 PACELINE_LOCAL_RANK=1 PACELINE_LOCAL_SIZE=2 PACELINE_RENDEZVOUS=tcp://a:29400 ",
        ] {
            assert!(text.contains(want), "{want}\n{text}");
        }
        assert_eq!(text.matches("ssh a ").count(), 2);
        let text = of("a:2,fd00::2", &["x"]);
        assert!(text.contains("printf '%s\\n' a a fd00::2 > hostfile"), "{text}");
        assert!(text.contains("equally many"), "{text}");
        assert!(of("fd00::2:9,a", &["x"]).contains("tcp://[fd00::2:9]:29400"));
    }

    #[test]
    fn words_survive_two_shells() {
        for words in [vec!["echo", "it's", "a \"b\" $HOME", "", "*"], vec!["printf", "%s|", "a b", "c\\d"]] {
            let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            let twice = format!("sh -c {}", quoted(&line));
            let run = |program: &mut std::process::Command| program.output().unwrap().stdout;
            let want = run(std::process::Command::new(words[0]).args(&words[1..]));
            let got = run(std::process::Command::new("sh").arg("-c").arg(&twice));
            assert_eq!(got, want, "{twice}");
        }
    }
}
