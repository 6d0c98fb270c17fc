//! Machines: what is found in the kernel's trees and in files, and what joins their parts.

mod detect;
mod fixtures;
mod here;
mod paths;
mod records;
mod share;
mod xml;
