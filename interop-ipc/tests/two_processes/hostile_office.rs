//! Messages that were changed, and an office that does not keep to the protocol.

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use interop_core::ErrorKind;
use interop_ipc::{ShareParcel, open};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, sendmsg, socket_with,
};

use crate::arrays::{Count, LONG};
use crate::hostile_visitor::{below, byte, numbers};

/// Where the address of the office starts in a message: its kind, its length, and its bytes.
const ADDRESS: usize = 24;
const PAGE: usize = 16 * 1024;
/// The bytes of the block of an image of the tests.
const BLOCK: usize = 30 * 4;

#[test]
fn changed_messages_open_nothing_that_lies_outside() {
    open_changed_messages(60_000);
}

pub(crate) fn open_changed_messages(times: u32) {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(u32::MAX, LONG * 60).expect("shared memory");
    let (mut next, mut opened, mut refused) = (numbers(), 0, 0_u32);
    for _ in 0..times {
        let mut bytes = parcel.bytes().to_vec();
        for _ in 0..=next() % 3 {
            // Not the address: each of the others is a connection.
            let end = ADDRESS + 2 + 44;
            let at = end + below(&mut next, (bytes.len() - end).max(1));
            match next() % 4 {
                0 => bytes[at] = byte(&mut next),
                1 => bytes[at] ^= 1 << (next() % 8),
                2 => bytes[at] = [0, 1, 127, 128, 255][below(&mut next, 5)],
                _ => bytes.truncate(at),
            }
            bytes.resize(bytes.len().max(end + 1), 0);
        }
        match open(&bytes) {
            Ok(import) => {
                opened += 1;
                assert!(import.info().byte_range().len() <= BLOCK, "{:?}", import.info());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 0 && refused > times / 2, "{opened} {refused}");
    parcel.take_back(LONG).expect("all were given back");
    count.expect_dropped();
}

#[test]
fn random_bytes_are_refused() {
    let mut next = numbers();
    for length in 0..4200 {
        let mut bytes: Vec<u8> = (0..length).map(|_| byte(&mut next)).collect();
        assert_eq!(open(&bytes).unwrap_err().kind(), ErrorKind::Type);
        if length >= 8 {
            bytes[..8].copy_from_slice(b"ITPC\x01\x00\x00\x00");
            assert!(open(&bytes).is_err());
        }
    }
}

#[test]
fn a_truncated_message_is_refused() {
    let parcel = Arc::new(Count::default().image()).share_parcel(1, LONG).expect("shared memory");
    for length in 0..parcel.bytes().len() {
        let error = open(&parcel.bytes()[..length]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Type, "{length}: {error}");
    }
    let longer = [parcel.bytes(), &[0]].concat();
    assert!(open(&longer).unwrap_err().to_string().contains("behind the end"));
    let mut foreign = parcel.bytes().to_vec();
    foreign[4] = 2;
    let error = open(&foreign).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Version, "`parcel.version`: found 2, allowed: 1".to_owned())
    );
}

/// A file in memory.
fn file(bytes: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create(c"test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, bytes as u64).expect("room");
    fcntl_add_seals(&file, seals).expect("seals");
    file
}

/// An answer, with the descriptors that come with it.
struct Answer {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// An answer that is as it should be, but that the number in the page is 0.
fn answer() -> Answer {
    // An array is given: its slot and number, whether it is read-only, whether it may rest, and a block, which is a file.
    Answer {
        bytes: vec![0, 0, 0, 0, 0, 1, 0],
        files: vec![file(PAGE, SealFlags::SHRINK), file(BLOCK, SealFlags::SHRINK)],
    }
}

type Change = fn(&mut Answer);

/// Opens an array from an office that gives one answer, and returns the error.
fn open_from(given: Option<Answer>) -> Result<(), interop_core::Error> {
    static LAST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // As long as the address of an office.
    let name = format!("interop-ipc-{:016x}{number:016x}", std::process::id());
    let parcel = Count::default().image().into_parcel(LONG).expect("shared memory");
    let mut message = parcel.bytes().to_vec();
    message[ADDRESS + 2..ADDRESS + 2 + name.len()].copy_from_slice(name.as_bytes());
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("a socket");
    bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name"))
        .expect("a free name");
    listen(&listener, 1).expect("a listener");
    let office = thread::spawn(move || {
        let visitor = accept(&listener).expect("a visitor");
        let mut request = [0; 64];
        recv(&visitor, &mut request[..], RecvFlags::empty()).expect("a request");
        let Some(Answer { bytes, files }) = given else { return };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        sendmsg(&visitor, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
            .expect("the visitor waits");
        // Until the visitor has ended the connection, or has given the array back.
        let _ = recv(&visitor, &mut request[..], RecvFlags::empty());
    });
    let opened = open(&message).map(drop);
    office.join().expect("the office did what it should");
    opened
}

#[test]
fn a_good_answer_opens() {
    open_from(Some(answer())).expect("this is the protocol");
}

#[test]
fn files_that_may_shrink_or_are_too_small_are_refused() {
    let with = |at: usize, file: OwnedFd| {
        let mut changed = answer();
        changed.files[at] = file;
        open_from(Some(changed)).unwrap_err()
    };
    for (at, bytes) in [(0, PAGE), (1, BLOCK)] {
        let error = with(at, file(bytes, SealFlags::GROW));
        assert!(error.to_string().contains("F_SEAL_SHRINK"), "{error}");
        let error = with(at, file(bytes - 1, SealFlags::SHRINK));
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
        let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
        let error = with(at, pipe);
        assert!(error.to_string().contains("without seals"), "{error}");
    }
}

#[test]
fn answers_against_the_protocol_are_refused() {
    let changed = |change: fn(&mut Answer)| {
        let mut changed = answer();
        change(&mut changed);
        open_from(Some(changed)).unwrap_err()
    };
    let cases: [(&str, Change); 14] = [
        ("memory of an unknown kind", |answer| answer.bytes[6] = 9),
        ("a handle without its bytes", |answer| answer.bytes[6] = 1),
        ("pieces without sizes", |answer| answer.bytes[6] = 2),
        ("a pool without its bytes", |answer| answer.bytes[6] = 3),
        // 1024, in seven bits a byte.
        ("a slot beyond the page", |answer| drop(answer.bytes.splice(1..2, [0x80, 8]))),
        ("a number that is not in the page", |answer| answer.bytes[2] = 1),
        ("an answer that does not exist", |answer| answer.bytes[0] = 9),
        ("a refusal that does not exist", |answer| answer.bytes = vec![1, 9]),
        ("no block", |answer| drop(answer.bytes.splice(5.., [0]))),
        ("no descriptors", |answer| answer.files.clear()),
        ("one descriptor", |answer| answer.files.truncate(1)),
        ("an array that may not be written", |answer| answer.bytes[3] = 1),
        ("a short answer", |answer| answer.bytes.truncate(5)),
        ("a long answer", |answer| answer.bytes.extend([0; 9])),
    ];
    for (what, change) in cases {
        let error = changed(change);
        let is_expected =
            matches!(error.kind(), ErrorKind::Type | ErrorKind::OutOfMemory | ErrorKind::ReadOnly);
        assert!(is_expected, "{what}: {error}");
    }
    let of_a_gpu: [(&str, Change); 3] = [
        ("a handle", |answer| {
            answer.bytes[6] = 1;
            answer.bytes.push(64);
            answer.bytes.extend([0; 64]);
        }),
        ("a piece", |answer| {
            answer.bytes[6] = 2;
            answer.bytes.extend([1, 120]);
        }),
        ("memory of a pool", |answer| {
            answer.bytes[6] = 3;
            answer.bytes.extend([5, 64]);
            answer.bytes.extend([0; 64]);
        }),
    ];
    for (what, change) in of_a_gpu {
        let error = changed(change);
        assert_eq!(error.kind(), ErrorKind::Device, "{what} for memory of the host: {error}");
    }
    let error = open_from(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "no answer: {error}");
}

#[test]
fn a_message_that_was_changed_cannot_write_to_a_shared_array() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1, LONG).expect("shared memory");
    let mut message = parcel.bytes().to_vec();
    assert_eq!(message[6], 1, "a read-only array");
    message[6] = 0;
    let error = open(&message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    drop(open(parcel.bytes()).expect("it does not count as opened"));
    drop(parcel);
    count.expect_dropped();
}

#[test]
fn a_message_cannot_name_a_socket_of_another_service() {
    let parcel = Arc::new(Count::default().image()).share_parcel(1, LONG).expect("shared memory");
    let mut message = parcel.bytes().to_vec();
    message[ADDRESS + 2] = b'x';
    assert!(open(&message).unwrap_err().to_string().contains("that of an office"));
}
