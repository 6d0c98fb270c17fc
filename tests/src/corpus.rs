//! What must hold for any bytes: the bodies of the fuzz targets, which the tests replay over their corpora.

use paceline_comm::Collective;
use paceline_comm::schedule::check::{Mode, prove};
use paceline_comm::schedule::text::{draw, parse};
use paceline_transport::tcp::frame::{self, HEADER_BYTES, PAYLOAD_BYTES_MAX};

/// Bytes as they come from a socket, whoever is at the other end.
///
/// # Panics
///
/// If the parser takes what is no frame, reads a frame otherwise than it was written, or thinks otherwise of the bytes
/// when more of them have arrived.
pub fn frame(bytes: &[u8]) {
    match frame::parse(bytes) {
        Ok(Some((frame, used))) => {
            assert!(used == HEADER_BYTES && frame.bytes <= PAYLOAD_BYTES_MAX);
            assert_eq!(frame.encode(), bytes[..used], "it is written as it was read");
            assert_eq!(frame::parse(&bytes[..used]), Ok(Some((frame, used))), "what follows doesn't matter");
            assert_eq!(frame::parse(&bytes[..used - 1]), Ok(None), "its front is the front of a frame");
        }
        Ok(None) => assert!(bytes.len() < HEADER_BYTES, "a whole header is a frame or none"),
        Err(error) => {
            let longer = [bytes, &[0; HEADER_BYTES]].concat();
            let again = frame::parse(&longer).expect_err("what is no frame doesn't become one");
            assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&error));
        }
    }
}

/// The longest text that is also checked as a schedule, which takes time.
const CHECKED_BYTES_MAX: usize = 4096;

/// A text that somebody wrote as a schedule.
///
/// # Panics
///
/// If a parser or checker does, or if a schedule isn't drawn as it was read.
pub fn schedule(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(programs) = parse(text) else { return };
    let drawing = draw(&programs);
    assert_eq!(parse(&drawing).as_ref(), Ok(&programs), "a schedule is read as it was drawn\n{drawing}");
    if text.len() > CHECKED_BYTES_MAX {
        return;
    }
    for collective in Collective::ALL {
        for (in_place, uneven) in [(false, false), (true, true)] {
            // Right or wrong: the checker says so, and comes to an end.
            let _ = prove(collective, &programs, Mode { in_place, uneven });
        }
    }
}
