//! libibverbs, looked up at run time, so that a program starts where the library is missing and can say so.
//!
//! Only control functions are looked up: posting and polling go through the device's own table (`context.ops`), as the
//! library's inline functions do.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use ibverbs_sys as ffi;

/// The library's name, with the version of the interface that the bindings describe.
pub(crate) const LIBRARY: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that every version of the library has.
        pub(crate) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Registers with optional flags; from rdma-core 25 on.
            pub(super) reg_mr_iova2: Option<RegisterWithOptions>,
        }

        impl Functions {
            /// # Safety
            /// The library is libibverbs, and stays loaded.
            unsafe fn find(library: &libloading::Library) -> Result<Functions, libloading::Error> {
                // SAFETY: the signatures are those of the library's header, from which the bindings' types are made.
                unsafe {
                    Ok(Functions {
                        $($name: *library.get(concat!("ibv_", stringify!($name)))?,)*
                        reg_mr_iova2: library.get("ibv_reg_mr_iova2").ok().map(|found| *found),
                    })
                }
            }
        }
    };
}

type RegisterWithOptions = unsafe extern "C" fn(*mut ffi::ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ffi::ibv_mr;

functions! {
    get_device_list: fn(*mut c_int) -> *mut *mut ffi::ibv_device;
    free_device_list: fn(*mut *mut ffi::ibv_device);
    open_device: fn(*mut ffi::ibv_device) -> *mut ffi::ibv_context;
    close_device: fn(*mut ffi::ibv_context) -> c_int;
    query_device: fn(*mut ffi::ibv_context, *mut ffi::ibv_device_attr) -> c_int;
    query_port: fn(*mut ffi::ibv_context, u8, *mut ffi::ibv_port_attr) -> c_int;
    get_async_event: fn(*mut ffi::ibv_context, *mut ffi::ibv_async_event) -> c_int;
    ack_async_event: fn(*mut ffi::ibv_async_event);
    alloc_pd: fn(*mut ffi::ibv_context) -> *mut ffi::ibv_pd;
    dealloc_pd: fn(*mut ffi::ibv_pd) -> c_int;
    reg_mr: fn(*mut ffi::ibv_pd, *mut c_void, usize, c_int) -> *mut ffi::ibv_mr;
    dereg_mr: fn(*mut ffi::ibv_mr) -> c_int;
    create_comp_channel: fn(*mut ffi::ibv_context) -> *mut ffi::ibv_comp_channel;
    destroy_comp_channel: fn(*mut ffi::ibv_comp_channel) -> c_int;
    create_cq: fn(*mut ffi::ibv_context, c_int, *mut c_void, *mut ffi::ibv_comp_channel, c_int) -> *mut ffi::ibv_cq;
    destroy_cq: fn(*mut ffi::ibv_cq) -> c_int;
    get_cq_event: fn(*mut ffi::ibv_comp_channel, *mut *mut ffi::ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut ffi::ibv_cq, c_uint);
    create_qp: fn(*mut ffi::ibv_pd, *mut ffi::ibv_qp_init_attr) -> *mut ffi::ibv_qp;
    modify_qp: fn(*mut ffi::ibv_qp, *mut ffi::ibv_qp_attr, c_int) -> c_int;
    destroy_qp: fn(*mut ffi::ibv_qp) -> c_int;
}

/// The library; loaded once, and never unloaded. The error says why it can't be used.
pub(crate) fn functions() -> Result<&'static Functions, &'static str> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        // SAFETY: libibverbs's initializers have no conditions; it is leaked below, so what was found stays valid.
        let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(|error| error.to_string())?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: as above.
        unsafe { Functions::find(library) }.map_err(|error| error.to_string())
    };
    LOADED.get_or_init(load).as_ref().map_err(String::as_str)
}
