//! d
use interop_core::dlpack::Versioned;
use interop_core::{CudaArray, Device, Element, FromArray, HostVec, Lease, Owner, StreamHandle};

#[derive(CudaArray)]
#[cuda_array(shape = [height, width, 3])]
struct Image<S = Vec<f32>> {
    #[cuda_array(data)]
    pixels: S,
    height: usize,
    width: u16,
    #[cuda_array(stream)]
    stream: StreamHandle,
    #[cuda_array(default = "x".to_string())]
    name: String,
}

#[derive(CudaArray)]
struct Plain {
    #[cuda_array(data)]
    pixels: Vec<f32>,
    #[cuda_array(shape)]
    shape: [usize; 2],
    #[cuda_array(strides(bytes))]
    strides: Option<Vec<isize>>,
    #[cuda_array(stream)]
    stream: StreamHandle,
}
#[derive(CudaArray)]
#[cuda_array(shape=[n, self.n, N])]
struct Raw<const N: usize> {
    #[cuda_array(data(unsafe_raw))]
    pixels: *mut f32,
    n: i32,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}
#[derive(CudaArray)]
#[cuda_array(shape=[self.1], readonly)]
struct Tup(
    #[cuda_array(data(unsafe_raw, element = f32))] u64,
    i8,
    #[cuda_array(device)] Device,
    #[cuda_array(owner)] Owner,
);

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct P<T, U> {
    x: f32,
    y: [T; 2],
    m: std::marker::PhantomData<U>,
}
#[derive(Clone, Copy, Element)]
#[repr(transparent)]
struct Q(f32);

#[test]
fn t() {
    let image = Image {
        pixels: vec![0.0f32; 24],
        height: 2,
        width: 4,
        stream: StreamHandle::NothingPending,
        name: String::new(),
    };
    let t = image.into_dlpack::<Versioned>().unwrap();
    let i: Image<Lease<f32>> = Image::from_dlpack(t).unwrap();
    assert_eq!(i.name, "x");
}
