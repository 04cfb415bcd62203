//! R70 to R72, bugs 131 to 135, 140, 141: who may write to an export. Storage × {owned, shared} × form.
#![expect(unsafe_code, reason = "some structs hold raw pointers")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use interop_core::adapters::ndarray::NdArray;
use interop_core::protocols::dlpack::{FLAG_READ_ONLY, Legacy, Versioned};
use interop_core::storage::{HostBuffer, Owner};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, HostVec, Lease, LeaseMut, SharedBuffer, StreamHandle,
};

use crate::support::arrays::{Array, Borrowable, Claimed, Pinned};
use crate::support::assert_told;
use crate::support::counted_owners::Count;
use crate::support::foreign_tensors::{Claims, Form, flags};

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The consumer may write.
    Writable,
    /// The flag says that the consumer may not write.
    ReadOnly,
    /// The form cannot say that the consumer may not write.
    Refused,
}

use Answer::{ReadOnly, Refused, Writable};

/// Owned versioned, owned legacy, shared versioned, shared legacy.
type Answers = [Answer; 4];

const WRITABLE: Answers = [Writable; 4];
const READ_ONLY: Answers = [ReadOnly, Refused, ReadOnly, Refused];
const WHEN_OWNED: Answers = [Writable, Writable, ReadOnly, Refused];

/// The result of an owned export. A refusal returns the struct unchanged.
fn give<A: Form, S: CudaArray + Send + 'static>(array: S) -> Answer {
    let info = array.info().unwrap();
    match array.into_dlpack_as::<A>(StreamHandle::LegacyDefault) {
        Ok(tensor) if flags(&tensor).unwrap_or(0) & FLAG_READ_ONLY == 0 => Writable,
        Ok(_) => ReadOnly,
        Err(refused) => {
            let told = (ErrorKind::ReadOnly, "readonly", "a legacy `dltensor`", "a versioned tensor");
            assert_told(&refused.error, told);
            assert_eq!(refused.value.info().unwrap(), info, "the struct comes back as it was");
            Refused
        }
    }
}

/// The result of a shared export.
fn share<A: Form, S: CudaArray + Send + Sync + 'static>(array: &Arc<S>) -> Answer {
    match array.share_dlpack_as::<A>(StreamHandle::LegacyDefault) {
        Ok(tensor) if flags(&tensor).unwrap_or(0) & FLAG_READ_ONLY == 0 => Writable,
        Ok(_) => ReadOnly,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
            assert_eq!(Arc::strong_count(array), 1, "no handle stays behind");
            Refused
        }
    }
}

#[track_caller]
fn check<S: CudaArray + Send + Sync + 'static>(
    what: impl fmt::Display,
    make: impl Fn() -> S,
    answers: Answers,
) {
    let shared = Arc::new(make());
    let found = [
        give::<Versioned, S>(make()),
        give::<Legacy, S>(make()),
        share::<Versioned, S>(&shared),
        share::<Legacy, S>(&shared),
    ];
    assert_eq!(found, answers, "{what}");
}

/// Memory to which Rust code may hold references is writable for a sole owner at most.
#[test]
fn host_storages() {
    let four = [1_u16, 2, 3, 4];
    check("Vec", || Array::new(four.to_vec(), &[4]), WHEN_OWNED);
    check("Box<[T]>", || Array::new(Box::<[u16]>::from(four), &[4]), WHEN_OWNED);
    check("Arc<[T]>", || Array::new(Arc::<[u16]>::from(four), &[4]), READ_ONLY);
    check("&'static [T]", || Array::new(&[1_u16, 2, 3, 4][..], &[4]), READ_ONLY);
    check("Arc<Vec<T>>", || Array::new(Arc::new(four.to_vec()), &[4]), READ_ONLY);
    check("an own storage that lends", || Array::new(Borrowable(four.to_vec()), &[4]), WHEN_OWNED);
    check("Arc of one that lends", || Array::new(Arc::new(Borrowable(four.to_vec())), &[4]), READ_ONLY);
}

/// A consumer may write bytes that are no `bool`, and Rust code may read them unchecked, for example in the drop of
/// the struct. `HostVec` and leases check what they read.
#[test]
fn bools_of_plain_rust_code() {
    /// Counts the `true` elements when it is dropped.
    #[derive(CudaArray)]
    #[cuda_array(shape = [4])]
    struct Flags<S: AsRef<[bool]>> {
        #[cuda_array(data)]
        flags: S,
        #[cuda_array(default)]
        set: Count,
    }
    impl<S: AsRef<[bool]>> Drop for Flags<S> {
        fn drop(&mut self) {
            self.flags.as_ref().iter().filter(|flag| **flag).for_each(|_| self.set.add());
        }
    }
    let count = Count::default();
    let flags = Flags { flags: vec![true, false, true, true], set: count.clone() };
    let tensor = flags.into_dlpack().unwrap_or_else(|refused| panic!("{}", refused.error));
    let refused = Array::<LeaseMut<bool>>::from_dlpack(tensor).unwrap_err();
    assert_eq!((refused.kind(), count.get()), (ErrorKind::ReadOnly, 3));

    check("Vec<bool>", || Array::new(vec![true; 4], &[4]), READ_ONLY);
    check("Box<[bool]>", || Array::new(Box::<[bool]>::from([true; 4]), &[4]), READ_ONLY);
    check("Vec<[bool; 2]>", || Array::new(vec![[true; 2]; 4], &[4]), READ_ONLY);
    check("ndarray's", || NdArray(ndarray::Array1::from_elem(4, true)), READ_ONLY);
    check("HostVec<bool>", || Array::new(HostVec::from([true; 4]), &[4]), WRITABLE);
    check("Lease<bool>", || Array::new(Lease::from_owner([true; 4]), &[4]), READ_ONLY);
    // Within the program only valid `bool` values are written.
    let mut array = Array::new(vec![true, false], &[2]);
    array.map_inplace(|flag: bool| !flag).unwrap();
    assert_eq!(array.data, [false, true]);
}

/// Memory that Rust code never borrows is writable for all.
#[test]
fn storages_made_for_sharing() {
    let four = [1_u16, 2, 3, 4];
    check("HostVec", || Array::new(HostVec::from(four), &[4]), WRITABLE);
    check("HostBuffer", || Array::new(HostBuffer::zeroed(DType::F64, 4).unwrap(), &[4]), WRITABLE);
    check("Arc<HostVec>", || Array::new(Arc::new(HostVec::from(four)), &[4]), WRITABLE);
    check("pinned memory", || Array::new(Pinned(HostVec::from(four)), &[4]), WRITABLE);
    check("GPU memory", || Array::new(Claimed::gpu::<f32>(4, 0), &[4]), WRITABLE);
}

/// A storage wrapper has the rule of the storage inside.
#[test]
fn shared_storages() {
    let four = || HostVec::from([1_u16, 2, 3, 4]);
    check("SharedBuffer(HostVec)", || Array::new(SharedBuffer::new(four()), &[4]), WRITABLE);
    check("SharedBuffer(Vec)", || Array::new(SharedBuffer::new(vec![1_u16; 4]), &[4]), READ_ONLY);
    check(
        "SharedBuffer(HostVec), read-only",
        || Array::new(SharedBuffer::new(four()).read_only(), &[4]),
        READ_ONLY,
    );
    check(
        "SharedBuffer(Arc<[T]>)",
        || Array::new(SharedBuffer::new(Arc::<[u8]>::from([1; 4])), &[4]),
        READ_ONLY,
    );
    let part = || SharedBuffer::new(four()).read_only().byte_offset(2).unwrap();
    check("part of Shared, read-only", move || Array::new(part(), &[3]), READ_ONLY);
}

/// Imports keep the mutability of their producer; a read-only lease never exports as writable.
#[test]
fn leases() {
    fn import<S>(flags: u64) -> Array<S>
    where
        Array<S>: FromArray,
    {
        let (ledger, tensor) = Claims { flags, ..Claims::new(&[4]) }.send::<Versioned>();
        // The ledger may be dropped first: the deleter frees what remains.
        drop(ledger);
        Array::from_dlpack(tensor).unwrap()
    }
    check("LeaseMut", || import::<LeaseMut<i16>>(0), WRITABLE);
    check("Lease", || import::<Lease<i16>>(0), READ_ONLY);
    check("Lease of a read-only array", || import::<Lease<i16>>(FLAG_READ_ONLY), READ_ONLY);
    check("Shared", || import::<SharedBuffer>(0), WRITABLE);
    check("SharedBuffer of a read-only array", || import::<SharedBuffer>(FLAG_READ_ONLY), READ_ONLY);
    check("a copy", || import::<Vec<i16>>(FLAG_READ_ONLY), WHEN_OWNED);
    check("a copy for sharing", || import::<HostVec<i16>>(FLAG_READ_ONLY), WRITABLE);
}

/// The type of a raw pointer determines the mutability.
#[test]
fn raw_pointers() {
    macro_rules! raw {
        ($name:ident, $pointer:ty $(, $($word:tt)*)?) => {
            #[derive(CudaArray)]
            #[cuda_array(shape = [4], export)]
            struct $name {
                // SAFETY: the owner keeps the memory of four elements alive.
                #[cuda_array(data(unsafe_raw $($($word)*)?))]
                pointer: $pointer,
                #[cuda_array(device)]
                device: Device,
                #[cuda_array(owner)]
                owner: Owner,
            }

            // SAFETY: the pointer refers to memory of the owner, which may move to any thread.
            unsafe impl Send for $name {}

            // SAFETY: as above; nothing reads through the struct.
            unsafe impl Sync for $name {}
        };
    }
    raw!(Mutable, *mut u16);
    raw!(Constant, *const u16);
    raw!(NotNull, NonNull<u16>);
    raw!(Address, usize, , element = u16);
    let memory = || {
        let memory = HostVec::from([1_u16, 2, 3, 4]);
        let address = Array::new(memory, &[4]);
        let start = std::ptr::with_exposed_provenance_mut::<u16>(address.info().unwrap().address());
        (start, Device::CPU, Owner::new(address))
    };
    check(
        "*mut T",
        || {
            let (pointer, device, owner) = memory();
            Mutable { pointer, device, owner }
        },
        WRITABLE,
    );
    check(
        "*const T",
        || {
            let (pointer, device, owner) = memory();
            Constant { pointer, device, owner }
        },
        READ_ONLY,
    );
    let not_null = || {
        let (pointer, device, owner) = memory();
        NotNull { pointer: NonNull::new(pointer).unwrap(), device, owner }
    };
    check("NonNull<T>", not_null, WRITABLE);
    let address = || {
        let (pointer, device, owner) = memory();
        Address { pointer: pointer.addr(), device, owner }
    };
    check("an address", address, WRITABLE);
}

/// The attribute `readonly` overrides each storage.
#[test]
fn the_word_readonly() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [4], readonly)]
    struct Frozen<S> {
        #[cuda_array(data)]
        data: S,
    }
    check("HostVec", || Frozen { data: HostVec::<u16>::zeroed(4) }, READ_ONLY);
    check("Vec", || Frozen { data: vec![1_u16; 4] }, READ_ONLY);
    check("GPU memory", || Frozen { data: Claimed::gpu::<f32>(4, 0) }, READ_ONLY);
    let gpu = Frozen { data: Claimed::gpu::<f32>(4, 0) };
    assert!(gpu.to_cai().unwrap().data.1, "R19: in both protocols");
}

/// Writes through an export change the memory.
#[test]
fn writes_arrive() {
    let array = Arc::new(Array::new(HostVec::from([1_i32, 2, 3, 4]), &[2, 2]));
    let mut lease: Array<LeaseMut<i32>> = Array::from_dlpack(array.share_dlpack().unwrap()).unwrap();
    lease.map_inplace(|element: i32| 10 * element).unwrap();
    assert_eq!(array.to_vec::<i32>().unwrap(), [10, 20, 30, 40]);
}
