//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use paceline_parallel::pipeline::SCHEDULES;

/// In which type the model is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Precision {
    /// 64 bits: layouts agree to 1e-9
    F64,
    /// 32 bits
    F32,
    /// 16 bits with f32's range; values and moments in f32
    Bf16,
    /// 16 bits with a scaled loss; values and moments in f32
    F16,
}

/// What is computed again in the backward pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Recompute {
    /// Nothing
    Nothing,
    /// Attention between the projections
    Attention,
    /// Whole layers: only their inputs are kept
    Blocks,
}

/// Trains a small GPT on a text, in any layout.
///
/// Starts its ranks itself, as processes of this host. Under `paceline launch`, mpirun, srun or torchrun it is one of theirs
/// instead. Losses are the same in every layout.
#[derive(Parser, Clone, Debug)]
#[command(name = "train_gpt", max_term_width = 110)]
pub struct Options {
    /// How many ranks; must be --dp times --fsdp times --tp times --pp, which is the default
    #[arg(long, value_name = "N", help_heading = "Layout")]
    pub ranks: Option<usize>,
    /// Data parallel: ranks with other samples and all of the training state
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Layout")]
    pub dp: usize,
    /// Sharded data parallel: ranks with other samples and a part of the state each; with --dp, each group of --fsdp ranks has
    /// all of it (HSDP)
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Layout")]
    pub fsdp: usize,
    /// Tensor parallel: ranks with a part of each matrix
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Layout")]
    pub tp: usize,
    /// Pipeline parallel: ranks with some of the layers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Layout")]
    pub pp: usize,
    /// What is cut among the --fsdp ranks: 1 master values and moments, 2 gradients as well, 3 values as well (the default).
    /// It needs --fsdp: the ranks along --dp have all of it in any case
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(1..=3), help_heading = "Layout")]
    pub zero: Option<u8>,
    /// Sequence parallel: the ranks along --tp have a part of each sequence between layers
    #[arg(long, help_heading = "Layout")]
    pub sequence_parallel: bool,
    /// In which order stages of a pipeline take micro-batches
    #[arg(long, value_name = "NAME", default_value = "one_f_one_b", help_heading = "Layout",
          value_parser = PossibleValuesParser::new(SCHEDULES.iter().map(|row| row.name)))]
    pub schedule: String,
    /// A schedule of one's own, instead of --schedule: a line of actions such as 2F0 for each rank along --pp
    #[arg(long, value_name = "FILE", conflicts_with_all = ["schedule", "chunks"], help_heading = "Layout")]
    pub schedule_file: Option<PathBuf>,
    /// Which layers each stage has, such as Et|t*2|tL: E is the embedding, t a layer, L the loss, | ends a stage. As evenly as
    /// can be if not given
    #[arg(long, value_name = "LAYERS", help_heading = "Layout")]
    pub stages: Option<String>,
    /// Stages on each rank, for --schedule interleaved
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Layout")]
    pub chunks: u32,
    /// Micro-batches of a rank in each step; if not given, those of --schedule-file, or twice --pp in a pipeline, or 1
    #[arg(long, value_name = "N", help_heading = "Layout")]
    pub micro_batches: Option<u32>,

    /// Layers
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Model")]
    pub layers: usize,
    /// The width of activations between layers
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Model")]
    pub width: usize,
    /// Heads of attention
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Model")]
    pub heads: usize,
    /// Key and value heads; as many as --heads if not given
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub kv_heads: Option<usize>,
    /// The probability of dropout
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Model")]
    pub dropout: f64,
    /// In which type the model is computed
    #[arg(long, value_enum, default_value_t = Precision::F32, help_heading = "Model")]
    pub precision: Precision,
    /// What is computed again in the backward pass rather than kept
    #[arg(long, value_enum, default_value_t = Recompute::Nothing, help_heading = "Model")]
    pub recompute: Recompute,
    /// From which all random numbers come
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Model")]
    pub seed: u64,

    /// The text; this repository's README and documentation if not given. A token is a byte. The last tenth is for validation
    #[arg(long, value_name = "FILE", help_heading = "Training")]
    pub text: Option<PathBuf>,
    /// Samples in a step, of all ranks together
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Training")]
    pub batch: usize,
    /// Tokens in a sample
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Training")]
    pub length: usize,
    /// Steps, those before a checkpoint included
    #[arg(long, value_name = "N", default_value_t = 600, help_heading = "Training")]
    pub steps: u64,
    /// The highest learning rate; it falls to a tenth along a cosine
    #[arg(long, value_name = "RATE", default_value_t = 3e-3, help_heading = "Training")]
    pub learning_rate: f64,
    /// Steps in which the learning rate rises from 0
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Training")]
    pub warm_up: u64,
    /// How strongly matrices are drawn to zero
    #[arg(long, value_name = "X", default_value_t = 0.1, help_heading = "Training")]
    pub weight_decay: f64,
    /// How large the gradient's norm may be; 0 for any
    #[arg(long, value_name = "NORM", default_value_t = 1.0, help_heading = "Training")]
    pub clip: f64,

    /// Where checkpoints are written, which all ranks must see
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints and results")]
    pub checkpoint: Option<PathBuf>,
    /// Steps from one validation, and one checkpoint, to the next; both also come at the end
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Checkpoints and results")]
    pub every: u64,
    /// Goes on from the latest checkpoint in --checkpoint, which any layout may have written
    #[arg(long, help_heading = "Checkpoints and results")]
    pub resume: bool,
    /// Draws the losses
    #[arg(long, value_name = "FILE", help_heading = "Checkpoints and results")]
    pub svg: Option<PathBuf>,
    /// Writes a line for each step; with --resume it goes on where the checkpoint was
    #[arg(long, value_name = "FILE", help_heading = "Checkpoints and results")]
    pub csv: Option<PathBuf>,
    /// Another run's --csv, to be drawn into --svg as well; may be given several times
    #[arg(long, value_name = "FILE", requires = "svg", help_heading = "Checkpoints and results")]
    pub compare: Vec<PathBuf>,
    /// Operations per second that a rank could do at best, for MFU; measured by products of matrices if not given
    #[arg(long, value_name = "FLOPS", help_heading = "Checkpoints and results")]
    pub peak_flops: Option<f64>,
    /// Shows nothing while it trains
    #[arg(long, help_heading = "Checkpoints and results")]
    pub quiet: bool,
}
