//! From flags to options: every value checked, with the flag named in the complaint.

use std::time::Duration;

use super::super::failure::Failure;
use super::super::names::{self, OPERATORS, TYPES};
use super::flags::Flags;
use super::{Average, Blocking, Options, PerIteration, Place, Root, Step, values};

const RANKS_MAX: u64 = 4096;

/// The options that the flags ask for.
///
/// # Errors
///
/// The first flag whose value is out of range.
pub fn options(flags: Flags) -> Result<Options, Failure> {
    needs_gpu(&flags)?;
    let (min_bytes, max_bytes) = (size("-b", &flags.min_bytes)?, size("-e", &flags.max_bytes)?);
    if min_bytes == 0 {
        return Err(Failure::Sizes("-b (--minbytes): the smallest size is 1 byte".to_string()));
    }
    if min_bytes > max_bytes {
        return Err(Failure::Sizes(format!(
            "invalid sizes for 'minbytes' and 'maxbytes': {min_bytes} > {max_bytes}; -e must be at least -b"
        )));
    }
    let options = Options {
        threads: count("-t", &flags.threads, 1, RANKS_MAX)?,
        ranks_per_thread: count("-g", &flags.ranks_per_thread, 1, RANKS_MAX)?,
        min_bytes,
        max_bytes,
        step: step(&flags)?,
        iterations: count("-n", &flags.iterations, 1, u32::MAX.into())?,
        aggregated: count("-m", &flags.aggregated, 1, u32::MAX.into())?,
        warm_ups: count("-w", &flags.warm_ups, 0, u32::MAX.into())?,
        cycles: Some(number("-N", &flags.cycles, 0, u64::MAX)?).filter(|cycles| *cycles > 0),
        parallel_init: switch("-p", &flags.parallel_init)?,
        checks: count("-c", &flags.checks, 0, u32::MAX.into())?,
        operators: operators(&flags.operator)?,
        types: types(&flags.data_type)?,
        root: root(&flags.root)?,
        blocking: [Blocking::No, Blocking::BarrierEach, Blocking::Wait, Blocking::BarrierOutside]
            [count("-z", &flags.blocking, 0, 3)?],
        timeout: Some(number("-T", &flags.timeout, 0, u32::MAX.into())?)
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        cpu_time: switch("-C", &flags.cpu_time)?,
        timestamps: switch("-S", &flags.timestamps)?,
        output: None,
        average: [Average::First, Average::Mean, Average::Min, Average::Max][count("-a", &flags.average, 0, 3)?],
        unalign: count("-u", &flags.unalign, 0, 1 << 20)?,
        per_iteration: per_iteration(&flags)?,
        skip: count("-K", &flags.skip, 0, u32::MAX.into())?,
        registered: number("-R", &flags.register, 0, 2)? > 0,
        windows: number("-R", &flags.register, 0, 2)? == 2,
        copy_engines: policy(&flags)? == 2,
        place: place(&flags)?,
        graph_launches: count("-G", &flags.cuda_graph, 0, u32::MAX.into())?,
    };
    if options.ranks() > RANKS_MAX as usize {
        return Err(usage("-t", &format!("{} ranks in one process; at most {RANKS_MAX}", options.ranks())));
    }
    if options.skip > 0 && options.per_iteration.is_none() {
        return Err(usage("-K", "leaves out iterations that are not timed: add -I 1"));
    }
    if options.skip >= options.iterations {
        return Err(usage("-K", &format!("leaves none of {} iterations (-n)", options.iterations)));
    }
    Ok(Options { output: output(flags.output)?, ..options })
}

fn needs_gpu(flags: &Flags) -> Result<(), Failure> {
    let zero_is_off = [("-y", &flags.stream_null), ("-D", &flags.device_implementation), ("-M", &flags.memory)];
    for (flag, text) in zero_is_off {
        if number(flag, text, 0, u32::MAX.into())? > 0 {
            return Err(gpu_only(flag));
        }
    }
    match (policy(flags)?, &flags.device_cta_count) {
        (1, _) => {
            Err(Failure::NotInThisBuild("-x 1 (--cta_policy) is not there: 0 is the default, 2 copy engines".into()))
        }
        (_, Some(_)) => Err(gpu_only("-V")),
        _ => Ok(()),
    }
}

fn policy(flags: &Flags) -> Result<u64, Failure> {
    flags.cta_policy.as_ref().map_or(Ok(0), |text| number("-x", text, 0, 2))
}

fn place(flags: &Flags) -> Result<Place, Failure> {
    let place = match flags.device.as_str() {
        "cpu" => Place::Cpu,
        "cuda" => Place::Cuda,
        "auto" => Place::Auto,
        other => return Err(usage("--device", &format!("'{other}' is none of cpu, cuda, auto"))),
    };
    match place {
        Place::Cpu if number("-G", &flags.cuda_graph, 0, u32::MAX.into())? > 0 => {
            Err(usage("-G", "only calls over memory of GPUs can be captured: leave out --device cpu"))
        }
        Place::Cuda if !cfg!(feature = "cuda") => Err(gpu_only("--device cuda")),
        place => Ok(place),
    }
}

fn gpu_only(flag: &str) -> Failure {
    Failure::NotInThisBuild(format!("{flag} ({}) needs a GPU build; this one runs on host memory", long(flag)))
}

fn step(flags: &Flags) -> Result<Step, Failure> {
    match number("-f", &flags.step_factor, 0, u32::MAX.into())? {
        0 | 1 => match size("-i", &flags.step_bytes)? {
            0 => Err(Failure::Sizes("-i (--stepbytes): a step of 0 bytes never ends".to_string())),
            bytes => Ok(Step::Bytes(bytes)),
        },
        factor => Ok(Step::Factor(factor)),
    }
}

fn operators(text: &str) -> Result<Vec<names::Operator>, Failure> {
    if text == "all" {
        return Ok(OPERATORS.map(|(_, operator)| operator).to_vec());
    }
    let known = || OPERATORS.map(|row| row.0).join(", ");
    let unknown = || usage("-o", &format!("no operator is called '{text}': write {} or all", known()));
    names::operator_named(text).map(|operator| vec![operator]).ok_or_else(unknown)
}

fn types(text: &str) -> Result<Vec<names::TypeName>, Failure> {
    if text == "all" {
        return Ok(TYPES.to_vec());
    }
    let known = || TYPES.map(|row| row.name).join(", ");
    let unknown = || usage("-d", &format!("no type is called '{text}': write {} or all", known()));
    names::type_named(text).map(|row| vec![row]).ok_or_else(unknown)
}

fn root(text: &str) -> Result<Root, Failure> {
    match text {
        "-1" | "all" => Ok(Root::All),
        _ => Ok(Root::One(count("-r", text, 0, u32::MAX.into())?)),
    }
}

fn per_iteration(flags: &Flags) -> Result<Option<PerIteration>, Failure> {
    let spread = switch("-I", &flags.per_iteration)?;
    let percentiles = switch("--percentiles", &flags.percentiles)?;
    Ok(match (percentiles, spread) {
        (true, _) => Some(PerIteration::Percentiles),
        (false, true) => Some(PerIteration::Spread),
        (false, false) => None,
    })
}

fn output(path: Option<std::path::PathBuf>) -> Result<Option<std::path::PathBuf>, Failure> {
    match path {
        Some(path) if path.extension().is_none_or(|suffix| suffix != "json") => {
            Err(usage("-J", &format!("'{}' does not end in .json, the only kind of report there is", path.display())))
        }
        path => Ok(path),
    }
}

fn size(flag: &str, text: &str) -> Result<u64, Failure> {
    values::size(text).map_err(|why| Failure::Sizes(format!("{flag} ({}): {why}", long(flag))))
}

fn switch(flag: &str, text: &str) -> Result<bool, Failure> {
    Ok(number(flag, text, 0, 1)? == 1)
}

fn count(flag: &str, text: &str, least: u64, most: u64) -> Result<usize, Failure> {
    Ok(usize::try_from(number(flag, text, least, most)?).expect("bounded above"))
}

fn number(flag: &str, text: &str, least: u64, most: u64) -> Result<u64, Failure> {
    values::whole(text, least, most).map_err(|why| usage(flag, &why))
}

fn usage(flag: &str, why: &str) -> Failure {
    if flag.starts_with("--") {
        return Failure::Usage(format!("{flag}: {why}"));
    }
    Failure::Usage(format!("{flag} ({}): {why}", long(flag)))
}

/// The long form of a short flag, for messages.
fn long(flag: &str) -> String {
    let short = flag.chars().nth(1);
    let command = <Flags as clap::CommandFactory>::command();
    let name = command.get_arguments().find(|argument| argument.get_short() == short).and_then(|a| a.get_long());
    format!("--{}", name.expect("every short flag has a long form"))
}
