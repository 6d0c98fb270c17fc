//! One row of the table on one rank: time both modes, check both, and make the ranks' numbers one.

use super::benchmark::Benchmark;
use super::collect;
use super::comm::{Comm, CommError};
use super::environment::Environment;
use super::failure::Failure;
use super::findings::Findings;
use super::layout::Ask;
use super::machine;
use super::measure;
use super::operation::Operation;
use super::plan::{Ends, Plan, Series};
use super::statistics::{Spread, average};
use super::table::{Device, Half, Iterations, Row};
use super::verify::{Data, hash};
use super::workbench::{Mode, Workbench};

use super::arguments::Options;
use paceline_comm::ReduceOp;

/// What the rows add up to.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Totals {
    /// Checks, of a size and mode on a rank, that found something wrong.
    pub out_of_bounds: u64,
    bus_bandwidths: f64,
    halves: u64,
}

impl Totals {
    /// The mean of all bus bandwidths; zero if there was no row.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        if self.halves == 0 { 0.0 } else { self.bus_bandwidths / self.halves as f64 }
    }
}

/// One rank's workplace for a whole run.
#[derive(Debug)]
pub struct Bench<'a> {
    benchmark: Benchmark,
    options: &'a Options,
    environment: &'a Environment,
    devices: &'a [Device],
    workbench: Workbench,
    data: Data,
    checked: u64,
    complaints_left: u32,
}

const FILL_SEED: u64 = 99;
const COMPLAINTS: u32 = 8;

impl<'a> Bench<'a> {
    /// Takes the memory that the largest size needs.
    ///
    /// # Errors
    ///
    /// The library has no registered memory, where that is asked for.
    pub fn new<C: Comm>(plan: &'a Plan, comm: &C, devices: &'a [Device]) -> Result<Bench<'a>, Failure> {
        let options = &plan.options;
        let widest = options.types.iter().map(|row| row.bytes).max().unwrap_or(8);
        let capacity = usize::try_from(options.max_bytes).expect("sizes fit into memory").max(comm.size() * widest);
        let unalign = options.unalign * widest;
        let workbench = if options.registered || comm.has_device() {
            let made = Workbench::over(capacity, unalign, |bytes| comm.alloc(bytes));
            made.map_err(|error| Failure::Start(error.to_string()))?
        } else {
            Workbench::new(capacity, unalign)
        };
        Ok(Bench {
            benchmark: plan.benchmark,
            options,
            environment: &plan.environment,
            devices,
            workbench,
            data: Data::new(options.types[0].data_type, None, comm.size(), FILL_SEED),
            checked: 0,
            complaints_left: COMPLAINTS,
        })
    }

    /// Fills the buffers for a series.
    ///
    /// # Errors
    ///
    /// Whatever the library reports.
    pub fn begin<C: Comm>(&mut self, series: Series, comm: &C) -> Result<(), CommError> {
        self.data = Data::new(series.type_name.data_type, series.operator, comm.size(), FILL_SEED);
        self.workbench.begin(self.options.unalign * series.type_name.bytes, &self.data, comm.rank());
        self.workbench.upload(comm)
    }

    /// Runs one size without a clock.
    ///
    /// # Errors
    ///
    /// Whatever ends the run early.
    pub fn warm_up<C: Comm>(&mut self, ends: &Ends<'_, C>, series: Series, bytes: u64) -> Result<(), Failure> {
        let operation = self.operation(ends.comm, series, bytes);
        let mut each = 0..self.options.warm_ups;
        ends.within_limit(|| {
            each.try_for_each(|i| self.workbench.run(ends.comm, &operation, Mode::OutOfPlace, i..i + 1))?;
            ends.comm.finish()
        })
    }

    /// Measures and checks one size, out of place and in place.
    ///
    /// # Errors
    ///
    /// Whatever ends the run early.
    pub fn row<C: Comm>(
        &mut self,
        ends: &Ends<'_, C>,
        series: Series,
        bytes: u64,
        totals: &mut Totals,
    ) -> Result<Row, Failure> {
        let operation = self.operation(ends.comm, series, bytes);
        let out_of_place = self.half(ends, series, &operation, Mode::OutOfPlace, totals)?;
        let in_place = self.half(ends, series, &operation, Mode::InPlace, totals)?;
        Ok(Row {
            size: (operation.layout.size * operation.element) as u64,
            count: operation.layout.count as u64,
            type_name: series.type_name.name,
            operator: series.operator.map_or("none", |operator| operator.name()),
            root: series.root,
            out_of_place,
            in_place,
            timestamp: self.options.timestamps.then(machine::now),
        })
    }

    fn half<C: Comm>(
        &mut self,
        ends: &Ends<'_, C>,
        series: Series,
        operation: &Operation,
        mode: Mode,
        totals: &mut Totals,
    ) -> Result<Half, Failure> {
        let Bench { options, benchmark, devices, .. } = *self;
        let comm = ends.comm;
        let size = (operation.layout.size * operation.element) as u64;
        if options.checks > 0 {
            self.workbench.prepare(operation, &self.data, comm.rank(), mode);
            self.workbench.arm_all();
            ends.within_limit(|| self.workbench.upload(comm))?;
        }
        let timing = ends.within_limit(|| {
            measure::time(comm, options, |numbers| self.workbench.run(comm, operation, mode, numbers))
        })?;
        let outside = if options.checks > 0 {
            ends.within_limit(|| self.workbench.download(comm))?;
            self.workbench.check_all()
        } else {
            Findings::default()
        };
        let gathered = |own: &[f64]| ends.within_limit(|| collect::floats(comm, own));
        let times = gathered(&[timing.wall, timing.cpu])?;
        let of = |column: usize| average(options.average, times.iter().map(|rank| rank[column]));
        let iterations = match options.per_iteration {
            Some(_) => Some(iterations(&gathered(&timing.iterations)?, devices, options.skip)),
            None => None,
        };
        let bandwidth = benchmark.bandwidth(size, comm.size(), of(0));
        totals.bus_bandwidths += bandwidth.bus;
        totals.halves += 1;
        let wrong = self.check(ends, series, operation, mode, outside, totals)?;
        let microseconds = 1e6 * of(usize::from(options.cpu_time));
        Ok(Half { microseconds, algorithm: bandwidth.algorithm, bus: bandwidth.bus, wrong, iterations })
    }

    /// The wrong elements on all ranks; none where nothing was checked. `outside` is what was found already.
    fn check<C: Comm>(
        &mut self,
        ends: &Ends<'_, C>,
        series: Series,
        operation: &Operation,
        mode: Mode,
        outside: Findings,
        totals: &mut Totals,
    ) -> Result<Option<u64>, Failure> {
        let comm = ends.comm;
        if self.options.checks == 0 {
            return Ok(None);
        }
        let mut findings = outside;
        let mut wrong = 0;
        for _ in 0..self.options.checks {
            self.checked += 1;
            let seed = hash::of(FILL_SEED, self.checked, 1);
            let data = Data::new(series.type_name.data_type, series.operator, comm.size(), seed);
            self.workbench.prepare(operation, &data, comm.rank(), mode);
            ends.within_limit(|| {
                self.workbench.upload(comm)?;
                self.workbench.run(comm, operation, mode, 0..1)?;
                self.workbench.download(comm)
            })?;
            findings.join(self.workbench.check(operation, &data, comm.rank(), mode));
            let ranks = ends.within_limit(|| collect::words(comm, &[findings.wrong]))?;
            totals.out_of_bounds += ranks.iter().filter(|words| words[0] > 0).count() as u64;
            wrong = ranks.iter().map(|words| words[0]).sum();
            self.complain(comm, series, operation, mode, &findings);
            if wrong > 0 {
                break;
            }
        }
        Ok(Some(wrong))
    }

    /// Says on standard error what is wrong, for the first few findings.
    fn complain<C: Comm>(&mut self, comm: &C, series: Series, operation: &Operation, mode: Mode, findings: &Findings) {
        let Some(first) = &findings.first else { return };
        if self.complaints_left == 0 {
            return;
        }
        self.complaints_left -= 1;
        let (rank, size) = (comm.rank(), operation.layout.size * operation.element);
        eprintln!(
            "{}: rank {rank} on {}: {} {} {size} B {}: {} wrong; {first}",
            self.benchmark.name,
            comm.host(rank),
            series.type_name.name,
            series.operator.map_or("none", |operator| operator.name()),
            if mode == Mode::InPlace { "in place" } else { "out of place" },
            findings.wrong,
        );
    }

    fn operation<C: Comm>(&self, comm: &C, series: Series, bytes: u64) -> Operation {
        let (rank, root, element) = (comm.rank(), series.root.unwrap_or(0), series.type_name.bytes);
        let ask = Ask { rank, n: comm.size(), root, bytes, element, traffic: &self.environment.traffic };
        Operation {
            action: self.benchmark.action,
            rank,
            n: comm.size(),
            data_type: series.type_name.data_type,
            element,
            op: series.operator.map_or(ReduceOp::Sum, |_| self.data.reduce_op(rank)),
            root,
            layout: (self.benchmark.layout)(&ask),
        }
    }
}

/// The ranks' times of single iterations, in seconds, as the table and the report show them.
fn iterations(ranks: &[Vec<f64>], devices: &[Device], skipped: usize) -> Iterations {
    let mut processes: Vec<((&str, u32), Vec<f64>)> = Vec::new();
    for (times, device) in ranks.iter().zip(devices) {
        let process = (device.host.as_str(), device.pid);
        match processes.iter_mut().find(|(known, _)| *known == process) {
            Some((_, longest)) => longest.iter_mut().zip(times).for_each(|(l, time)| *l = l.max(1e6 * time)),
            None => processes.push((process, times.iter().map(|time| 1e6 * time).collect())),
        }
    }
    let by_process: Vec<Vec<f64>> = processes.into_iter().map(|(_, times)| times).collect();
    let longest = |i: usize| by_process.iter().map(|times| times[i]).fold(0.0, f64::max);
    let times: Vec<f64> = (0..ranks[0].len()).map(longest).collect();
    Iterations { spread: Spread::of(&times[skipped..]), skipped, times, by_process }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_take_the_longest_of_each_process() {
        let device = |rank: usize, pid| Device {
            rank,
            pid,
            host: "h".to_string(),
            device: rank,
            link: String::new(),
            info: String::new(),
        };
        let devices = [device(0, 7), device(1, 7), device(2, 8)];
        let ranks = [vec![1e-6, 5e-6], vec![2e-6, 4e-6], vec![3e-6, 1e-6]];
        let got = iterations(&ranks, &devices, 1);
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9) && a.len() == b.len();
        assert!(close(&got.times, &[3.0, 5.0]), "{got:?}");
        assert!(close(&got.by_process[0], &[2.0, 5.0]) && close(&got.by_process[1], &[3.0, 1.0]), "{got:?}");
        assert!((got.spread.min - 5.0).abs() < 1e-9, "the first is skipped: {got:?}");
    }
}
