//! Streams: queues of operations, each worked off by a thread of its own, in order.
//!
//! An operation of the legacy stream waits for what the context's blocking streams were given before, and they wait for
//! what it was given before.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::capture::{self, Capture};
use crate::clock::Clock;
use crate::context::Context;
use crate::driver::{Driver, driver};
use crate::error::Status;
use crate::handle::lock;
use crate::operation::{Operation, Turn};
use crate::point::Point;

/// How a stream and the legacy stream wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Legacy,
    Blocking,
    NonBlocking,
}

/// One stream.
pub struct Stream {
    pub handle: usize,
    pub context: Arc<Context>,
    pub kind: Kind,
    pub priority: i32,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The capture that it takes part in.
    pub capture: Mutex<Option<Arc<Capture>>>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The end of the latest operation.
    last: Option<Arc<Point>>,
    has_thread: bool,
    is_closed: bool,
}

struct Item {
    operation: Operation,
    /// What it waits for in other streams.
    after: Vec<Arc<Point>>,
    /// What the host knew when it was enqueued.
    host: Clock,
    end: Arc<Point>,
}

impl Stream {
    pub fn new(handle: usize, context: Arc<Context>, kind: Kind, priority: i32) -> Stream {
        let (queue, changed, capture) = (Mutex::default(), Condvar::new(), Mutex::new(None));
        Stream { handle, context, kind, priority, queue, changed, capture }
    }

    /// The end of what it was given last; none if it was given nothing.
    pub fn last(&self) -> Option<Arc<Point>> {
        lock(&self.queue).last.clone()
    }

    /// All that must end before a wait for this stream ends: the legacy stream's is that of all blocking streams.
    pub fn lasts(&self, driver: &Driver) -> Vec<Arc<Point>> {
        let mut lasts = self.before(driver);
        lasts.extend(self.last());
        lasts
    }

    /// What an operation enqueued now waits for in other streams.
    fn before(&self, driver: &Driver) -> Vec<Arc<Point>> {
        match self.kind {
            Kind::Legacy => {
                let others = self.context.streams();
                others.iter().filter(|other| other.kind == Kind::Blocking).filter_map(|other| other.last()).collect()
            }
            Kind::Blocking => self.context.legacy(driver).last().into_iter().collect(),
            Kind::NonBlocking => Vec::new(),
        }
    }

    /// Enqueues an operation, whose end it returns, or adds it to the capture.
    ///
    /// # Errors
    ///
    /// Those of captures.
    pub fn submit(self: &Arc<Stream>, driver: &'static Driver, operation: Operation) -> Status<Option<Arc<Point>>> {
        if capture::add(self, &operation)? {
            return Ok(None);
        }
        Ok(Some(self.enqueue(driver, operation)))
    }

    /// Enqueues an operation. Returns its end.
    pub fn enqueue(self: &Arc<Stream>, driver: &'static Driver, operation: Operation) -> Arc<Point> {
        let end = Point::new();
        let _issue = lock(&driver.issue);
        let after = self.before(driver);
        let item = Item { operation, after, host: lock(&driver.order.host).clone(), end: end.clone() };
        let mut queue = lock(&self.queue);
        queue.items.push_back(item);
        queue.last = Some(end.clone());
        if !queue.has_thread {
            queue.has_thread = true;
            let stream = self.clone();
            let name = format!("cuda-stream-{:x}", self.handle);
            std::thread::Builder::new().name(name).spawn(move || stream.work()).expect("a thread starts");
        }
        self.changed.notify_all();
        end
    }

    /// Lets its thread end when all is done.
    pub fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Item> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(item) = queue.items.pop_front() {
                return Some(item);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        let driver = driver().expect("there are streams");
        let mut clock = Clock::default();
        while let Some(Item { operation, after, host, end }) = self.next() {
            for point in after {
                clock.join(&point.wait().clock);
            }
            clock.join(&host);
            let nth = clock.tick(self.handle);
            let delay = driver.knobs.delay_of(self.handle as u64, nth);
            if !delay.is_zero() {
                std::thread::sleep(delay);
            }
            let mut turn = Turn { driver, stream: self, nth, clock };
            // In a context that failed nothing runs; what is given back is given back.
            let runs = !self.context.is_over() || matches!(operation, Operation::Free(_) | Operation::Announce(..));
            if runs && let Err(code) = operation.run(&mut turn) {
                self.context.fail(code);
            }
            clock = turn.clock;
            drop(operation);
            end.reach(clock.clone());
        }
    }
}

/// Waits until these are reached; the host then knows what came before.
pub fn wait_for(driver: &Driver, points: &[Arc<Point>]) {
    for point in points {
        let reached = point.wait();
        lock(&driver.order.host).join(&reached.clock);
    }
}

/// Whether all are reached; if so the host knows what came before.
pub fn are_reached(driver: &Driver, points: &[Arc<Point>]) -> bool {
    let is_done = points.iter().all(|point| point.is_reached());
    if is_done {
        wait_for(driver, points);
    }
    is_done
}
