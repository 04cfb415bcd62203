//! A process of the same user that speaks to the office itself, and guesses.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use interop_core::ErrorKind;
use interop_ipc::{ShareParcel, open};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::arrays::{Count, LONG};

/// Where the nonce starts in a message.
const NONCE: usize = 8;

/// Numbers that look random, the same in every run.
pub(crate) fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// The next number, below a limit.
pub(crate) fn below(next: &mut impl FnMut() -> u64, limit: usize) -> usize {
    usize::try_from(next() >> 32).unwrap_or_default() % limit
}

/// The next byte.
pub(crate) fn byte(next: &mut impl FnMut() -> u64) -> u8 {
    next().to_le_bytes()[4]
}

/// Connects to the office of a message.
fn connect(message: &[u8]) -> OwnedFd {
    let length = usize::from(message[NONCE + 17]);
    let address = &message[NONCE + 18..NONCE + 18 + length];
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(address).expect("a name");
    rustix::net::connect(&socket, &address).expect("the office listens");
    socket
}

/// Sends a request, and returns the first byte of the answer; `None` if the office ends the connection.
fn ask(socket: &OwnedFd, request: &[u8]) -> Option<u8> {
    let mut answer = [0; 64];
    send(socket, request, SendFlags::NOSIGNAL).ok()?;
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty()).ok()?;
    // An array is given, or the number of a refusal follows.
    (length > 0).then(|| answer[0])
}

/// The first byte of other requests.
const CLOSE: u8 = 1;
const REFUSE: u8 = 2;

/// A request for an array, the page and the block.
fn opening(nonce: &[u8]) -> Vec<u8> {
    [&[0], nonce, &[1, 1]].concat()
}

#[test]
fn guessed_numbers_open_nothing_and_use_nothing_up() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let mut next = numbers();
    for _ in 0..5_000 {
        let mut bytes = parcel.bytes().to_vec();
        let at = NONCE + below(&mut next, 16);
        bytes[at] ^= 1 << (next() % 8);
        assert_eq!(open(&bytes).unwrap_err().kind(), ErrorKind::Gone);
    }
    drop(open(parcel.bytes()).expect("the one that was not guessed"));
    drop(parcel);
    count.expect_dropped();
}

/// The system closes the files of a process that was killed one by one: its socket may be the first, while its GPU still works.
#[test]
fn a_connection_that_ends_before_its_process_gives_nothing_back_at_once() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let socket = connect(parcel.bytes());
    let nonce = &parcel.bytes()[NONCE..NONCE + 16];
    assert_eq!(ask(&socket, &opening(nonce)), Some(0), "given");
    drop(socket);
    let refused = parcel.take_back(Duration::from_millis(300)).err().expect("this process still runs");
    assert_eq!(refused.error.kind(), ErrorKind::AlreadyBorrowed);
    refused.value.take_back(LONG).expect("a process that is never seen to end does not keep it for ever");
    count.expect_dropped();
}

#[test]
fn requests_that_no_visitor_makes_end_the_connection() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(50, LONG).expect("shared memory");
    let nonce = &parcel.bytes()[NONCE..NONCE + 16];
    let long = [1; 100];
    let requests: [&[u8]; 10] = [
        &[],
        &[0],
        &[9; 18],
        &long,
        &opening(nonce)[..18],
        &[&opening(nonce)[..], &[0]].concat(),
        // Slots and numbers that are not open, and one that still is.
        &[CLOSE, 0, 2],
        &[CLOSE, 1, 1],
        &[REFUSE, 0xff, 0xff, 0xff, 0xff, 0xf, 1],
        &[CLOSE, 0, 1],
    ];
    for request in requests {
        let socket = connect(parcel.bytes());
        assert_eq!(ask(&socket, &opening(nonce)), Some(0), "given");
        assert_eq!(ask(&socket, request), None, "{request:?}");
    }
    // One that could not be mapped is given back, and can be opened again.
    let socket = connect(parcel.bytes());
    for number in 1..100 {
        assert_eq!(ask(&socket, &opening(nonce)), Some(0), "opening {number}");
        send(&socket, &[REFUSE, 0, number], SendFlags::NOSIGNAL).expect("the office listens");
    }
    drop(socket);
    parcel.take_back(LONG).expect("all connections have ended");
    count.expect_dropped();
}

#[test]
fn random_requests_leave_the_office_at_work() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let mut next = numbers();
    let mut socket = connect(parcel.bytes());
    for _ in 0..5_000 {
        let length = 1 + below(&mut next, 24);
        let request: Vec<u8> =
            (0..length).map(|at| if at == 0 { byte(&mut next) % 5 } else { byte(&mut next) }).collect();
        if ask(&socket, &request).is_none() {
            socket = connect(parcel.bytes());
        }
    }
    drop(open(parcel.bytes()).expect("the office answers"));
    drop(parcel);
    count.expect_dropped();
}

#[test]
fn a_visitor_that_never_receives_does_not_stop_the_office() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let socket = connect(parcel.bytes());
    // Until the office has ended the connection, because its answers have no room.
    let nonce = [0; 16];
    while send(&socket, &opening(&nonce), SendFlags::NOSIGNAL).is_ok() {}
    drop(open(parcel.bytes()).expect("the office answers others"));
    drop(parcel);
    count.expect_dropped();
}
