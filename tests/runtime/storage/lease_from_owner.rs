//! Leases of memory that a value lends.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use interop_core::storage::Mutability;
use interop_core::{CudaArray, Element, ErrorKind, FromArray, Lease, LeaseMut, Storage};

use crate::support::arrays::{Array, Fortran};

/// Lends elements that are stored inside the value, and reports their final values when it is dropped.
struct Inline {
    elements: [i16; 6],
    end: Sender<[i16; 6]>,
}

impl AsRef<[i16]> for Inline {
    fn as_ref(&self) -> &[i16] {
        &self.elements
    }
}

impl AsMut<[i16]> for Inline {
    fn as_mut(&mut self) -> &mut [i16] {
        &mut self.elements
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        self.end.send(self.elements).unwrap();
    }
}

/// The value does not move while the lease is moved, exported and imported. It is dropped once, after all of them.
#[test]
fn a_value_lends_its_elements_in_place() {
    let (end, ended) = channel();
    let lease = LeaseMut::<i16>::from_owner(Inline { elements: [0, 1, 2, 3, 4, 5], end });
    let memory = lease.memory().unwrap();
    assert_eq!((memory.mutability, memory.range.len(), memory.element.size()), (Mutability::Writable, 12, 2));
    let mut array = Array::new(lease, &[6]);
    array.map_inplace(|element: i16| element * 2).unwrap();
    let tensor = array.into_dlpack().unwrap();
    assert!(!tensor.info().unwrap().is_read_only());
    let mut again: Array<LeaseMut<i16>> = Array::from_dlpack(tensor).unwrap();
    assert_eq!(again.info().unwrap().address(), memory.address);
    again.map_inplace(|element: i16| element + 1).unwrap();
    assert!(ended.try_recv().is_err());
    std::thread::spawn(|| drop(again)).join().unwrap();
    assert_eq!(ended.iter().collect::<Vec<_>>(), [[1, 3, 5, 7, 9, 11]]);
}

/// Memory lent for reading is never written and has the memory order of the struct.
#[test]
fn a_value_lends_its_elements_for_reading() {
    let (end, ended) = channel();
    let lease = Lease::<i16>::from_owner(Inline { elements: [0, 1, 2, 3, 4, 5], end });
    let address = lease.memory().unwrap().address;
    let table = Arc::new(Fortran { data: lease, rows: 2, columns: 3 });
    assert_eq!(table.to_vec::<i16>().unwrap(), [0, 2, 4, 1, 3, 5]);
    let tensor = table.share_dlpack().unwrap();
    let info = tensor.info().unwrap();
    assert_eq!((info.address(), info.strides(), info.is_read_only()), (address, &[1, 2][..], true));
    drop(table);
    assert!(ended.try_recv().is_err());
    drop(tensor);
    assert_eq!(ended.iter().count(), 1);
}

/// Static data, owned heap memory, and empty memory.
#[test]
fn many_types_lend() {
    fn lent<T: Element + PartialEq + std::fmt::Debug>(owner: impl AsRef<[T]> + Send + 'static, want: &[T]) {
        let array = Array::new(Lease::from_owner(owner), &[want.len()]);
        assert_eq!(array.to_vec::<T>().unwrap(), want);
    }
    lent(vec![1.0_f32, 2.0], &[1.0, 2.0]);
    lent(Cow::Borrowed(&[true, false][..]), &[true, false]);
    lent([1_u64], &[1]);
    lent(Arc::<[u8]>::from([1, 2]), &[1, 2]);
    lent("ab", b"ab");
    lent([0_i32; 0], &[]);
}

/// A value that panics while lending is dropped.
#[test]
fn a_panic_drops_the_value() {
    struct Mute(#[expect(dead_code, reason = "kept for its drop")] Arc<()>);

    impl AsRef<[u8]> for Mute {
        fn as_ref(&self) -> &[u8] {
            panic!("no elements")
        }
    }

    let count = Arc::new(());
    let value = Mute(count.clone());
    catch_unwind(AssertUnwindSafe(|| Lease::<u8>::from_owner(value))).unwrap_err();
    assert_eq!(Arc::strong_count(&count), 1);
}

/// An imported lease, or one of another value, does not contain the requested value: the lease is returned.
#[test]
fn only_the_value_that_lends_comes_back() {
    let (end, ended) = channel();
    let lease = LeaseMut::from_owner(Inline { elements: [7; 6], end });
    let lease = lease.try_into_owner::<[i16; 6]>().unwrap_err();
    let inline = lease.try_into_owner::<Inline>().ok().unwrap();
    assert!(ended.try_recv().is_err(), "the value lives on");
    drop(inline);
    assert_eq!(ended.recv(), Ok([7; 6]));

    let array = Array::new(vec![1_i16; 4], &[4]);
    let imported = Array::<Lease<i16>>::from_dlpack(array.into_dlpack().unwrap()).unwrap();
    assert!(imported.data.try_into_owner::<Vec<i16>>().is_err());
}

/// The bytes need the right size and alignment, or they are returned with an error.
#[test]
fn bytes_are_lent_as_elements() {
    #[repr(align(8))]
    struct Aligned([u8; 16], usize);
    impl AsRef<[u8]> for Aligned {
        fn as_ref(&self) -> &[u8] {
            &self.0[self.1..]
        }
    }
    let lease = Lease::<u32>::try_from_bytes(Aligned([1; 16], 4)).ok().unwrap();
    assert_eq!(lease.memory().unwrap().range.len(), 12);
    let array = Array::new(lease, &[3]);
    assert_eq!(array.to_vec::<u32>().unwrap(), [0x0101_0101; 3]);
    for (offset, kind) in [(1, ErrorKind::Alignment), (6, ErrorKind::Alignment)] {
        let refused = Lease::<u32>::try_from_bytes(Aligned([1; 16], offset)).err().unwrap();
        assert_eq!((refused.error.kind(), refused.value.1), (kind, offset));
    }
    let refused = Lease::<u64>::try_from_bytes(vec![0_u8; 0]).err();
    assert!(refused.is_none(), "no bytes are no elements");
    let refused = Lease::<[u16; 3]>::try_from_bytes(Aligned([1; 16], 0)).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::OutOfBounds);
}
