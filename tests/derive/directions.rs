//! `export`, `import` and `readonly`, and the `owner` of a struct with a storage.

use std::sync::Arc;

use interop_core::protocols::dlpack::Legacy;
use interop_core::{CudaArray, ErrorKind, FromArray, HostVec, Lease, SharedBuffer, StreamHandle};

use crate::support::{Foreign, count};

/// A struct that borrows, with a field that no import could fill.
#[derive(CudaArray)]
#[cuda_array(export, shape = [len, 2])]
struct Outgoing<'a, S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
    name: &'a str,
    #[cuda_array(owner)]
    context: Arc<str>,
}

#[derive(CudaArray)]
#[cuda_array(import)]
struct Incoming {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: Vec<usize>,
    #[cuda_array(owner, default = Some("context".into()))]
    context: Option<String>,
}

#[derive(CudaArray)]
#[cuda_array(readonly)]
struct Constant<S> {
    #[cuda_array(data)]
    values: S,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

/// Evaluates to whether a type implements a trait, without a bound: an inherent constant takes precedence over a
/// trait's.
macro_rules! implements {
    ($type:ty: $trait:path) => {{
        #[allow(dead_code, reason = "one of the two is not chosen")]
        trait No {
            const IT_DOES: bool = false;
        }

        struct Probe<T>(std::marker::PhantomData<T>);

        impl<T> No for Probe<T> {}

        #[allow(dead_code, reason = "one of the two is not chosen")]
        impl<T: $trait> Probe<T> {
            const IT_DOES: bool = true;
        }

        Probe::<$type>::IT_DOES
    }};
}

#[test]
fn each_half_is_there_only_if_it_was_asked_for() {
    assert!(implements!(Outgoing<'static, Vec<f32>>: CudaArray));
    assert!(!implements!(Outgoing<'static, Vec<f32>>: FromArray));
    assert!(implements!(Incoming: FromArray));
    assert!(!implements!(Incoming: CudaArray));
    assert!(implements!(Constant<Vec<f32>>: CudaArray) && implements!(Constant<Vec<f32>>: FromArray));
    assert!(implements!(Constant<&'static [f32]>: CudaArray));
    assert!(!implements!(Constant<&'static [f32]>: FromArray), "a storage that only exports");
}

#[test]
fn a_struct_that_borrows_is_exported() {
    let name = String::from("name");
    let outgoing = Outgoing { values: count(6), len: 3, name: &name, context: "context".into() };
    assert_eq!(outgoing.info().unwrap().shape(), [3, 2]);
    assert_eq!((outgoing.name, &*outgoing.context), ("name", "context"));
}

#[test]
fn an_export_keeps_the_owner_field_alive() {
    let context: Arc<str> = "context".into();
    let outgoing = Outgoing { values: count(6), len: 3, name: "name", context: context.clone() };
    let tensor = outgoing.into_dlpack().unwrap();
    assert_eq!(Arc::strong_count(&context), 2);
    drop(tensor);
    assert_eq!(Arc::strong_count(&context), 1);
}

#[test]
fn a_struct_that_only_imports_is_filled() {
    let (import, receipt) = Foreign::new(&count(6), &[3, 2]).send();
    let incoming = Incoming::from_import(import).unwrap();
    assert_eq!((incoming.shape.as_slice(), incoming.context.as_deref()), (&[3, 2][..], Some("context")));
    assert_eq!(receipt.releases(), 0);
    drop(incoming.values);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn readonly_makes_every_export_read_only() {
    let constant = Constant { values: HostVec::from(count(4)), shape: [4] };
    assert!(constant.info().unwrap().is_read_only());
    let shared = Arc::new(constant);
    let error = shared.share_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "the legacy form cannot say it");
    let again = Constant::<SharedBuffer>::from_dlpack(shared.share_dlpack().unwrap()).unwrap();
    assert!(again.info().unwrap().is_read_only());
    assert_eq!(again.shape, [4]);
    drop(again.values);
}

#[test]
fn memory_that_others_see_as_constant_is_read_only_by_itself() {
    // The value is shared and immutable in Rust, so no form of the export may be writable.
    let slice: Arc<[f32]> = count(4).into();
    let outgoing = Arc::new(Outgoing { values: slice, len: 2, name: "", context: "".into() });
    assert!(outgoing.info().unwrap().is_read_only());
    assert_eq!(
        outgoing.share_dlpack_as::<Legacy>(StreamHandle::LegacyDefault).err().unwrap().kind(),
        ErrorKind::ReadOnly
    );
}
