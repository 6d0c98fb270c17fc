//! Handles: numbers that stand for objects, each given out once, so that what was destroyed is never mistaken.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Code, Status};

/// The objects of one kind that exist.
pub struct Table<T>(Mutex<HashMap<usize, Arc<T>>>);

/// A number for a new object, of any kind. It looks like an address, and is none.
fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

impl<T> Table<T> {
    pub fn new() -> Table<T> {
        Table(Mutex::new(HashMap::new()))
    }

    /// Keeps what `make` makes with its handle.
    pub fn insert(&self, make: impl FnOnce(usize) -> T) -> Arc<T> {
        let handle = fresh();
        let object = Arc::new(make(handle));
        lock(&self.0).insert(handle, object.clone());
        object
    }

    /// The object with this handle.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` when there is none, or none any more.
    pub fn get(&self, handle: usize) -> Status<Arc<T>> {
        lock(&self.0).get(&handle).cloned().ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Forgets the object with this handle.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` when there is none, or none any more.
    pub fn remove(&self, handle: usize) -> Status<Arc<T>> {
        lock(&self.0).remove(&handle).ok_or(Code::CUDA_ERROR_INVALID_HANDLE)
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.0).values().cloned().collect()
    }
}

/// Locks; a panic of another holder is its own affair.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
