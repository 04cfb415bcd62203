//! Slots and descriptors that are used up, and paths.

use std::sync::Arc;

use interop_core::ErrorKind;
use interop_ipc::{ShareParcel, listen_at, open};

use crate::arrays::{Count, LONG};
use crate::other;

#[test]
fn slots_are_used_up_and_the_offer_stays() {
    let mut other = other::start();
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(1030, LONG).expect("shared memory");
    // In a process of its own: the slots are those of a connection.
    for _ in 0..1024 {
        assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    }
    for _ in 0..9 {
        let refused = other.open("open", parcel.bytes());
        assert!(refused.starts_with("OutOfMemory: ") && refused.contains("at most 1024"), "{refused}");
    }
    drop(open(parcel.bytes()).expect("other processes have slots of their own"));
    other.tell("drop");
    assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]");
    other.tell("drop");
    parcel.take_back(LONG).expect("given back");
    count.expect_dropped();
}

#[test]
fn descriptors_are_used_up_and_the_offer_stays() {
    let count = Count::default();
    let parcel = Arc::new(count.image()).share_parcel(4, LONG).expect("shared memory");
    let last = count.image().into_parcel(LONG).expect("shared memory");
    // A first opening needs a socket, and descriptors of the process, of the page and of the block.
    for more in 0..4 {
        let mut other = other::start();
        other.tell(&format!("files {more}"));
        let refused = other.open("open", parcel.bytes());
        assert!(refused.starts_with("OutOfMemory: "), "{more}: {refused}");
        other.tell("files all");
        assert_eq!(other.open("open", parcel.bytes()), "30 elements, [0.0, 1.0, 2.0]", "{more}");
        if more == 3 {
            // A later one needs that of the block.
            other.tell("files 0");
            let refused = other.open("open", last.bytes());
            assert!(refused.starts_with("OutOfMemory: "), "{refused}");
            other.tell("files all");
            assert_eq!(other.open("open", last.bytes()), "30 elements, [0.0, 1.0, 2.0]");
        }
    }
    drop(last);
    parcel.take_back(LONG).expect("the processes have ended");
    count.expect_dropped();
}

/// The office of a producer in another network namespace is, for this process, a name at which nobody listens.
#[test]
fn an_office_that_cannot_be_reached_is_an_error_with_its_cure() {
    let parcel = Arc::new(Count::default().image()).share_parcel(1, LONG).expect("shared memory");
    let mut message = parcel.bytes().to_vec();
    let name = message.windows(12).position(|part| part == b"interop-ipc-").expect("an abstract name") + 12;
    message[name] ^= 1;
    let error = open(&message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    for part in ["network namespace of its own", "`interop_ipc::listen_at`", "a path that both can open"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    drop(open(parcel.bytes()).expect("the offer stays"));
}

#[test]
fn a_path_replaces_the_abstract_name() {
    let folder = std::env::temp_dir().join(format!("interop-ipc-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("office");
    for round in ["a new path", "the socket of a process that has ended"] {
        let mut other = other::start();
        other.tell(&format!("listen {}", path.display()));
        let bytes = other.share();
        let text = path.as_os_str().as_encoded_bytes();
        assert!(bytes.windows(text.len()).any(|part| part == text), "{round}: the message names the path");
        drop(open(&bytes).expect(round));
        let error = listen_at(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "another process listens there: {error}");
        other.kill();
        let error = open(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone, "{round}");
        let found = format!("nobody listens at `{}`", path.display());
        assert!(error.to_string().contains(&found), "{round}: {error}");
    }
    std::fs::remove_file(&path).expect("the socket is left over");
    std::fs::write(&path, "a file of the user").expect("a file");
    assert!(listen_at(&path).is_err());
    assert_eq!(std::fs::read_to_string(&path).expect("kept"), "a file of the user");
    std::fs::remove_dir_all(&folder).expect("the folder of this test");
    let error = listen_at(std::path::Path::new("relative")).unwrap_err();
    assert!(error.to_string().contains("an absolute path"), "{error}");
}
