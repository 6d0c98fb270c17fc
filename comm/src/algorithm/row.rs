//! What the table says of an algorithm, and the programs that follow from it.

use crate::collective::Collective;
use crate::schedule::check::{CheckError, Mode, Proof, prove};
use crate::schedule::cost::{Costs, Load, Work};
use crate::schedule::{Groups, Program, Rank, Step, input, output};

/// One algorithm for one collective.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The algorithm's name, the same for every collective it serves.
    pub name: &'static str,
    /// The collective.
    pub collective: Collective,
    /// Writes one rank's rounds. Called with at least two ranks.
    pub write: fn(&mut Program),
    /// What it costs, for at least two ranks.
    pub work: fn(u32) -> Work,
    /// Into how many chunks the message is cut, for these ranks. One per rank where blocks belong to ranks.
    pub chunks: fn(&Groups) -> u32,
    /// Whether the row can be used for `n` ranks.
    pub fits: fn(u32) -> bool,
    /// Whether ranks' blocks may differ in length. Vectors are cut as evenly as their length allows by every row.
    pub uneven: bool,
    /// Whether input and output may be the same memory.
    pub in_place: bool,
    /// Whether some rank moves several ranks' blocks as one. Such blocks must lie one behind the other, and a message of
    /// them isn't cut into slices.
    pub moves_runs: bool,
    /// Whether its programs depend on which ranks are near each other.
    pub in_levels: bool,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it is described.
    pub source: &'static str,
}

impl Row {
    /// A row that fits any number of ranks, works in place, and has one chunk per rank.
    #[must_use]
    pub const fn new(
        collective: Collective,
        name: &'static str,
        write: fn(&mut Program),
        work: fn(u32) -> Work,
    ) -> Row {
        fn one_per_rank(groups: &Groups) -> u32 {
            groups.size()
        }
        const fn any(n: u32) -> bool {
            n > 0
        }
        let (chunks, fits) = (one_per_rank as fn(&Groups) -> u32, any as fn(u32) -> bool);
        let (uneven, in_place, moves_runs, in_levels) = (true, true, false, false);
        Row {
            name,
            collective,
            write,
            work,
            chunks,
            fits,
            uneven,
            in_place,
            moves_runs,
            in_levels,
            summary: "",
            source: "",
        }
    }

    /// The same row with another number of chunks.
    #[must_use]
    pub const fn chunks(self, chunks: fn(&Groups) -> u32) -> Row {
        Row { chunks, ..self }
    }

    /// The same row for some numbers of ranks only.
    #[must_use]
    pub const fn fits(self, fits: fn(u32) -> bool) -> Row {
        Row { fits, ..self }
    }

    /// The same row for blocks of one length only.
    #[must_use]
    pub const fn even_only(self) -> Row {
        Row { uneven: false, ..self }
    }

    /// The same row for calls out of place only.
    #[must_use]
    pub const fn out_of_place_only(self) -> Row {
        Row { in_place: false, ..self }
    }

    /// The same row, moving several blocks as one.
    #[must_use]
    pub const fn in_runs(self) -> Row {
        Row { moves_runs: true, ..self }
    }

    /// The same row, working in levels.
    #[must_use]
    pub const fn in_levels(self) -> Row {
        Row { in_levels: true, ..self }
    }

    /// The same row with its summary and its source.
    #[must_use]
    pub const fn about(self, summary: &'static str, source: &'static str) -> Row {
        Row { summary, source, ..self }
    }

    /// Rank `me`'s program among `size` ranks, with [`Groups::assumed`] where the row works in levels.
    ///
    /// `root` is ignored by collectives that have none.
    ///
    /// # Panics
    ///
    /// When `me` or `root` is not below `size`, or the row does not fit `size`.
    #[must_use]
    pub fn program(&self, me: Rank, size: u32, root: Rank) -> Program {
        self.program_in(&Groups::assumed(size), me, root)
    }

    /// The same, with these groups of ranks that are near each other.
    ///
    /// # Panics
    ///
    /// As [`Row::program`].
    #[must_use]
    pub fn program_in(&self, groups: &Groups, me: Rank, root: Rank) -> Program {
        let size = groups.size();
        assert!((self.fits)(size), "{} {} does not fit {size} ranks", self.collective, self.name);
        let root = if self.collective.has_root() { root } else { 0 };
        self.write_into(Program::new(me, size, root, (self.chunks)(groups)).with_groups(groups.clone()))
    }

    /// Whether its programs may be [placed](Program::placed): not if it moves runs of blocks, nor if it folds in rank order.
    #[must_use]
    pub fn may_be_placed(&self) -> bool {
        !self.moves_runs && self.name != "direct"
    }

    /// All ranks' programs.
    ///
    /// # Panics
    ///
    /// As [`Row::program`].
    #[must_use]
    pub fn programs(&self, size: u32, root: Rank) -> Vec<Program> {
        (0..size).map(|me| self.program(me, size, root)).collect()
    }

    /// Proves the row for `n` ranks and a root, in every mode that it declares.
    ///
    /// # Errors
    ///
    /// As [`prove`]; with the mode in which it failed.
    ///
    /// # Panics
    ///
    /// As [`Row::program`].
    pub fn prove(&self, n: u32, root: Rank) -> Result<Proof, (Mode, CheckError)> {
        self.prove_in(&Groups::assumed(n), root)
    }

    /// The same, for groups of ranks that are near each other.
    ///
    /// # Errors
    ///
    /// As [`Row::prove`].
    ///
    /// # Panics
    ///
    /// As [`Row::program`].
    pub fn prove_in(&self, groups: &Groups, root: Rank) -> Result<Proof, (Mode, CheckError)> {
        let programs: Vec<Program> = (0..groups.size()).map(|me| self.program_in(groups, me, root)).collect();
        let prove_in = |in_place| {
            let mode = Mode { in_place, uneven: self.uneven };
            prove(self.collective, &programs, mode).map_err(|error| (mode, error))
        };
        let proof = prove_in(false)?;
        if self.in_place { prove_in(true) } else { Ok(proof) }
    }

    /// What the row costs for `n` ranks.
    ///
    /// # Panics
    ///
    /// When the row does not fit `n`.
    #[must_use]
    pub fn work(&self, n: u32) -> Work {
        assert!((self.fits)(n), "{} {} does not fit {n} ranks", self.collective, self.name);
        match n {
            1 if self.collective == Collective::Barrier => Work::default(),
            1 => {
                let load = Load::default().copying(1.0);
                Work { latencies: 0.0, path: load, busiest: load }
            }
            _ => (self.work)(n),
        }
    }

    /// What the row costs for ranks of which these are near each other: the same, if its programs don't depend on that; otherwise
    /// what the busiest rank of the first and the largest group does in its rounds.
    ///
    /// # Panics
    ///
    /// As [`Row::work`].
    #[must_use]
    pub fn work_in(&self, groups: &Groups) -> Work {
        let n = groups.size();
        if !self.in_levels || *groups == Groups::assumed(n) {
            return self.work(n);
        }
        let whole = f64::from((self.chunks)(groups));
        let most = |of: fn(&Load) -> f64, loads: &[Load]| loads.iter().map(of).fold(0.0, f64::max);
        let (mut loads, mut rounds) = (Vec::new(), 0);
        for me in groups.examples() {
            let program = self.program_in(groups, me, 0);
            rounds = rounds.max(program.n_rounds());
            loads.push(program.load(whole));
        }
        let busiest = Load {
            messages: most(|load| load.messages, &loads),
            sent: most(|load| load.sent, &loads),
            folded: most(|load| load.folded, &loads),
            copied: most(|load| load.copied, &loads),
        };
        Work::steady(rounds as f64, busiest)
    }

    /// How long the row takes for `n` ranks, in seconds, without writing any program.
    ///
    /// `bytes` is the length of the whole message: the vector, or all ranks' blocks together.
    ///
    /// # Panics
    ///
    /// As [`Row::work`].
    #[must_use]
    pub fn price(&self, n: u32, bytes: u64, costs: &Costs) -> f64 {
        self.work(n).seconds(bytes, costs)
    }

    fn write_into(&self, mut program: Program) -> Program {
        if program.size > 1 {
            (self.write)(&mut program);
        } else if self.collective != Collective::Barrier {
            let all = program.chunks;
            program.round([Step::Copy { source: input(0).run(all), target: output(0).run(all) }]);
        }
        program.written()
    }
}
