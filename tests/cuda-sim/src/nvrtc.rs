//! NVRTC for tests: the layer's compiler, with a library that needs no GPU.

use std::path::{Path, PathBuf};
use std::process::Command;

use paceline_transport::cuda::Compiler;

/// The library that `PACELINE_TEST_NVRTC` names (a file, or the folder of a wheel), else the one that Python has, else the
/// system's. Where there is none, why.
///
/// # Errors
///
/// There is none, in words.
///
/// # Panics
///
/// When the variable names something else.
pub fn find() -> Result<Compiler, String> {
    if let Some(place) = std::env::var_os("PACELINE_TEST_NVRTC").filter(|place| !place.is_empty()) {
        let found = Compiler::find(Some(Path::new(&place)));
        return Ok(found.unwrap_or_else(|error| panic!("PACELINE_TEST_NVRTC: {error}")));
    }
    let ask = "import nvidia.cuda_nvrtc; print(list(nvidia.cuda_nvrtc.__path__)[0])";
    let said = Command::new("python3").args(["-c", ask]).output().ok().filter(|output| output.status.success());
    let place = said.and_then(|output| String::from_utf8(output.stdout).ok()).map(|text| PathBuf::from(text.trim()));
    Compiler::find(place.as_deref()).map_err(|error| error.to_string())
}
