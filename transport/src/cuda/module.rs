//! Code for the device, loaded into its context.

use std::borrow::Cow;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys as ffi;

use super::{CudaError, Device, bounded};

/// Loaded code; clones are the same. It is unloaded when the last clone and the last of its functions are dropped, which must
/// be after its last kernel has ended.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    device: Device,
    raw: ffi::CUmodule,
}

// SAFETY: the driver's functions may be called from any thread for any module.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A kernel of a module, which is held as long as this.
#[derive(Clone)]
pub struct Function {
    module: Module,
    raw: ffi::CUfunction,
    name: Arc<str>,
}

// SAFETY: as of `Loaded`, of which it is a part.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

const TOO_SHORT: &str =
    "it ends before its content does: compile it again (for kept kernels, empty the cache's folder)";

impl Device {
    /// Loads code: PTX as text, or a CUBIN. PTX is compiled by the driver, which may take seconds for the first time.
    ///
    /// # Errors
    /// If it is cut or damaged, wasn't compiled for this device, or is newer than the driver.
    pub fn load(&self, image: &[u8]) -> Result<Module, CudaError> {
        let image = loadable(image)?;
        let _current = self.outside_capture()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: text ends with a zero, and binary code has all of the parts that its head announces; the driver writes one
        // pointer, and what it gives is unloaded in `drop`.
        let code = unsafe { (self.functions().cuModuleLoadData)(&raw mut raw, image.as_ptr().cast()) };
        let (major, minor) = self.architecture();
        let detail = || format!("{} bytes for {} (sm_{major}{minor})", image.len(), self.name());
        self.check("cuModuleLoadData", code).map_err(|error| error.with(detail))?;
        Ok(Module(Arc::new(Loaded { device: self.clone(), raw })))
    }
}

impl Module {
    /// The kernel with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        let terminated = CString::new(name)
            .map_err(|_| CudaError::refused("look up a kernel", format!("there is a zero in its name {name:?}")))?;
        let device = &self.0.device;
        let _current = device.outside_capture()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the name ends with a zero; the driver writes one pointer, which is valid as long as the module is.
        let code = unsafe { (device.functions().cuModuleGetFunction)(&raw mut raw, self.0.raw, terminated.as_ptr()) };
        device.check("cuModuleGetFunction", code).map_err(|error| error.with(|| format!("{name:?}")))?;
        Ok(Function { module: self.clone(), raw, name: name.into() })
    }

    /// The device into whose context it is loaded.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

impl Function {
    pub(super) fn raw(&self) -> ffi::CUfunction {
        self.raw
    }

    /// The kernel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The module that it is of.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }
}

/// The image as the driver may read it: it isn't told where the image ends.
fn loadable(image: &[u8]) -> Result<Cow<'_, [u8]>, CudaError> {
    let refused = |reason: &str| Err(CudaError::refused("load a module", reason));
    let number = |at: usize, bytes: usize| {
        let part = image.get(at..at + bytes)?;
        Some(part.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    // The ends of what a head announces: of both tables of an ELF file, or of the head and the rest of a fat binary.
    let end = |first: Option<u64>, others: Option<u64>| first?.checked_add(others?);
    let ends = match image {
        [] => return refused("it is empty"),
        [0x7f, b'E', b'L', b'F', ..] => {
            let table = |start, size, count| end(number(start, 8), Some(number(size, 2)? * number(count, 2)?));
            [table(0x20, 0x36, 0x38), table(0x28, 0x3a, 0x3c)]
        }
        [0x50, 0xed, 0x55, 0xba, ..] => [end(number(6, 2), number(8, 8)); 2],
        _ => {
            let text = image.strip_suffix(&[0]).unwrap_or(image);
            return match text {
                [] => refused("it is empty"),
                text if text.contains(&0) => refused("it is neither PTX (there are zeros in it) nor a CUBIN"),
                text if text.len() < image.len() => Ok(Cow::Borrowed(image)),
                text => Ok(Cow::Owned([text, &[0]].concat())),
            };
        }
    };
    let is_whole = ends.into_iter().all(|end| end.is_some_and(|end| end <= image.len() as u64));
    if is_whole { Ok(Cow::Borrowed(image)) } else { refused(TOO_SHORT) }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "module {:p} on CUDA device {}", self.0.raw, self.0.device.ordinal())
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} of {:?}", self.name, self.module)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.device.is_foreign() {
            return;
        }
        let (device, raw) = (self.device.clone(), self.raw.expose_provenance());
        bounded::give_back("a module", device.ordinal(), move || {
            let _current = device.outside_capture()?;
            let raw = std::ptr::with_exposed_provenance_mut(raw);
            // SAFETY: nobody has the module or a function of it any more.
            device.check("cuModuleUnload", unsafe { (device.functions().cuModuleUnload)(raw) })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of an ELF file whose section table ends at `end`.
    fn elf(end: usize) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[..4].copy_from_slice(b"\x7fELF");
        image[0x28..0x30].copy_from_slice(&(end as u64 - 3 * 64).to_le_bytes());
        image[0x3a..0x3c].copy_from_slice(&64_u16.to_le_bytes());
        image[0x3c..0x3e].copy_from_slice(&3_u16.to_le_bytes());
        image
    }

    #[test]
    fn text_ends_with_a_zero() {
        for image in [&b".version 8.0"[..], b".version 8.0\0"] {
            assert_eq!(&loadable(image).expect("text")[..], b".version 8.0\0");
        }
    }

    #[test]
    fn what_would_be_read_beyond_its_end_is_refused() {
        let mut whole = elf(512);
        whole.resize(512, 0);
        assert_eq!(&loadable(&whole).expect("a whole file")[..], &whole[..]);
        let mut fat = b"\x50\xed\x55\xba\x01\0\x10\0".to_vec();
        fat.extend(20_u64.to_le_bytes());
        fat.resize(36, 0);
        assert_eq!(&loadable(&fat).expect("a whole file")[..], &fat[..]);
        for (image, expected) in [
            (&[][..], "empty"),
            (&[0][..], "empty"),
            (&b".ver\0sion"[..], "neither PTX"),
            (&whole[..511], "ends before"),
            (&whole[..40], "ends before"),
            (&whole[..4], "ends before"),
            (&fat[..35], "ends before"),
            (&fat[..9], "ends before"),
        ] {
            let refused = loadable(image).expect_err("it isn't whole").to_string();
            assert!(refused.contains(expected), "{} bytes: {refused}", image.len());
        }
    }
}
