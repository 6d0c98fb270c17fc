//! The library as the tools see it.

use super::{Comm, CommError, Exchange, Request};
use crate::perf::arguments::Options;
use crate::perf::failure::Failure;

/// One rank of the library.
#[derive(Debug)]
pub enum Library {}

/// Joins the other ranks and returns this process's.
///
/// # Errors
///
/// The ranks don't come together.
pub fn join(_: &Options) -> Result<Vec<Library>, Failure> {
    Err(Failure::NotInThisBuild("this build has no communicator yet".to_string()))
}

impl Comm for Library {
    fn rank(&self) -> usize {
        match *self {}
    }
    fn size(&self) -> usize {
        match *self {}
    }
    fn local_rank(&self) -> usize {
        match *self {}
    }
    fn local_size(&self) -> usize {
        match *self {}
    }
    fn host(&self, _: usize) -> String {
        match *self {}
    }
    fn pid(&self, _: usize) -> u32 {
        match *self {}
    }
    fn link(&self, _: usize) -> String {
        match *self {}
    }
    fn run(&self, _: Request<'_>) -> Result<(), CommError> {
        match *self {}
    }
    fn exchange(&self, _: Exchange<'_>) -> Result<(), CommError> {
        match *self {}
    }
    fn barrier(&self) -> Result<(), CommError> {
        match *self {}
    }
    fn abort(&self, _: &str) {
        match *self {}
    }
}
