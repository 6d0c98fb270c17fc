//! Kernels, compiled and loaded when they are first used.
//!
//! The ranks of a process that have the same device share what is loaded. Loading may wait for all that the device does; so a
//! rank that loads a kernel that the others have launched already, and wait for it in, might wait for ever.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use paceline_transport::Environment;
use paceline_transport::cuda::{Compiler, CompilerError, Device, Function};

use super::refused;
use crate::device::{Architecture, Cache, Kernel, source};
use crate::error::{Error, ErrorKind, Result};

/// Architectures that an older compiler may know where it doesn't know the device's, the newest first: PTX for one of them
/// runs on every later device.
const OLDER: [Architecture; 6] = [
    Architecture::new(9, 0),
    Architecture::new(8, 9),
    Architecture::new(8, 6),
    Architecture::new(8, 0),
    Architecture::new(7, 5),
    Architecture::new(7, 0),
];

/// The kernels of one device.
pub(super) struct Kernels(Arc<Shared>);

struct Shared {
    device: Device,
    cache: Cache,
    loaded: Mutex<HashMap<String, Arc<Place>>>,
}

/// Where a kernel is when it is loaded. Each has a lock of its own: who loads one may wait for a rank that needs another.
type Place = Mutex<Option<Function>>;

/// What is shared, by the number of the device.
static SHARED: Mutex<BTreeMap<usize, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// The compiler of this process, or why there is none.
fn compiler(environment: &Environment) -> Result<&'static Compiler> {
    static COMPILER: OnceLock<Result<Compiler, CompilerError>> = OnceLock::new();
    let named = environment.text("PACELINE_NVRTC").map_err(|error| Error::invalid(error.to_string()))?;
    let found = COMPILER.get_or_init(|| Compiler::find(named.map(Path::new)));
    found.as_ref().map_err(|error| Error::new(ErrorKind::System, error.to_string()))
}

impl Kernels {
    pub(super) fn of(device: &Device) -> Result<Kernels> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.get(&device.ordinal()).and_then(Weak::upgrade) {
            return Ok(Kernels(known));
        }
        let cache = Cache::from_env(&Environment::from_process())?;
        let kernels = Arc::new(Shared { device: device.clone(), cache, loaded: Mutex::default() });
        shared.insert(device.ordinal(), Arc::downgrade(&kernels));
        Ok(Kernels(kernels))
    }

    /// A kernel, ready to be launched. The first time takes up to some seconds.
    pub(super) fn get(&self, kernel: Kernel) -> Result<Function> {
        let name = kernel.name();
        let place = {
            let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            loaded.entry(name.clone()).or_default().clone()
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = &*place {
            return Ok(function.clone());
        }
        let image = self.0.image(kernel)?;
        let function = self.0.device.load(&image).and_then(|module| module.function(&name)).map_err(refused)?;
        Ok(place.insert(function).clone())
    }
}

impl Shared {
    fn image(&self, kernel: Kernel) -> Result<Vec<u8>> {
        let compiler = compiler(&Environment::from_process())?;
        let (major, minor) = self.device.architecture();
        let own = Architecture::new(major, minor);
        let mut refusal = None;
        for architecture in [own].into_iter().chain(OLDER.into_iter().filter(|older| *older < own)) {
            let source = source(kernel, architecture);
            let key = source.key(&compiler.name());
            if let Some(image) = self.cache.get(&key) {
                return Ok(image);
            }
            match compiler.compile(source.text, &source.name, &source.options) {
                Ok(compiled) => {
                    // PTX where it isn't the device's own architecture: binary code of another may not run.
                    let image = if architecture == own { compiled.cubin } else { compiled.ptx };
                    self.cache.put(&key, &image);
                    return Ok(image);
                }
                Err(error @ CompilerError::InvalidOption { .. }) => refusal = refusal.or(Some(error)),
                Err(error) => return Err(Error::new(ErrorKind::System, error.to_string())),
            }
        }
        let error = refusal.expect("the device's own architecture was tried");
        Err(Error::new(ErrorKind::System, error.to_string()).hint("install a newer NVRTC"))
    }
}
