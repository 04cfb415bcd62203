//! Stream values, and their integers in both protocols.

use interop_core::launch::{AsStream, FromStream};
use interop_core::{Device, DeviceType, ErrorKind, StreamHandle};
use proptest::prelude::*;

use crate::support::assert_told;
use crate::support::brute_force::settings;

use crate::support::streams::{from_cai, from_dlpack, stream as stream_of};
use StreamHandle::{LegacyDefault, NothingPending, PerThreadDefault};

const CPU: DeviceType = DeviceType::CPU;
/// Devices with streams. Host memory that a GPU can access is among them (R137, R138).
const WITH_STREAMS: [DeviceType; 3] = [DeviceType::CUDA, DeviceType::CUDA_HOST, DeviceType::CUDA_MANAGED];

fn raw(handle: usize) -> StreamHandle {
    let stream = stream_of(handle);
    assert!(matches!(stream, StreamHandle::Raw(_)));
    stream
}

/// Numbers that are not a stream in either protocol.
const NEVER: [i128; 7] = [0, -2, -3, i64::MIN as i128, i128::MIN, i128::MAX, usize::MAX as i128 + 1];

/// Numbers that are streams in both protocols.
fn streams() -> [(i128, StreamHandle); 6] {
    [
        (1, LegacyDefault),
        (2, PerThreadDefault),
        (3, raw(3)),
        (0x7F00_1234_5678, raw(0x7F00_1234_5678)),
        (i128::from(i64::MAX), raw(usize::MAX / 2)),
        (usize::MAX as i128, raw(usize::MAX)),
    ]
}

/// R9, R43, R44, R45, R48, like bug 5: the key `stream` of an interface dict.
#[test]
fn cai_streams() {
    assert_eq!(from_cai(None), Ok(NothingPending));
    for (number, stream) in streams() {
        assert_eq!(from_cai(Some(number)), Ok(stream));
        assert_eq!(stream.to_raw().map(|number| number as i128), Some(number));
    }
    assert_eq!(NothingPending.to_raw(), None, "R11: the key is left out");
    for number in NEVER.into_iter().chain([-1]) {
        let error = from_cai(Some(number)).unwrap_err();
        assert_told(
            &error,
            (ErrorKind::Stream, "stream", "", "None, 1 (legacy default), 2 (per-thread default)"),
        );
        assert_eq!(error.found(), number.to_string());
    }
}

/// R131 to R135, R141: the argument of `__dlpack__` for memory that a GPU can access.
#[test]
fn dlpack_streams_of_devices_with_streams() {
    for device in WITH_STREAMS {
        assert_eq!(from_dlpack(device, None), Ok(LegacyDefault), "{device}");
        assert_eq!(from_dlpack(device, Some(-1)), Ok(NothingPending), "{device}");
        assert_eq!(NothingPending.to_dlpack(device), Some(-1), "R144: always explicit");
        for (number, stream) in streams() {
            assert_eq!(from_dlpack(device, Some(number)), Ok(stream), "{device}");
            // Handles with the top bit set are not negative numbers.
            assert_eq!(stream.to_dlpack(device), Some(number), "{device}");
        }
        for number in NEVER {
            let error = from_dlpack(device, Some(number)).unwrap_err();
            assert_told(&error, (ErrorKind::Stream, "stream", "", "None, -1 (no wait), 1 (legacy default)"));
            assert_eq!(error.found(), number.to_string());
        }
    }
}

/// R136, R142: host memory has no streams. -1 requests no wait and is accepted.
#[test]
fn dlpack_streams_of_the_host() {
    assert_eq!(from_dlpack(CPU, None), Ok(NothingPending));
    assert_eq!(from_dlpack(CPU, Some(-1)), Ok(NothingPending));
    for number in NEVER.into_iter().chain(streams().map(|(number, _)| number)) {
        let error = from_dlpack(CPU, Some(number)).unwrap_err();
        assert_told(&error, (ErrorKind::Stream, "stream", "", "None on CPU memory"));
        assert_eq!(error.found(), number.to_string());
    }
    for (_, stream) in streams() {
        assert_eq!(stream.to_dlpack(CPU), None, "a CPU producer is passed nothing");
    }
    assert_eq!(NothingPending.to_dlpack(CPU), None);
}

/// R169: a null handle is the legacy default stream and is never exported as 0.
#[test]
fn raw_handles() {
    assert_eq!(stream_of(0), LegacyDefault);
    for (number, stream) in streams() {
        let handle = usize::try_from(number).unwrap();
        assert_eq!((stream_of(handle), stream.to_raw()), (stream, Some(handle)));
    }
    assert_eq!(NothingPending.to_raw(), None, "no driver call is told that nothing is pending");
}

/// The names of streams in messages.
#[test]
fn streams_have_names() {
    let rows = [
        (NothingPending, "nothing pending"),
        (LegacyDefault, "legacy default stream (1)"),
        (PerThreadDefault, "per-thread default stream (2)"),
        (raw(0xAB), "stream 0xab"),
    ];
    for (stream, name) in rows {
        assert_eq!(stream.to_string(), name);
    }
}

/// A field may be an `Option` of a stream: an import on which nothing is pending has none. An export without one is on
/// the stream of the storage; the default stream stands for it where there is no storage.
#[test]
fn optional_streams() {
    assert_eq!(None::<StreamHandle>.as_stream(), LegacyDefault);
    assert_eq!(None::<StreamHandle>.as_stream_on(Device::cuda(0)), None);
    assert_eq!(Option::<StreamHandle>::from_stream(NothingPending, Device::CPU), Ok(None));
    for (_, stream) in streams() {
        assert_eq!(Some(stream).as_stream(), stream);
        assert_eq!(Option::<StreamHandle>::from_stream(stream, Device::CPU), Ok(Some(stream)));
        assert_eq!(StreamHandle::from_stream(stream, Device::CPU), Ok(stream));
    }
}

proptest! {
    #![proptest_config(settings())]

    /// For each number both protocols agree whether it is a stream, and a decoded number is encoded to itself.
    #[test]
    fn numbers_read_back(number in prop_oneof![any::<i128>(), -5_i128..5, any::<i64>().prop_map(i128::from)]) {
        let cai = from_cai(Some(number));
        let dlpack = from_dlpack(DeviceType::CUDA, Some(number));
        prop_assert_eq!(cai.is_ok(), number > 0 && usize::try_from(number).is_ok());
        prop_assert_eq!(dlpack.is_ok(), cai.is_ok() || number == -1);
        if let Ok(stream) = cai {
            prop_assert_eq!(dlpack, Ok(stream));
            prop_assert_eq!(stream.to_raw().map(|back| back as i128), Some(number));
            prop_assert_ne!(stream.to_dlpack(DeviceType::CUDA), Some(0), "R169: 0 is never sent");
        }
    }
}
