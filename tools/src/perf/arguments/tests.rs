//! Every flag, short and long, and every way to get one wrong.

use super::*;
use crate::perf::names::{OPERATORS, TYPES};

fn parse(line: &str) -> Result<Options, Failure> {
    let words = std::iter::once("all_reduce_perf").chain(line.split_whitespace());
    match Options::parse(words)? {
        Asked::Run(options) => Ok(*options),
        Asked::Help(_) => panic!("{line}: asked for help"),
    }
}

#[test]
fn defaults_are_nccl_tests_defaults() {
    let options = parse("").unwrap();
    assert_eq!((options.threads, options.ranks_per_thread, options.ranks()), (1, 1, 1));
    assert_eq!((options.min_bytes, options.max_bytes, options.step), (32 << 20, 32 << 20, Step::Bytes(1 << 20)));
    assert_eq!((options.iterations, options.aggregated, options.warm_ups, options.cycles), (20, 1, 1, Some(1)));
    assert_eq!((options.checks, options.root, options.blocking), (1, Root::One(0), Blocking::No));
    assert_eq!((options.average, options.unalign, options.skip), (Average::Mean, 0, 0));
    assert_eq!(options.operators, [Operator::Sum]);
    assert_eq!(options.types.iter().map(|row| row.name).collect::<Vec<_>>(), ["float"]);
    assert_eq!((options.timeout, options.output, options.per_iteration), (None, None, None));
    assert!(!options.cpu_time && !options.timestamps && !options.parallel_init && !options.registered);
}

#[test]
fn every_flag_in_both_forms() {
    type Check = fn(&Options) -> bool;
    let rows: [(&str, &str, &str, Check); 26] = [
        ("-t", "--nthreads", "3", |o| o.threads == 3 && o.ranks() == 3),
        ("-g", "--ngpus", "4", |o| o.ranks_per_thread == 4),
        ("-b", "--minbytes", "8", |o| o.min_bytes == 8),
        ("-e", "--maxbytes", "1G", |o| o.max_bytes == 1 << 30),
        ("-i", "--stepbytes", "2K", |o| o.step == Step::Bytes(2048)),
        ("-f", "--stepfactor", "2", |o| o.step == Step::Factor(2)),
        ("-n", "--iters", "7", |o| o.iterations == 7),
        ("-m", "--agg_iters", "5", |o| o.aggregated == 5),
        ("-w", "--warmup_iters", "0", |o| o.warm_ups == 0),
        ("-N", "--run_cycles", "0", |o| o.cycles.is_none()),
        ("-N", "--run_cycles", "3", |o| o.cycles == Some(3)),
        ("-p", "--parallel_init", "1", |o| o.parallel_init),
        ("-c", "--check", "0", |o| o.checks == 0),
        ("-o", "--op", "mulsum", |o| o.operators == [Operator::MulSum]),
        ("-o", "--op", "all", |o| o.operators.len() == OPERATORS.len()),
        ("-d", "--datatype", "bfloat16", |o| o.types[0].bytes == 2),
        ("-d", "--datatype", "all", |o| o.types == TYPES),
        ("-r", "--root", "-1", |o| o.root == Root::All),
        ("-r", "--root", "2", |o| o.root == Root::One(2)),
        ("-z", "--blocking", "3", |o| o.blocking == Blocking::BarrierOutside),
        ("-T", "--timeout", "9", |o| o.timeout == Some(Duration::from_secs(9))),
        ("-C", "--report_cputime", "1", |o| o.cpu_time),
        ("-S", "--report_timestamps", "1", |o| o.timestamps),
        ("-J", "--output_file", "x/y.json", |o| o.output == Some(PathBuf::from("x/y.json"))),
        ("-a", "--average", "3", |o| o.average == Average::Max),
        ("-u", "--unalign", "1", |o| o.unalign == 1),
    ];
    for (short, long, value, check) in rows {
        for line in [
            format!("{short} {value}"),
            format!("{short}{value}"),
            format!("{long} {value}"),
            format!("{long}={value}"),
        ] {
            assert!(check(&parse(&line).unwrap()), "{line}");
        }
    }
    for off in ["-G 0", "-y 0", "-D 0", "-M 0", "-R 0", "--cudagraph 0", "-I 0", "-K 0", "-f 0"] {
        assert_eq!(parse(off).unwrap(), parse("").unwrap(), "{off}");
    }
    assert!(parse("-R 1").unwrap().registered && !parse("-R 1").unwrap().windows);
    assert!(parse("-x 2").unwrap().copy_engines && !parse("-x 0").unwrap().copy_engines);
    assert!(parse("-R 2").unwrap().registered && parse("-R 2").unwrap().windows);
    assert_eq!(parse("-I 1 -K 2").unwrap().per_iteration, Some(PerIteration::Spread));
    assert_eq!(parse("--percentiles 1").unwrap().per_iteration, Some(PerIteration::Percentiles));
    assert_eq!(parse("-n 3 -n 4").unwrap().iterations, 4, "the last one counts");
    assert_eq!(parse("--min 8 --max 16").unwrap().min_bytes, 8, "long flags may be shortened");
}

#[test]
fn bad_lines_name_the_flag_and_have_nccl_tests_codes() {
    let rows = [
        ("-q", 6, "-q"),
        ("--bogus 1", 6, "--bogus"),
        ("stray", 6, "stray"),
        ("-n", 6, "--iters"),
        ("-t 0", 6, "--nthreads"),
        ("-g -1", 6, "--ngpus"),
        ("-g many", 6, "--ngpus"),
        ("-t 100 -g 100", 6, "10000 ranks"),
        ("-n 0", 6, "--iters"),
        ("-n 1.5", 6, "--iters"),
        ("-m 0", 6, "--agg_iters"),
        ("-w -1", 6, "--warmup_iters"),
        ("-N -1", 6, "--run_cycles"),
        ("-p 2", 6, "--parallel_init"),
        ("-c -1", 6, "--check"),
        ("-o xor", 6, "mulsum or all"),
        ("-d float128", 6, "f8e5m2 or all"),
        ("-r -2", 6, "--root"),
        ("-z 4", 6, "--blocking"),
        ("-T -1", 6, "--timeout"),
        ("-C 2", 6, "--report_cputime"),
        ("-S yes", 6, "--report_timestamps"),
        ("-J out.csv", 6, ".json"),
        ("-J out", 6, ".json"),
        ("-a 4", 6, "--average"),
        ("-R 3", 6, "--local_register"),
        ("-u -1", 6, "--unalign"),
        ("-I 2", 6, "--per_iter_timing"),
        ("-K 1", 6, "-I 1"),
        ("-I 1 -K 20", 6, "none of 20"),
        ("-f -2", 6, "--stepfactor"),
        ("--percentiles 2", 6, "--percentiles"),
        ("-b 8X", 255, "--minbytes"),
        ("-b 0", 255, "--minbytes"),
        ("-e -1", 255, "--maxbytes"),
        ("-i 1Q", 255, "--stepbytes"),
        ("-i 0", 255, "--stepbytes"),
        ("-b 64M", 255, "67108864 > 33554432"),
        ("-G 1 --device cpu", 6, "only calls over memory of GPUs"),
        ("--device tpu", 6, "none of cpu, cuda, auto"),
        ("-x 1", 5, "--cta_policy"),
        ("-x 3", 6, "--cta_policy"),
        ("-D 1", 5, "--device_implementation"),
        ("-V 16", 5, "--device_cta_count"),
        ("-M 1", 5, "--memory"),
        ("-y 1", 5, "--stream_null"),
    ];
    for (line, code, text) in rows {
        let failure = parse(line).expect_err(line);
        assert_eq!(failure.exit_code(), code, "{line}: {failure}");
        assert!(failure.to_string().contains(text), "{line}: {failure}");
    }
}

#[test]
fn help_is_no_failure() {
    for line in ["-h", "--help"] {
        let Asked::Help(text) = Options::parse(["all_reduce_perf", line]).unwrap() else { panic!("{line}") };
        for flag in ["--minbytes", "--datatype", "--per_iter_skip", "--percentiles"] {
            assert!(text.contains(flag), "{line} does not show {flag}");
        }
    }
}

#[test]
fn fingerprints_differ_where_ranks_would_get_out_of_step() {
    let base = parse("-b 8 -e 64").unwrap();
    assert_eq!(base.fingerprint(), parse("-b 8 -e 64 -J x.json -t 2").unwrap().fingerprint());
    for other in ["-b 8 -e 128", "-b 8 -e 64 -n 3", "-b 8 -e 64 -d half", "-b 8 -e 64 -c 0", "-b 8 -e 64 -z 1"] {
        assert_ne!(base.fingerprint(), parse(other).unwrap().fingerprint(), "{other}");
    }
}
