//! The pipeline that follows from a run's options: which layers each stage has, and when it computes them; or why that can't be.
//!
//! It is the same on all ranks and needs none of them, so that whoever starts ranks can ask before there are any.

use super::options::{PipelineOptions, ScheduleOptions};
use crate::error::{Error, Result};
use crate::pipeline::partition::{Layer, Partition};
use crate::pipeline::{Schedule, Shape, check, schedule_row};

impl PipelineOptions {
    /// The schedule for so many ranks along `pp`, and the layers of each of its stages in a model of so many layers.
    ///
    /// # Errors
    /// There is no such row, it doesn't fit, or layers can't be divided so. A table is for other ranks or micro-batches, or is
    /// no schedule: then the error names the rank, the position, the action and what is wrong with it.
    pub fn plan(&self, ranks: u32, layers: usize) -> Result<(Schedule, Partition)> {
        let schedule = self.schedule_for(ranks, self.micro_batches)?;
        let partition = match &self.partition {
            Some(partition) => partition.clone(),
            None => Partition::even(layers as u32, schedule.n_stages())?,
        };
        check_partition(&partition, &schedule, layers)?;
        Ok((schedule, partition))
    }

    pub(super) fn schedule_for(&self, ranks: u32, micro_batches: u32) -> Result<Schedule> {
        match &self.schedule {
            ScheduleOptions::Row(name) => {
                let row = schedule_row(name);
                let row = row.ok_or_else(|| Error::invalid(format!("there is no pipeline schedule {name}")))?;
                let shape = Shape { n_chunks: self.chunks, ..Shape::new(ranks, micro_batches) };
                Ok(row.schedule(shape)?)
            }
            ScheduleOptions::Table(table) => {
                self.fits(table, ranks, micro_batches)?;
                check(table)?;
                Ok(table.clone())
            }
        }
    }

    /// Whether a table is for what the options and the ranks say elsewhere.
    fn fits(&self, table: &Schedule, ranks: u32, micro_batches: u32) -> Result<()> {
        let (for_ranks, has) = (table.n_ranks(), table.n_micro_batches);
        if for_ranks != ranks {
            return Err(Error::invalid(format!(
                "the schedule's table is for {for_ranks} ranks, and there are {ranks} along pp"
            )));
        }
        if has != micro_batches {
            return Err(Error::invalid(format!(
                "the schedule's table has {has} micro-batches, and each step is to have {micro_batches}"
            )));
        }
        if self.chunks != 1 {
            return Err(Error::invalid("the schedule's table says which stages each rank has: chunks must be 1"));
        }
        Ok(())
    }
}

fn check_partition(partition: &Partition, schedule: &Schedule, layers: usize) -> Result<()> {
    let (has, needs) = (partition.n_stages(), schedule.n_stages());
    if has != needs {
        return Err(Error::invalid(format!("the partition {partition} has {has} stages, and the schedule {needs}")));
    }
    let inner = (0..layers as u32).map(Layer::Transformer);
    let wanted: Vec<Layer> = [Layer::Embedding].into_iter().chain(inner).chain([Layer::Loss]).collect();
    let (first, last) = (partition.stage_of(Layer::Embedding), partition.stage_of(Layer::Loss));
    if partition.stages.concat() != wanted || first != Some(0) || last != Some(needs - 1) {
        return Err(Error::invalid(format!(
            "the partition {partition} must have {layers} layers in their order and nothing else, the embedding first and \
             the loss last"
        )));
    }
    Ok(())
}
