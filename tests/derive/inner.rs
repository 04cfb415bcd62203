//! `inner`: a struct around another array struct.
#![expect(unsafe_code, reason = "one array struct is implemented by hand")]

use std::cell::Cell;
use std::sync::Arc;

use interop_core::protocols::RawDescriptor;
use interop_core::storage::Mutability;
use interop_core::{ArrayInfo, CudaArray, DType, Device, ErrorKind, FromArray, HostVec};

use crate::support::{Foreign, count};

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [height, width], order = "F")]
struct Image {
    #[cuda_array(data)]
    pixels: HostVec<f32>,
    height: usize,
    width: usize,
}

thread_local! {
    static DEFAULTS: Cell<usize> = const { Cell::new(0) };
}

fn mode() -> String {
    DEFAULTS.set(DEFAULTS.get() + 1);
    "L".into()
}

#[derive(Debug, CudaArray)]
struct Named {
    #[cuda_array(inner)]
    image: Image,
    #[cuda_array(default = mode())]
    mode: String,
}

#[derive(CudaArray)]
#[cuda_array(readonly, export)]
struct Page(#[cuda_array(inner)] Named, &'static str);

#[derive(CudaArray)]
struct Tagged<A, const N: usize> {
    #[cuda_array(default)]
    tag: Option<[u8; N]>,
    #[cuda_array(inner)]
    array: A,
}

#[derive(CudaArray)]
#[cuda_array(device = "cpu", import)]
struct OnHost {
    #[cuda_array(inner)]
    image: Image,
}

fn image() -> Image {
    Image { pixels: HostVec::from(count(6)), height: 2, width: 3 }
}

#[test]
fn exports_are_those_of_the_inner_struct() {
    let (inner, outer) = (image().info().unwrap(), Named { image: image(), mode: mode() });
    let info = outer.info().unwrap();
    assert_eq!(
        (info.shape(), info.strides(), info.mutability()),
        (&[2, 3][..], &[1, 2][..], inner.mutability())
    );
    assert_eq!(info.address(), outer.image.info().unwrap().address());
    assert_eq!(outer.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    let outer = Arc::new(outer);
    let tensor = outer.share_dlpack().unwrap();
    assert_eq!(Arc::strong_count(&outer), 2);
    drop(tensor);
    assert_eq!(Arc::strong_count(&outer), 1);
}

#[test]
fn readonly_covers_the_inner_struct() {
    let page = Page(Named { image: image(), mode: mode() }, "cover");
    assert_eq!((page.info().unwrap().mutability(), page.1), (Mutability::ReadOnly, "cover"));
}

#[test]
fn imports_fill_the_inner_struct() {
    let tensor = Named { image: image(), mode: "RGB".into() }.into_dlpack().unwrap();
    let back = Named::from_dlpack(tensor).unwrap();
    assert_eq!((back.image.height, back.image.width, back.mode.as_str()), (2, 3, "L"));
    assert_eq!(back.image.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    let tensor = back.into_dlpack().unwrap();
    let tagged = Tagged::<Named, 4>::from_dlpack(tensor).unwrap();
    assert_eq!(
        (tagged.tag, tagged.array.image.width, tagged.info().unwrap().shape()),
        (None, 3, &[2, 3][..])
    );
}

/// The `default` of another field runs before the inner struct refuses. The import comes back, and can be used again.
#[test]
fn refusals_of_the_inner_struct_return_the_import() {
    let before = DEFAULTS.get();
    let (import, receipt) = Foreign::new(&count(6), &[6]).send();
    let refused = Named::from_import(import).unwrap_err();
    assert_eq!((refused.error.kind(), DEFAULTS.get()), (ErrorKind::Rank, before + 1));
    assert_eq!(receipt.releases(), 0);
    drop(refused);
    assert_eq!(receipt.releases(), 1);
}

#[test]
fn device_words_hold_for_the_inner_struct() {
    let array = Foreign { device: Device::CUDA_MANAGED, ..Foreign::new(&count(6), &[2, 3]) };
    let refused = OnHost::from_import(array.send().0).err().unwrap();
    assert_eq!(refused.error.kind(), ErrorKind::Device);
    let (import, _) = Foreign::new(&count(6), &[2, 3]).send();
    assert_eq!(OnHost::from_import(import).unwrap().image.width, 3);
}

/// As a Python class holds the struct that the core crate shares.
#[derive(CudaArray)]
struct Handle {
    #[cuda_array(inner)]
    image: Arc<Image>,
}

/// As a vector that other handles read.
#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row {
    #[cuda_array(data)]
    values: Vec<f32>,
    len: usize,
}

#[test]
fn handles_of_an_array_are_arrays() {
    let image = Arc::new(image());
    let tensor = Handle { image: image.clone() }.into_dlpack().unwrap();
    assert_eq!((Arc::strong_count(&image), tensor.info().unwrap().mutability()), (2, Mutability::Writable));
    let back = Handle::from_dlpack(tensor).unwrap();
    assert_eq!((Arc::strong_count(&image), Arc::strong_count(&back.image)), (1, 1));
    assert_eq!(back.to_vec::<f32>().unwrap(), image.to_vec::<f32>().unwrap());

    let row = Arc::new(Row { values: count(2), len: 2 });
    assert_eq!(row.clone().into_dlpack().unwrap().info().unwrap().mutability(), Mutability::ReadOnly);
    let any: Arc<dyn CudaArray + Send + Sync> = row;
    assert_eq!(any.info().unwrap().shape(), [2]);
}

/// Four numbers in a struct that implements the trait by hand.
struct Own(Vec<u8>);

// SAFETY: the bytes are owned, initialized host memory that only `&mut self` could move. They are described as read-only,
// and no device uses them.
unsafe impl CudaArray for Own {
    fn info(&self) -> interop_core::Result<ArrayInfo> {
        let shape = [self.0.len() as i64];
        let address = self.0.as_ptr().expose_provenance();
        let descriptor =
            RawDescriptor { dtype: DType::U8, ..RawDescriptor::new(address, Device::CPU, &shape) };
        descriptor.validate()
    }
}

#[derive(CudaArray)]
#[cuda_array(export)]
struct Around {
    #[cuda_array(inner)]
    own: Own,
}

#[test]
fn implementations_by_hand_can_be_inner() {
    let around = Around { own: Own(vec![1, 2, 3]) };
    assert_eq!(around.to_vec::<u8>().unwrap(), [1, 2, 3]);
    assert!(around.into_dlpack().is_ok());
}
