//! Opened ports: what all links of a rank share.

#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::choice::{self, Candidate, Choice};
use super::errors::RdmaError;
use super::facts;
use super::options::RdmaOptions;
use super::registration::Registered;
use super::verbs::{AsyncEvent, Context, Domain, Limits};
use crate::memory::Region;
use crate::rendezvous::Family;
use crate::tcp::interface::Filter;

/// The ports that a rank uses, best first.
pub(crate) struct Adapters {
    pub(super) ports: Vec<Arc<Adapter>>,
    pub(super) options: RdmaOptions,
    pub(super) family: Family,
    pub(super) memory: Arc<Registered>,
}

/// An opened port.
pub(crate) struct Adapter {
    pub(super) candidate: Candidate,
    pub(super) context: Arc<Context>,
    pub(super) domain: Arc<Domain>,
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) limits: Limits,
    /// Whether what devices write may become visible out of order.
    pub(super) relaxed: bool,
    is_gone: AtomicBool,
}

impl Adapters {
    /// Finds and opens them.
    ///
    /// # Errors
    ///
    /// There is none that can be used; what is wrong with each.
    pub(crate) fn open(options: &RdmaOptions, family: Family) -> Result<Adapters, RdmaError> {
        let root = std::path::Path::new(facts::ROOT);
        let Choice { best, unusable } = choice::choose(facts::ports(root), options, family, facts::my_node(root))?;
        // On many hosts some ports are never plugged in; whoever names devices expects them to work.
        let is_expected = options.devices != Filter::default();
        for error in unusable {
            match is_expected {
                true => tracing::warn!("an RDMA port is not used: {error}"),
                false => tracing::info!("an RDMA port is not used: {error}"),
            }
        }
        let (mut ports, mut problems) = (Vec::new(), Vec::new());
        for candidate in best {
            match Adapter::open(candidate, options) {
                Ok(port) => ports.push(Arc::new(port)),
                Err(error) => problems.push(error),
            }
        }
        if ports.is_empty() {
            return Err(RdmaError::of_several(problems));
        }
        problems.iter().for_each(|error| tracing::warn!("an RDMA port is not used: {error}"));
        let names: Vec<String> = ports.iter().map(|port| port.name()).collect();
        tracing::info!("RDMA over {}", names.join(", "));
        let memory = Arc::new(Registered::new(ports.clone(), options.lend));
        Ok(Adapters { ports, options: options.clone(), family, memory })
    }

    /// Lets the devices reach memory that the user has registered.
    pub(crate) fn admit(&self, region: &Arc<Region>) {
        self.memory.admit(region);
    }
}

impl Adapter {
    pub(super) fn open(candidate: Candidate, options: &RdmaOptions) -> Result<Adapter, RdmaError> {
        let device = candidate.facts.device.clone();
        let opened = Context::open(&device).map_err(|error| RdmaError::NoLibrary(error.to_owned()))?;
        let context = opened.map_err(|error| RdmaError::Open {
            device: device.clone(),
            error: error.to_string(),
            kind: error.kind(),
        })?;
        let refused = |what| {
            let device = device.clone();
            move |error: std::io::Error| RdmaError::Refused { device, what, error: error.to_string() }
        };
        let state = context.port(candidate.facts.port).map_err(refused("asking for its port"))?;
        if !state.is_active {
            return Err(down(&candidate, state.state));
        }
        let limits = context.limits().map_err(refused("asking for its limits"))?;
        let domain = Domain::new(&context).map_err(refused("making a protection domain"))?;
        let relaxed = options.relaxed_ordering.unwrap_or(true);
        let (lid, mtu, is_gone) = (state.lid, state.mtu, AtomicBool::new(false));
        Ok(Adapter { candidate, context, domain, lid, mtu, limits, relaxed, is_gone })
    }

    /// What is wrong with the port, if it is out of service now.
    pub(super) fn down(&self) -> Option<RdmaError> {
        match self.context.port(self.candidate.facts.port) {
            Ok(state) => (!state.is_active).then(|| down(&self.candidate, state.state)),
            // The kernel knows no port of a device that is being removed.
            Err(_) => Some(RdmaError::DeviceGone { device: self.device().to_owned() }),
        }
    }

    pub(super) fn name(&self) -> String {
        self.candidate.facts.name()
    }

    pub(super) fn device(&self) -> &str {
        &self.candidate.facts.device
    }

    /// The file that is readable when the device has something to say.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.context.events()
    }

    /// Reads what the device has to say; an error if it is gone.
    pub(super) fn check(&self) -> Result<(), RdmaError> {
        while let Some(event) = self.context.event() {
            match event {
                AsyncEvent::DeviceFatal => {
                    self.is_gone.store(true, Ordering::Relaxed);
                    break;
                }
                AsyncEvent::PortDown => {
                    tracing::warn!("{} has gone down; what is under way fails if it stays down", self.name());
                }
                AsyncEvent::PortUp => tracing::info!("{} is up", self.name()),
                AsyncEvent::AddressChange => tracing::info!("the addresses of {} have changed", self.name()),
                AsyncEvent::Other(number) => tracing::debug!("{}: event {number}", self.name()),
            }
        }
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(RdmaError::DeviceGone { device: self.device().to_owned() }),
            false => Ok(()),
        }
    }
}

/// A port that is in this state, and not in service.
fn down(candidate: &Candidate, state: u32) -> RdmaError {
    let state = match state {
        1 => "down".to_owned(),
        2 => "initializing".to_owned(),
        3 => "armed".to_owned(),
        number => format!("in state {number}"),
    };
    let (port, interfaces) = (candidate.facts.name(), candidate.facts.interfaces().join(", "));
    RdmaError::PortDown { port, state, physical: candidate.facts.physical_state_now(), interfaces }
}
