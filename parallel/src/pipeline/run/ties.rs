//! Parameters that several ranks of a pipeline have: a tied embedding on the first and the last stage, or all of a stage where
//! the model runs in both directions.
//!
//! One rank owns each. A copy's gradients go to the owner as those of one more use, so that they are in the sum before the
//! owner's state sends it anywhere; the owner's new values come back. So a state has each parameter once: norms, optimizers and
//! checkpoints need not know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use candle_core::Tensor;
use paceline_comm::Collective;

use crate::agreement::gather;
use crate::error::{Doing, Error, Result};
use crate::group::{Elements, Group, Started};
use crate::parameter::{Keeper, Parameter, Usage};
use crate::pipeline::Schedule;
use crate::state::Numbers;

/// The parameters that this rank shares with others along `pp`.
pub struct Ties {
    group: Group,
    /// Parameters of this rank, and who has copies.
    owned: Vec<(Parameter, Vec<usize>)>,
    /// Copies of other ranks' parameters, whose they are, and their gradients.
    copies: Vec<(Parameter, usize, Arc<Sum>)>,
}

/// The sum of a copy's gradients.
struct Sum(Mutex<Numbers>);

impl Keeper for Sum {
    fn gradient(&self, _: &Parameter, gradient: Tensor) -> Result<()> {
        self.0.lock().expect("no panic while held").add(0, &gradient)
    }
}

impl Ties {
    /// Finds out which parameters are where, and takes the copies among this rank's. `stages` are the parameters of each stage
    /// here. The parameters that are left are this rank's state's.
    ///
    /// The owner is the rank that takes the first micro-batch through the lowest stage that has the parameter.
    ///
    /// # Errors
    /// Ranks have parameters of one name and different shapes, or the ranks don't come together.
    pub fn agree(
        group: &Group,
        schedule: &Schedule,
        stages: &BTreeMap<u32, Vec<Parameter>>,
    ) -> Result<(Ties, Vec<Parameter>)> {
        let mine: Vec<Said> = stages
            .iter()
            .flat_map(|(stage, parameters)| parameters.iter().map(|parameter| Said::of(*stage, parameter)))
            .collect();
        let said = all_say(group, &mine)?;
        let owner = |name: &str| {
            let stage = said.iter().flatten().filter(|said| said.name == name).map(|said| said.stage).min();
            schedule.rank_of(stage.expect("somebody has it"), 0) as usize
        };
        let (mut owned, mut copies, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for parameter in stages.values().flatten().filter(|parameter| seen.insert(parameter.name().to_owned())) {
            let has = |rank: &usize| said[*rank].iter().find(|said| said.name == parameter.name());
            let holders: Vec<usize> = (0..group.size()).filter(|rank| has(rank).is_some()).collect();
            for rank in &holders {
                let theirs = &has(rank).expect("it has one").shape;
                if theirs != parameter.part().shape() {
                    let (name, shape) = (parameter.name(), parameter.part().shape());
                    return Err(Error::Differs(format!(
                        "{name} is {shape:?} here and {theirs:?} on rank {rank} along pp"
                    )));
                }
            }
            let owner = owner(parameter.name());
            if owner == group.rank() {
                let others = holders.into_iter().filter(|rank| *rank != owner).collect::<Vec<_>>();
                kept.push(parameter.clone());
                if !others.is_empty() {
                    owned.push((parameter.clone(), others));
                }
            } else {
                let sum = Arc::new(Sum(Mutex::new(Numbers::zeros(parameter.dtype(), parameter.part().len()))));
                parameter.keep_by(&sum);
                copies.push((parameter.clone(), owner, sum));
            }
        }
        owned.sort_by(|(one, _), (two, _)| one.name().cmp(two.name()));
        copies.sort_by(|(one, ..), (two, ..)| one.name().cmp(two.name()));
        Ok((Ties { group: group.clone(), owned, copies }, kept))
    }

    /// The names of parameters that this rank has copies of.
    pub fn copies(&self) -> impl Iterator<Item = &str> {
        self.copies.iter().map(|(parameter, ..)| parameter.name())
    }

    /// Before a run: each owned parameter owes the gradients of its copies.
    pub(super) fn open(&self) -> Vec<Arc<Usage>> {
        self.owned.iter().flat_map(|(parameter, others)| others.iter().map(|_| Arc::new(parameter.used()))).collect()
    }

    /// After a run: gradients of copies go to their owners.
    pub(super) fn gather(&self, owed: Vec<Arc<Usage>>) -> Result<()> {
        let mut sending = Vec::new();
        for (parameter, owner, sum) in &self.copies {
            let mut sum = sum.0.lock().expect("no panic while held");
            sending.push(self.send(parameter, *owner, sum.clone().into_elements())?);
            sum.clear();
        }
        let from =
            self.owned.iter().flat_map(|(parameter, others)| others.iter().map(move |other| (parameter, *other)));
        let waits: Vec<_> = from.zip(owed).collect();
        let mut coming = Vec::new();
        for ((parameter, other), _) in &waits {
            coming.push(self.receive(
                parameter,
                *other,
                Numbers::zeros(parameter.dtype(), parameter.part().len()).into_elements(),
            )?);
        }
        for (((parameter, _), usage), started) in waits.into_iter().zip(coming) {
            let name = parameter.name().to_owned();
            let sum = started.wait(|| format!("receiving the gradient of {name}"))?;
            let gradient = sum.into_tensor(parameter.part().shape())?;
            usage.gradient(move |_| Ok(gradient))?;
        }
        finish(sending)
    }

    /// Gives the copies their owners' values. All ranks call it when the owners' values are new: once a state has them, after
    /// a step, and after a checkpoint was loaded.
    ///
    /// # Errors
    /// A rank is lost.
    pub fn publish(&self) -> Result<()> {
        let mut sending = Vec::new();
        for (parameter, others) in &self.owned {
            let value = parameter.value()?;
            for other in others {
                sending.push(self.send(parameter, *other, Elements::of(&value)?)?);
            }
        }
        for (parameter, owner, _) in &self.copies {
            let buffer = Elements::zeros(parameter.dtype(), parameter.part().len())?;
            let value = self.receive(parameter, *owner, buffer)?.wait(|| format!("receiving {}", parameter.name()))?;
            parameter.set(&value.into_tensor(parameter.part().shape())?)?;
        }
        finish(sending)
    }

    fn send(&self, parameter: &Parameter, to: usize, elements: Elements) -> Result<Started> {
        self.group.count(Collective::Send, elements.bytes());
        elements
            .start_send(self.group.comm(), to)
            .doing(|| format!("sending {} to rank {to} along pp", parameter.name()))
    }

    fn receive(&self, parameter: &Parameter, from: usize, buffer: Elements) -> Result<Started> {
        let started = buffer.start_recv(self.group.comm(), from);
        started.doing(|| format!("receiving {} from rank {from} along pp", parameter.name()))
    }
}

fn finish(sending: Vec<Started>) -> Result<()> {
    sending.into_iter().try_for_each(|started| started.wait(|| "sending a shared parameter".to_owned()).map(drop))
}

/// What a rank has.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Said {
    stage: u32,
    name: String,
    shape: Vec<usize>,
}

impl Said {
    fn of(stage: u32, parameter: &Parameter) -> Said {
        Said { stage, name: parameter.name().to_owned(), shape: parameter.part().shape().to_vec() }
    }
}

/// What every rank of a group says.
fn all_say(group: &Group, mine: &[Said]) -> Result<Vec<Vec<Said>>> {
    let wrong = |error: serde_json::Error| Error::invalid(format!("telling which parameters are where: {error}"));
    let mine = serde_json::to_vec(mine).map_err(wrong)?;
    let all = gather(group.comm(), &mine, "which parameters are where along pp")?;
    all.iter().map(|said| serde_json::from_slice(said).map_err(wrong)).collect()
}
