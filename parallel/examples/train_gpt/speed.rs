//! How many operations a model needs, and how many there could be.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use paceline_comm::ReduceOp;
use paceline_parallel::mesh::Mesh;
use paceline_parallel::nn::GptConfig;

use crate::Failure;

/// How often, and how long, products are timed; the best counts.
const TIMES: usize = 5;
const MEASURED: Duration = Duration::from_millis(60);
/// The size of matrices that are multiplied to find out.
const SIZE: usize = 384;

/// Floating-point operations per token of training: 6 for each parameter that is multiplied (all but the embedding, which is
/// looked up), and 12 times width and length for attention in each layer, as the PaLM paper counts (Chowdhery et al., 2022,
/// appendix B). What is computed again isn't counted.
pub fn operations_per_token(model: &GptConfig, parameters: usize, length: usize) -> f64 {
    let multiplied = parameters - model.vocabulary * model.width;
    6.0 * multiplied as f64 + 12.0 * (model.layers * model.width * length) as f64
}

/// The operations per second that all ranks could do.
pub struct Peak {
    /// Of all ranks together.
    pub flops: f64,
    /// Where the number comes from.
    pub source: String,
}

impl Peak {
    /// What is given for each rank, or what all ranks reach at the same time with products of matrices.
    pub fn find(given: Option<f64>, dtype: DType, mesh: &Mesh) -> Result<Peak, Failure> {
        let ranks = mesh.world().size();
        if let Some(flops) = given {
            return Ok(Peak { flops: flops * ranks as f64, source: "given".to_owned() });
        }
        let matrix = Tensor::ones((SIZE, SIZE), dtype, &Device::Cpu)?;
        mesh.world().barrier()?;
        let rates = (0..TIMES).map(|_| rate(&matrix)).collect::<Result<Vec<f64>, _>>()?;
        let mut flops = [rates.into_iter().fold(0.0, f64::max)];
        mesh.world().all_reduce_in_place(&mut flops, ReduceOp::Sum)?;
        let source = format!("measured: products of {dtype:?} matrices of {SIZE} x {SIZE}, all ranks at once");
        Ok(Peak { flops: flops[0], source })
    }
}

/// The operations per second of a matrix's products with itself.
fn rate(matrix: &Tensor) -> candle_core::Result<f64> {
    let begun = Instant::now();
    let mut operations = 0.0;
    while operations == 0.0 || begun.elapsed() < MEASURED {
        matrix.matmul(matrix)?;
        operations += 2.0 * (SIZE as f64).powi(3);
    }
    Ok(operations / begun.elapsed().as_secs_f64())
}
