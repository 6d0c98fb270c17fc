//! Names the library `libcuda.so` within: once it is loaded, who loads `libcuda.so` gets it.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
