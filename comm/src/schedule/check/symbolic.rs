//! The symbolic run: what every step does to what every rank holds.

use super::barrier::Heard;
use super::fault::{CheckError, Fault, Place};
use super::memory::Memory;
use super::race::{self, Races};
use super::shape::Shape;
use super::values::{Value, Values};
use super::{Mode, Proof, goal};
use crate::collective::Collective;
use crate::schedule::run::{At, Watch};
use crate::schedule::{Program, Rank, Span, Step};

/// One check while it runs.
pub struct Check<'a> {
    collective: Collective,
    programs: &'a [Program],
    shapes: Vec<Shape>,
    memories: Vec<Memory>,
    races: Vec<Races>,
    values: Values,
    heard: Heard,
    /// The operands of the fold in hand.
    operands: Vec<Value>,
    proof: Proof,
}

impl<'a> Check<'a> {
    pub fn new(collective: Collective, programs: &'a [Program], mode: Mode) -> Check<'a> {
        let n = programs.len() as u32;
        let values = Values::new(n, programs[0].chunks);
        let shapes: Vec<Shape> = programs.iter().map(|program| Shape::new(collective, mode, program)).collect();
        let memories = shapes
            .iter()
            .zip(0..)
            .map(|(shape, me)| Memory::new(shape, |chunk| values.contribution(me, shape.block_of_input(chunk))))
            .collect();
        let races = shapes.iter().map(Races::new).collect();
        let n_rounds = programs.iter().map(Program::n_rounds).max().unwrap_or(0);
        let n_scratch = programs.iter().map(|program| program.scratch).max().unwrap_or(0);
        let proof = Proof { n_rounds, n_scratch, ..Proof::default() };
        let heard = Heard::new(if collective == Collective::Barrier { n } else { 0 });
        Check { collective, programs, shapes, memories, races, values, heard, operands: Vec::new(), proof }
    }

    /// What was seen, if it is what the collective promises.
    pub fn result(&self) -> Result<Proof, CheckError> {
        if self.collective == Collective::Barrier {
            self.heard.check(self.programs.len() as u32)?;
        } else {
            goal::check(self.collective, self.programs, &self.shapes, &self.memories, &self.values)?;
        }
        Ok(self.proof)
    }

    fn step(&self, at: At) -> Step {
        self.programs[at.rank as usize].steps_of(at.round)[at.step]
    }

    /// Writes what `value` gives for each chunk to the span of a rank.
    fn write(
        &mut self,
        rank: Rank,
        target: Span,
        mut value: impl FnMut(&mut Check<'a>, u32) -> Result<Value, Fault>,
    ) -> Result<(), Fault> {
        let me = rank as usize;
        self.memories[me].clear(&self.shapes[me], target);
        for offset in 0..target.count {
            let value = value(self, offset)?;
            self.memories[me].write(&self.shapes[me], target, offset, value);
        }
        Ok(())
    }

    fn read(&self, rank: Rank, span: Span, offset: u32) -> Result<Value, Fault> {
        self.memories[rank as usize].read(&self.shapes[rank as usize], span, offset)
    }

    /// Does what a step without a peer does.
    fn local(&mut self, rank: Rank, step: Step) -> Result<(), Fault> {
        match step {
            Step::Copy { .. } if race::is_idle(&self.shapes[rank as usize], step) => Ok(()),
            Step::Copy { source, target } => self.write(rank, target, |c, offset| c.read(rank, source, offset)),
            Step::Reduce { source, runs, target } => self.write(rank, target, |c, offset| {
                let mut operands = std::mem::take(&mut c.operands);
                operands.clear();
                for run in 0..runs {
                    let source = Span { first: source.first + run * target.count, ..source };
                    operands.push(c.read(rank, source, offset)?);
                }
                let value = c.values.fold_many(&operands);
                c.operands = operands;
                value
            }),
            Step::Send { .. } | Step::Recv { .. } | Step::RecvReduce { .. } => Ok(()),
        }
    }

    fn message(&mut self, send: At, receive: At) -> Result<(), Fault> {
        let (sender, receiver) = (send.rank, receive.rank);
        let Step::Send { source: sent, .. } = self.step(send) else { unreachable!("a send is a send") };
        let (own, target) = match self.step(receive) {
            Step::Recv { target, .. } => (None, target),
            Step::RecvReduce { source, target, .. } => (Some(source), target),
            step => unreachable!("{step} does not receive"),
        };
        self.shapes[receiver as usize].check_lengths(target, &self.shapes[sender as usize], sent)?;
        self.proof.n_messages += 1;
        self.proof.n_chunks += u64::from(sent.count);
        if self.collective == Collective::Barrier {
            self.heard.transfer(sender, receiver);
            return Ok(());
        }
        self.write(receiver, target, |c, offset| {
            let arriving = c.read(sender, sent, offset)?;
            match own {
                None => Ok(arriving),
                Some(source) => {
                    let own = c.read(receiver, source, offset)?;
                    c.values.fold_two(own, arriving)
                }
            }
        })
    }
}

impl Watch for Check<'_> {
    type Fault = CheckError;

    fn begin(&mut self, rank: Rank, round: usize) -> Result<(), CheckError> {
        let steps = self.programs[rank as usize].steps_of(round);
        let place = |index: usize| Place { round, index, step: steps[index] };
        let error = |index: usize, fault| CheckError { rank, at: Some(Box::new(place(index))), fault };
        let shape = &self.shapes[rank as usize];
        for (index, step) in steps.iter().enumerate() {
            shape.check(*step).map_err(|fault| error(index, fault))?;
        }
        if self.collective != Collective::Barrier {
            self.races[rank as usize].check(shape, steps).map_err(|(index, fault)| error(index, fault))?;
        }
        for (index, step) in steps.iter().enumerate() {
            self.local(rank, *step).map_err(|fault| error(index, fault))?;
        }
        Ok(())
    }

    fn transfer(&mut self, send: At, receive: At) -> Result<(), CheckError> {
        self.message(send, receive).map_err(|fault| {
            let place = Place { round: receive.round, index: receive.step, step: self.step(receive) };
            CheckError { rank: receive.rank, at: Some(Box::new(place)), fault }
        })
    }

    fn end(&mut self, rank: Rank, _round: usize) -> Result<(), CheckError> {
        if self.collective == Collective::Barrier {
            self.heard.end(rank);
        }
        Ok(())
    }
}
