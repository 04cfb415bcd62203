//! Generic parameters, lifetimes, where clauses, and the bounds of the impls.

use std::marker::PhantomData;
use std::sync::Arc;

use interop_core::launch::{AsStream, FromStream};
use interop_core::{CudaArray, Element, FromArray, Lease, Storage, StreamHandle};

use crate::support::{Foreign, count, handle};

/// All kinds of parameters at once. The struct states only the bounds that it needs itself.
#[derive(CudaArray)]
#[cuda_array(shape = [n, N, 1])]
struct All<'a, T, I, H, M = (), const N: usize = 2, const UNUSED: bool = true>
where
    I: Copy,
{
    #[cuda_array(data)]
    values: Lease<T>,
    n: I,
    #[cuda_array(stream)]
    stream: H,
    #[cuda_array(default)]
    marker: PhantomData<(&'a (), M)>,
}

/// A name with `r#` is the same name as without it.
#[derive(CudaArray)]
#[cuda_array(shape = [n, N])]
struct RawNames<r#T, const r#N: usize> {
    #[cuda_array(data)]
    values: Vec<T>,
    n: usize,
}

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct RawPart<r#T> {
    value: T,
}

trait Backend {
    type Buffer;
    type Stream;
}

struct Host;

impl Backend for Host {
    type Buffer = Vec<f32>;
    type Stream = Option<StreamHandle>;
}

/// Fields whose types are projections.
#[derive(CudaArray)]
struct Tensor<B: Backend, const RANK: usize> {
    #[cuda_array(data)]
    buffer: B::Buffer,
    #[cuda_array(shape)]
    shape: [usize; RANK],
    #[cuda_array(strides)]
    strides: Option<[isize; RANK]>,
    #[cuda_array(stream)]
    stream: <B as Backend>::Stream,
}

/// A default type, and a bound that is unknown to the derive.
#[derive(CudaArray)]
struct Defaulted<S: Storage + Send = Arc<[u8]>> {
    #[cuda_array(data)]
    bytes: S,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

#[test]
fn all_parameters_at_once() {
    let (import, receipt) = Foreign { stream: handle(0x40), ..Foreign::new(&count(6), &[3, 2, 1]) }.send();
    let all = All::<f32, u8, StreamHandle>::from_import(import).unwrap();
    assert_eq!((all.n, all.stream, all.marker), (3, handle(0x40), PhantomData));
    assert_eq!(all.info().unwrap().shape(), [3, 2, 1]);
    assert_eq!(all.info().unwrap().address(), receipt.address);
    drop(all.values);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn parameters_with_raw_names() {
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let names = RawNames::<f32, 3>::from_import(import).unwrap();
    assert_eq!((names.n, names.info().unwrap().shape()), (2, &[2, 3][..]));
    assert_eq!(names.values, count(6));
    assert_eq!((RawPart { value: 1_u8 }.value, RawPart::<u8>::TYPE.size()), (1, 1));
}

#[test]
fn a_half_asks_only_for_what_it_needs() {
    // An import cannot fill the stream of this struct; exports are not affected.
    struct Own;

    impl AsStream for Own {
        fn as_stream(&self) -> StreamHandle {
            handle(0x50)
        }
    }

    fn stream_of<T: Element, H: AsStream>(all: &All<'_, T, u8, H>) -> StreamHandle {
        all.info().unwrap().stream().unwrap()
    }

    fn import<T: Element, H: FromStream + AsStream>(from: interop_core::Import) -> All<'static, T, u8, H> {
        All::from_import(from).unwrap()
    }

    let (from, _) = Foreign::new(&count(2), &[1, 2, 1]).send();
    let All { values, n, stream, marker } = import::<f32, Option<StreamHandle>>(from);
    assert_eq!(stream, None);
    assert_eq!(stream_of(&All { values, n, stream: Own, marker }), handle(0x50));
}

#[test]
fn projections_are_fields() {
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    let tensor = Tensor::<Host, 2>::from_import(import).unwrap();
    assert_eq!((&tensor.buffer, tensor.shape), (&count(6), [2, 3]));
    assert_eq!((tensor.strides, tensor.stream), (Some([3, 1]), None));
    assert_eq!(tensor.info().unwrap().shape(), [2, 3]);
}

#[test]
fn default_types_are_those_of_the_struct_alone() {
    let defaulted: Defaulted = Defaulted { bytes: [1, 2, 3].into(), shape: [3] };
    assert_eq!(defaulted.info().unwrap().numel(), 3);
    let other = Defaulted { bytes: vec![1_u8], shape: [1] };
    assert_eq!(other.info().unwrap().numel(), 1);
}
