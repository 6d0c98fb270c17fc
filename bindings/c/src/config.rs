//! From `pclConfig_t` and the environment to what a communicator is made with.

use std::ffi::{CStr, c_char, c_int, c_uint};

use paceline_comm::Environment;

use crate::error::Failure;

pub(crate) const DEVICE_NONE: c_int = -1;
const MAGIC: c_uint = 0x7063_6c31;
const VERSION: c_uint = 1;
/// No version will be longer.
const SIZE_MAX: usize = 4096;

/// `pclConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    name: *const c_char,
    timeout_ms: u64,
    init_timeout_ms: u64,
    links: *const c_char,
    interfaces: *const c_char,
    ports: *const c_char,
    algorithm: *const c_char,
    job: *const c_char,
    token: *const c_char,
    tcp_streams: c_int,
    device: c_int,
    device_scratch_bytes: u64,
    device_copy_engine_bytes: u64,
}

/// What C has said of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) timeout_ms: u64,
    pub(crate) device: c_int,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read where there are devices"))]
    pub(crate) device_scratch_bytes: u64,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "read where there are devices"))]
    pub(crate) device_copy_engine_bytes: u64,
    settings: Vec<(&'static str, String)>,
}

impl Default for Config {
    fn default() -> Config {
        let (name, settings) = (String::new(), Vec::new());
        let (device_scratch_bytes, device_copy_engine_bytes) = (0, 0);
        Config { name, timeout_ms: 0, device: DEVICE_NONE, device_scratch_bytes, device_copy_engine_bytes, settings }
    }
}

impl Config {
    /// What a `pclConfig_t` says.
    ///
    /// # Safety
    ///
    /// `config` is null, or its member `size` can be read, and so many bytes if that is at most 4096; texts in it end in 0.
    pub(crate) unsafe fn read(config: *const pclConfig) -> Result<Config, Failure> {
        if config.is_null() {
            return Ok(Config::default());
        }
        // SAFETY: the caller promises that the size can be read.
        let size = unsafe { config.cast::<usize>().read_unaligned() };
        let head = std::mem::offset_of!(pclConfig, name);
        if size < head || SIZE_MAX < size {
            return Err(Failure::argument(format!(
                "the config says that it has {size} bytes; start from PCL_CONFIG_INITIALIZER"
            )));
        }
        let mut known = pclConfig {
            size,
            magic: 0,
            version: 0,
            name: std::ptr::null(),
            timeout_ms: 0,
            init_timeout_ms: 0,
            links: std::ptr::null(),
            interfaces: std::ptr::null(),
            ports: std::ptr::null(),
            algorithm: std::ptr::null(),
            job: std::ptr::null(),
            token: std::ptr::null(),
            tcp_streams: 0,
            device: DEVICE_NONE,
            device_scratch_bytes: 0,
            device_copy_engine_bytes: 0,
        };
        let bytes = size.min(size_of::<pclConfig>());
        // SAFETY: so many bytes can be read (the caller) and fit; members are numbers and pointers, for which any bits will do.
        unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes) };
        if known.magic != MAGIC {
            return Err(Failure::argument("the config's magic number is wrong; start from PCL_CONFIG_INITIALIZER"));
        }
        if known.version == 0 || VERSION < known.version {
            let version = known.version;
            return Err(Failure::argument(format!("the config has version {version}; this library knows {VERSION}")));
        }
        // SAFETY: texts end in 0 (the caller).
        unsafe { Config::of(&known) }
    }

    /// # Safety
    ///
    /// Texts are null or end in 0.
    unsafe fn of(known: &pclConfig) -> Result<Config, Failure> {
        // SAFETY: the caller promises it, for each.
        let texts = unsafe {
            [
                ("PACELINE_LINKS", text(known.links, "links")?),
                ("PACELINE_INTERFACE", text(known.interfaces, "interfaces")?),
                ("PACELINE_PORTS", text(known.ports, "ports")?),
                ("PACELINE_ALGORITHM", text(known.algorithm, "algorithm")?),
                ("PACELINE_JOB", text(known.job, "job")?),
                ("PACELINE_TOKEN", text(known.token, "token")?),
            ]
        };
        let numbers = [
            ("PACELINE_TIMEOUT", (known.timeout_ms != 0).then(|| format!("{}ms", known.timeout_ms))),
            ("PACELINE_INIT_TIMEOUT", (known.init_timeout_ms != 0).then(|| format!("{}ms", known.init_timeout_ms))),
            ("PACELINE_TCP_STREAMS", (known.tcp_streams != 0).then(|| known.tcp_streams.to_string())),
        ];
        let settings = texts.into_iter().chain(numbers).filter_map(|(name, value)| Some((name, value?)));
        Ok(Config {
            // SAFETY: as above.
            name: unsafe { text(known.name, "name")? }.unwrap_or_default(),
            timeout_ms: known.timeout_ms,
            device: known.device,
            device_scratch_bytes: known.device_scratch_bytes,
            device_copy_engine_bytes: known.device_copy_engine_bytes,
            settings: settings.collect(),
        })
    }

    /// The environment of the process, with what the config says of its own.
    pub(crate) fn environment(&self) -> Environment {
        let process = Environment::from_process();
        self.settings.iter().fold(process, |environment, (name, value)| environment.with(*name, value))
    }
}

/// The text at an address; `None` where that is null.
///
/// # Safety
///
/// It is null, or the text ends in 0.
pub(crate) unsafe fn text(start: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    if start.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(start) };
    let text = text.to_str().map_err(|_| Failure::argument(format!("{what} is not text in UTF-8")))?;
    Ok(Some(text.to_owned()))
}
