//! Names the library `libnvrtc.so` within: once it is loaded, who loads `libnvrtc.so` gets it.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnvrtc.so");
    println!("cargo:rerun-if-changed=build.rs");
}
