//! `device = ...`: the device that an import must be on.

use interop_core::storage::Owner;
use interop_core::{CudaArray, Device, ErrorKind, FromArray, Lease};

use crate::support::{Foreign, count};

#[derive(Debug, CudaArray)]
#[cuda_array(device = "cuda")]
struct OnGpu {
    #[cuda_array(data)]
    values: Lease<f32>,
    #[cuda_array(shape)]
    shape: [usize; 1],
}

#[derive(Debug, CudaArray)]
#[cuda_array(device = ["cpu", "cuda_host"], shape = [len])]
struct OnHost<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

// SAFETY: `owner` keeps the memory behind the pointer alive until the struct is dropped.
#[derive(Debug, CudaArray)]
#[cuda_array(import, device = "cuda_managed", shape = [len])]
#[expect(dead_code, reason = "only whether it is made matters")]
struct Raw {
    #[cuda_array(data(unsafe_raw))]
    first: *const f32,
    len: usize,
    #[cuda_array(device)]
    device: Device,
    #[cuda_array(owner)]
    owner: Owner,
}

const EVERYWHERE: [Device; 4] = [Device::CPU, Device::cuda(0), Device::CUDA_HOST, Device::CUDA_MANAGED];

/// Returns the result of an import from each device: an error message, or `None`.
fn answers<T: FromArray>() -> [Option<String>; 4] {
    EVERYWHERE.map(|device| {
        let (import, receipt) = Foreign { device, ..Foreign::new(&count(3), &[3]) }.send();
        let answer = T::from_import(import).err().map(|refused| {
            assert_eq!(refused.error.kind(), ErrorKind::Device);
            assert_eq!(refused.value.info().device(), device); // the import is returned unchanged
            refused.error.to_string()
        });
        assert_eq!(receipt.releases(), 1);
        answer
    })
}

#[test]
fn one_device() {
    let only = |found: &str| Some(format!("`OnGpu`: `device`: found {found}, allowed: CUDA (2)"));
    let expected = [only("CPU (1)"), None, only("CUDAHost (3)"), only("CUDAManaged (13)")];
    assert_eq!(answers::<OnGpu>(), expected);
}

#[test]
fn one_of_several() {
    let either =
        |found: &str| Some(format!("`OnHost`: `device`: found {found}, allowed: CPU (1) or CUDAHost (3)"));
    let expected = [None, either("CUDA (2), ordinal 0"), None, either("CUDAManaged (13)")];
    assert_eq!(answers::<OnHost<Lease<f32>>>(), expected);
    // The `device` attribute is checked before the storage, which may refuse for other reasons.
    assert_eq!(answers::<OnHost<Vec<f32>>>(), expected);
}

#[test]
fn behind_a_pointer_too() {
    let [cpu, cuda, pinned, managed] = answers::<Raw>().map(|answer| answer.is_none());
    assert_eq!([cpu, cuda, pinned, managed], [false, false, false, true]);
}

#[test]
fn an_export_is_where_its_storage_is() {
    let array = OnHost { values: vec![1.0_f32; 2], len: 2 };
    assert_eq!(array.info().unwrap().device(), Device::CPU);
}
