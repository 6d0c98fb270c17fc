//! Pointers: what an address is of.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUpointer_attribute_enum as Attribute;

use super::{api, put};
use crate::context::current;
use crate::driver::Driver;
use crate::error::{Code, Status, refuse};
use crate::memory::{Allocation, Kind};

/// The answers for memory of the host and of devices.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// Writes what `attribute` says of `address`; `found` is the allocation that it lies in.
///
/// # Safety
///
/// `data` is a place for the attribute's type.
unsafe fn answer(driver: &Driver, data: *mut c_void, attribute: c_uint, address: u64, found: &Allocation) -> Status {
    let is_host = !found.kind.is_of_device();
    let known = |known: Attribute| known as u32 == attribute;
    // SAFETY: the caller gives a place for what is written, whose type the driver's documentation says.
    unsafe {
        if known(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT) {
            put(data.cast(), found.context)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            put(data.cast(), if is_host { HOST } else { DEVICE })
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
            put(data.cast(), address)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            if is_host { put(data.cast(), address) } else { Err(Code::CUDA_ERROR_INVALID_VALUE) }
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
            || known(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED)
        {
            put(data.cast::<c_uint>(), 0)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID) {
            put(data.cast(), found.nonce)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            put(data.cast(), found.device as c_int)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
            put(data.cast(), c_uint::from(found.kind == Kind::Device && driver.knobs.has_ipc))
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
            put(data.cast(), found.address)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
            put(data.cast(), found.bytes)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_MAPPED) {
            put(data.cast(), 1 as c_uint)
        } else if known(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
            put(data.cast(), if found.kind == Kind::Pooled { 0x100 + found.device } else { 0 })
        } else {
            refuse(Code::CUDA_ERROR_NOT_SUPPORTED, format_args!("pointer attribute {attribute} is not simulated"))
        }
    }
}

api! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: u64) {
        let (driver, _) = current()?;
        let found = driver.memory.at(address).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        answer(driver, data, attribute, address, &found)
    }

    /// What isn't known of a pointer is 0, and no error.
    fn cuPointerGetAttributes(count: c_uint, attributes: *const c_uint, data: *const *mut c_void, address: u64) {
        let (driver, _) = current()?;
        if count == 0 || attributes.is_null() || data.is_null() {
            return Err(Code::CUDA_ERROR_INVALID_VALUE);
        }
        let found = driver.memory.at(address);
        for at in 0..count as usize {
            let (attribute, place) = (*attributes.add(at), *data.add(at));
            let is_answered = match &found {
                Some(found) => answer(driver, place, attribute, address, found).is_ok(),
                None => false,
            };
            if !is_answered {
                clear(place, attribute)?;
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(_value: *const c_void, attribute: c_uint, address: u64) {
        let (driver, _) = current()?;
        driver.memory.at(address).ok_or(Code::CUDA_ERROR_INVALID_VALUE)?;
        let is_known = attribute == Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as u32;
        if is_known { Ok(()) } else { Err(Code::CUDA_ERROR_INVALID_VALUE) }
    }
}

/// Writes 0, in the attribute's type.
///
/// # Safety
///
/// As for [`answer`].
unsafe fn clear(data: *mut c_void, attribute: c_uint) -> Status {
    let wide = [
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    ];
    // SAFETY: the caller gives a place of the attribute's type.
    unsafe {
        if wide.iter().any(|wide| *wide as u32 == attribute) {
            put(data.cast::<u64>(), 0)
        } else if attribute == Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32
            || attribute == Attribute::CU_POINTER_ATTRIBUTE_MAPPED as u32
        {
            put(data.cast::<u8>(), 0)
        } else if attribute == Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32 {
            put(data.cast::<c_int>(), -2)
        } else {
            put(data.cast::<c_uint>(), 0)
        }
    }
}
