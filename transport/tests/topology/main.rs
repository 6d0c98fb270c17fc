//! Machines: what is found in the kernel's trees and in files, and what joins their parts.
