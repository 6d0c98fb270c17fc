//! The shared library's soname.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number goes up when a program built with an earlier header wouldn't run.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpaceline.so.0");
}
