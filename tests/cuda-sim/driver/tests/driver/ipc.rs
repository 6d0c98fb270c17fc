//! Memory and events of one process in another.

use std::ffi::c_char;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::ptr;

use cudarc::driver::sys::{self, CUipcEventHandle, CUipcMemHandle, CUresult};
use paceline_cuda_sim::Simulated;

use crate::{Gate, Setting, allocate, copy, fill, free, new_event, new_stream, ok, read, settle, write};

/// The variable with what the other process is told: handles, as numbers.
const HANDLES: &str = "PACELINE_TEST_CUDA_HANDLES";

fn memory_handle(address: u64) -> [c_char; 64] {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the place is of this type.
    ok(unsafe { sys::cuIpcGetMemHandle(&mut handle, address) });
    handle.reserved
}

fn open_memory(reserved: [c_char; 64], flags: u32) -> Result<u64, CUresult> {
    let mut address = 0;
    // SAFETY: the place is of this type.
    match unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, CUipcMemHandle { reserved }, flags) } {
        CUresult::CUDA_SUCCESS => Ok(address),
        code => Err(code),
    }
}

fn close_memory(address: u64) -> CUresult {
    // SAFETY: the address is the driver's to check.
    unsafe { sys::cuIpcCloseMemHandle(address) }
}

fn written(handles: &[[c_char; 64]]) -> String {
    let bytes = handles.iter().flatten().map(|byte| format!("{:02x}", *byte as u8));
    bytes.collect()
}

fn read_back(text: &str) -> Vec<[c_char; 64]> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte") as c_char;
    let bytes: Vec<c_char> = (0..text.len()).step_by(2).map(byte).collect();
    bytes.chunks(64).map(|chunk| chunk.try_into().expect("64 bytes")).collect()
}

/// The other process: it is told handles of memory, of an event that the first records, of one that it records itself,
/// and of memory that is freed.
#[test]
fn other_process() {
    let Ok(handles) = std::env::var(HANDLES) else { return };
    let [memory, first, second, freed] = read_back(&handles).try_into().expect("four handles");
    let Some(_) = Setting::of(1) else { return };
    assert_eq!(open_memory(memory, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE), "flags");
    assert_eq!(open_memory(first, 1), Err(CUresult::CUDA_ERROR_INVALID_VALUE), "an event's");
    assert_eq!(open_memory(freed, 1), Err(CUresult::CUDA_ERROR_INVALID_HANDLE), "freed");
    let address = open_memory(memory, 1).expect("it is opened");
    assert_eq!(open_memory(memory, 1), Ok(address), "again");
    ok(close_memory(address));
    assert_eq!(read(address, 4), [1; 4]);
    let (stream, mut events) = (new_stream(), [ptr::null_mut(); 2]);
    // SAFETY: the handles and addresses are the driver's to check.
    unsafe {
        assert_eq!(sys::cuMemFree_v2(address), CUresult::CUDA_ERROR_INVALID_VALUE, "opened, not allocated");
        for (event, reserved) in events.iter_mut().zip([first, second]) {
            ok(sys::cuIpcOpenEventHandle(event, CUipcEventHandle { reserved }));
        }
        ok(sys::cuStreamWaitEvent(stream, events[0], 0));
        ok(copy(address + 8, address, 4, stream));
        ok(sys::cuEventRecord(events[1], stream));
        assert_eq!(sys::cuEventQuery(events[0]), CUresult::CUDA_ERROR_NOT_READY, "the first is held up");
        println!("\nit waits");
        std::io::stdout().flush().expect("the first reads");
        settle(stream);
        assert_eq!(read(address + 8, 4), [2; 4], "what was written after it was opened");
        ok(sys::cuStreamWriteValue32_v2(stream, address + 12, 99, 0));
        settle(stream);
    }
    ok(close_memory(address));
    assert_eq!(close_memory(address), CUresult::CUDA_ERROR_INVALID_VALUE, "closed");
    assert_eq!(fill(address, 1, 1, stream), CUresult::CUDA_ERROR_INVALID_VALUE, "closed");
}

#[test]
fn memory_and_events_reach_another_process() {
    let simulated = match Simulated::here() {
        Ok(simulated) => simulated,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let Some(_) = Setting::new() else { return };
    let (address, freed, stream) = (allocate(16), allocate(16), new_stream());
    write(address, &[1; 16]);
    let events = [new_event(6), new_event(6)];
    let event_handle = |event| {
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: the place is of this type.
        ok(unsafe { sys::cuIpcGetEventHandle(&mut handle, event) });
        handle.reserved
    };
    let memory = memory_handle(address);
    let handles = [memory, event_handle(events[0]), event_handle(events[1]), memory_handle(freed)];
    free(freed);
    // It may have the number of the file that is gone.
    let later = allocate(16);
    assert_eq!(open_memory(memory, 1), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT), "in the same process");
    let gate = Gate::before(stream);
    ok(fill(address, 2, 8, stream));
    // SAFETY: the handles and addresses are the driver's to check.
    unsafe {
        let mut handle = CUipcEventHandle { reserved: [0; 64] };
        let alone = sys::cuIpcGetEventHandle(&mut handle, new_event(2));
        assert_eq!(alone, CUresult::CUDA_ERROR_INVALID_HANDLE, "not between processes");
        ok(sys::cuEventRecord(events[0], stream));
        let mut command = simulated.test("ipc::other_process");
        command.env(HANDLES, written(&handles)).stdout(Stdio::piped());
        let mut other = command.spawn().expect("this program starts again");
        let mut said = BufReader::new(other.stdout.take().expect("it is piped"));
        let (mut line, mut all) = (String::new(), String::new());
        while line != "it waits\n" {
            line.clear();
            let bytes = said.read_line(&mut line).expect("text");
            all += &line;
            assert!(bytes > 0, "the other process ended:\n{all}");
        }
        gate.open();
        ok(sys::cuStreamWaitValue32_v2(stream, address + 12, 99, 1));
        settle(stream);
        ok(sys::cuEventSynchronize(events[1]));
        let status = other.wait().expect("it ends");
        assert!(status.success(), "{status}:\n{all}");
    }
    assert_eq!(read(address + 8, 4), [2; 4]);
    free(address);
    free(later);
}
