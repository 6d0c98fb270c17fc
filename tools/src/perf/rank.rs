//! What one rank does from joining to the verdict. All ranks do it in step; rank 0 also reports.

use super::arguments::{Options, Root};
use super::benchmark::Action;
use super::collect;
use super::comm::Comm;
use super::environment::Environment;
use super::failure::Failure;
use super::machine;
use super::names::Operator;
use super::plan::{Ends, Plan, Series};
use super::row::{Bench, Totals};
use super::sizes::{sweep, warm_up};
use super::table::Device;
use super::verify::hash;
use super::workbench::Workbench;

/// How a run ended, as far as it could be measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Checks, of a size and mode on a rank, that found something wrong.
    pub out_of_bounds: u64,
    /// The mean of all bus bandwidths.
    pub bandwidth: f64,
    /// Whether that is as much as was demanded, if anything was.
    pub enough: Option<bool>,
}

impl Verdict {
    /// Whether all is well.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.out_of_bounds == 0 && self.enough != Some(false)
    }
}

/// Runs a plan on one rank.
///
/// # Errors
///
/// Whatever ends the run early.
pub fn run<C: Comm>(plan: &Plan, mut ends: Ends<'_, C>) -> Result<Verdict, Failure> {
    let n = ends.comm.size();
    let agreed = agree(plan, &ends)?;
    let Plan { benchmark, .. } = *plan;
    let plan = Plan {
        benchmark,
        options: Options {
            max_bytes: agreed.max_bytes,
            min_bytes: plan.options.min_bytes.min(agreed.max_bytes),
            ..plan.options.clone()
        },
        environment: Environment { min_bandwidth: agreed.min_bandwidth, ..plan.environment.clone() },
    };
    let devices = devices(&ends)?;
    let series = series(&plan, n);
    let skipped = benchmark.power_of_two && !n.is_power_of_two();
    if let Some(reporter) = &mut ends.reporter {
        let sizes = sweep(plan.options.min_bytes, plan.options.max_bytes, plan.options.step).count() as u64;
        let rows = plan.options.cycles.map(|cycles| cycles.saturating_mul(sizes * series.len() as u64));
        reporter.begin(&plan.options, &devices, agreed.asked_max, rows)?;
        if skipped {
            reporter.note(&format!("nRanks {n} is not a power of 2, skipping"))?;
        }
    }
    let mut totals = Totals::default();
    if !skipped {
        let mut bench = Bench::new(&plan, ends.comm, &devices)?;
        for one in series {
            measure_series(&plan, &mut ends, &mut bench, one, &mut totals)?;
        }
    }
    let bandwidth = totals.bandwidth();
    let verdict =
        Verdict { out_of_bounds: totals.out_of_bounds, bandwidth, enough: plan.environment.enough(bandwidth) };
    if let Some(reporter) = &mut ends.reporter {
        reporter.conclude(verdict.out_of_bounds, verdict.bandwidth, verdict.enough)?;
    }
    Ok(verdict)
}

fn measure_series<C: Comm>(
    plan: &Plan,
    ends: &mut Ends<'_, C>,
    bench: &mut Bench<'_>,
    series: Series,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let options = &plan.options;
    ends.within_limit(|| ends.comm.barrier())?;
    ends.within_limit(|| bench.begin(series, ends.comm))?;
    if options.warm_ups > 0 {
        for bytes in warm_up(options.min_bytes, options.max_bytes) {
            bench.warm_up(ends, series, bytes)?;
        }
    }
    let mut cycle = 0;
    while options.cycles.is_none_or(|cycles| cycle < cycles) {
        for bytes in sweep(options.min_bytes, options.max_bytes, options.step) {
            if let Some(reporter) = &ends.reporter {
                reporter.doing(format!("{} {bytes} B", series.type_name.name));
            }
            let row = bench.row(ends, series, bytes, totals)?;
            if let Some(reporter) = &mut ends.reporter {
                reporter.row(&row, options)?;
                if plan.environment.summary && plan.benchmark.action == Action::AllToAllV {
                    let (traffic, count) = (&plan.environment.traffic, row.count as usize);
                    let microseconds = row.out_of_place.microseconds;
                    let lines = traffic.summary(ends.comm.size(), count, series.type_name.bytes, microseconds);
                    lines.iter().try_for_each(|line| reporter.note(line))?;
                }
            }
        }
        cycle += 1;
    }
    Ok(())
}

/// Every combination of type, operator and root that is asked for, in nccl-tests' order.
fn series(plan: &Plan, n: usize) -> Vec<Series> {
    let Plan { benchmark, options, .. } = plan;
    let operators: Vec<Option<Operator>> =
        if benchmark.reduces { options.operators.iter().copied().map(Some).collect() } else { vec![None] };
    let roots: Vec<Option<usize>> = match (benchmark.rooted, options.root) {
        (false, _) => vec![None],
        (true, Root::One(root)) => vec![Some(root)],
        (true, Root::All) => (0..n).map(Some).collect(),
    };
    let mut all = Vec::new();
    for &type_name in &options.types {
        for &operator in &operators {
            all.extend(roots.iter().map(|&root| Series { type_name, operator, root }));
        }
    }
    all
}

struct Agreed {
    asked_max: u64,
    max_bytes: u64,
    min_bandwidth: Option<f64>,
}

/// Checks that all ranks were started alike, and takes from them what has to be equal: the largest size that every
/// rank's share of memory allows, and rank 0's demand of bandwidth.
fn agree<C: Comm>(plan: &Plan, ends: &Ends<'_, C>) -> Result<Agreed, Failure> {
    let Plan { benchmark, options, environment } = plan;
    let (comm, n) = (ends.comm, ends.comm.size());
    let traffic = hash::of_bytes(format!("{} {:?}", benchmark.name, environment.traffic).as_bytes());
    let share = machine::available_memory().unwrap_or(u64::MAX) / 10 * 9 / comm.local_size().max(1) as u64;
    let demand = environment.min_bandwidth.unwrap_or(-1.0);
    let own = [hash::of(options.fingerprint(), traffic, 0), share, demand.to_bits()];
    let all = ends.within_limit(|| collect::words(comm, &own))?;
    if let Some(other) = all.iter().position(|words| words[0] != all[0][0]) {
        return Err(Failure::Usage(format!(
            "rank {other} on {} was started with another test, other options or other traffic than rank 0 on {}; \
             start all ranks with the same command line",
            comm.host(other),
            comm.host(0)
        )));
    }
    if let (true, Root::One(root)) = (benchmark.rooted, options.root)
        && root >= n
    {
        return Err(Failure::Usage(format!("-r (--root): there is no rank {root} among {n} ranks")));
    }
    environment.traffic.check(n, options.min_bytes, options.max_bytes)?;
    let widest = options.types.iter().map(|row| row.bytes).max().unwrap_or(8);
    let overhead = Workbench::footprint(0, options.unalign * widest) as u64;
    let share = all.iter().map(|words| words[1]).min().expect("at least one rank");
    let most = (share.saturating_sub(overhead) / 2).max(1);
    let demand = f64::from_bits(all[0][2]);
    Ok(Agreed {
        asked_max: options.max_bytes,
        max_bytes: options.max_bytes.min(most),
        min_bandwidth: (demand >= 0.0).then_some(demand),
    })
}

fn devices<C: Comm>(ends: &Ends<'_, C>) -> Result<Vec<Device>, Failure> {
    const LINK: usize = 16;
    const INFO: usize = 80;
    let comm = ends.comm;
    let (rank, n) = (comm.rank(), comm.size());
    let gathered = |own: &str, len| ends.within_limit(|| collect::texts(comm, own, len));
    let links = gathered(comm.link((rank + 1) % n), LINK)?;
    let (place, info) = comm.device().unwrap_or_else(|| (comm.local_rank(), machine::processor()));
    let infos = gathered(&info, INFO)?;
    let places = gathered(&place.to_string(), LINK)?;
    Ok((0..n)
        .map(|rank| Device {
            rank,
            pid: comm.pid(rank),
            host: comm.host(rank),
            device: places[rank].parse().unwrap_or(0),
            link: links[rank].clone(),
            info: infos[rank].clone(),
        })
        .collect())
}
