//! Messages of the library, handed to C.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write;
use std::sync::{OnceLock, PoisonError, RwLock};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::Failure;
use crate::last::c_text;

/// `pclLogCallback_t`.
#[allow(non_camel_case_types, reason = "the name in C")]
pub type pclLogCallback = unsafe extern "C" fn(c_int, *const c_char, *const c_char, *mut c_void);

#[derive(Clone, Copy)]
struct Listener {
    callback: pclLogCallback,
    user: *mut c_void,
    level: LevelFilter,
}

// SAFETY: the address is C's, and only handed back to it.
unsafe impl Send for Listener {}
// SAFETY: the same.
unsafe impl Sync for Listener {}

/// Read while the callback runs.
static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);
/// Whether this library has the process's log.
static IS_OURS: OnceLock<bool> = OnceLock::new();

thread_local! {
    static IS_SPEAKING: Cell<bool> = const { Cell::new(false) };
}

/// The numbers of `pclLogLevel_t`.
const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

pub(crate) fn set(callback: Option<pclLogCallback>, user: *mut c_void, level: c_int) -> Result<(), Failure> {
    let level = usize::try_from(level).ok().and_then(|level| LEVELS.get(level).copied());
    let level = level.ok_or_else(|| Failure::argument("the level is none of pclLogLevel_t"))?;
    if IS_SPEAKING.get() {
        return Err(Failure::usage("a log callback can't be replaced from within one"));
    }
    if !*IS_OURS.get_or_init(|| tracing::subscriber::set_global_default(Forward).is_ok()) {
        return Err(Failure::usage("the process has a log of another kind: a subscriber of Rust's `tracing`"));
    }
    let listener = callback.map(|callback| Listener { callback, user, level });
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = listener;
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

struct Forward;

fn level() -> LevelFilter {
    let listener = LISTENER.read().unwrap_or_else(PoisonError::into_inner);
    listener.map_or(LevelFilter::OFF, |listener| listener.level)
}

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= level()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(level())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        // What the callback itself makes the library say would have no end.
        if IS_SPEAKING.get() {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        let (metadata, text) = (event.metadata(), line.message + &line.fields);
        let (target, text) = (c_text(metadata.target()), c_text(&text.replace('\n', " ")));
        let listener = LISTENER.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Listener { callback, user, .. }) = *listener else { return };
        let number = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE]
            .iter()
            .position(|level| level == metadata.level())
            .map_or(0, |place| place as c_int + 1);
        IS_SPEAKING.set(true);
        // SAFETY: C has given the function for this, and both texts last until it returns.
        unsafe { callback(number, target.as_ptr(), text.as_ptr(), user) };
        IS_SPEAKING.set(false);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Texts take all.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static HEARD: AtomicU32 = AtomicU32::new(0);

    fn speak() {
        tracing::error!("something is wrong");
    }

    unsafe extern "C" fn listen(_: c_int, _: *const c_char, _: *const c_char, _: *mut c_void) {
        HEARD.fetch_add(1, Ordering::Relaxed);
        speak();
    }

    #[test]
    fn what_a_callback_says_is_not_told_to_it() {
        let heard = || HEARD.load(Ordering::Relaxed);
        set(Some(listen), std::ptr::null_mut(), 1).unwrap();
        speak();
        assert_eq!(heard(), 1);
        speak();
        assert_eq!(heard(), 2);
        set(Some(listen), std::ptr::null_mut(), 0).unwrap();
        speak();
        assert_eq!(heard(), 2);
        set(None, std::ptr::null_mut(), 0).unwrap();
    }
}
