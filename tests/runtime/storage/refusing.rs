//! Storages that refuse: memory that no protocol can describe, and owners that lend nothing.
#![expect(unsafe_code, reason = "a storage promises in an unsafe impl what its memory is")]

use std::sync::Arc;

use interop_core::storage::MemoryRegion;
use interop_core::{CudaArray, Error, ErrorKind, Lease, LeaseMut, Result, SharedBuffer, Storage};

use crate::support::arrays::Array;

/// As the tensors of a library for several devices.
#[derive(Debug)]
enum Tensor {
    Cpu(Vec<f32>),
    Metal,
}

fn refusal() -> Error {
    Error::new(ErrorKind::Device, "device", "Metal", "CPU or CUDA")
}

// SAFETY: 1 to 5: as for the vector; a variant without memory describes none.
unsafe impl Storage for Tensor {
    fn memory(&self) -> Result<MemoryRegion> {
        match self {
            Self::Cpu(elements) => elements.memory(),
            Self::Metal => Err(refusal()),
        }
    }
}

#[test]
fn refusals_are_those_of_every_use() {
    assert_eq!(Array::new(Tensor::Cpu(vec![1.0]), &[1]).to_vec::<f32>().unwrap(), [1.0]);
    let array = Array::new(Tensor::Metal, &[1]);
    assert_eq!(array.info().unwrap_err(), refusal());
    assert_eq!(array.view::<f32, 1>().unwrap_err(), refusal());
    let refused = array.into_dlpack().unwrap_err();
    assert_eq!(refused.error, refusal());
    let shared = Arc::new(*refused.value);
    assert_eq!(shared.share_dlpack().unwrap_err(), refusal());
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn refusals_reach_through_handles() {
    let shared = SharedBuffer::new(Tensor::Metal);
    assert_eq!(format!("{shared:?}"), format!("SharedBuffer({})", refusal()));
    assert_eq!(shared.byte_offset(0).unwrap_err(), refusal());
    assert_eq!(shared.reinterpret(interop_core::DType::U8, 0..0).unwrap_err(), refusal());
    assert_eq!(Array::new(shared, &[1]).info().unwrap_err(), refusal());
    let erased: Arc<dyn Storage + Send + Sync> = Arc::new(Tensor::Metal);
    assert_eq!(Array::new(erased, &[1]).info().unwrap_err(), refusal());
}

#[test]
fn owners_that_lend_nothing_come_back() {
    fn elements(tensor: &mut Tensor) -> Result<&mut [f32]> {
        match tensor {
            Tensor::Cpu(elements) => Ok(elements),
            Tensor::Metal => Err(refusal()),
        }
    }

    let refused = Lease::<f32>::try_from_owner_with(Tensor::Metal, |_| Err(refusal())).unwrap_err();
    assert!(matches!(*refused.value, Tensor::Metal) && refused.error == refusal());
    let refused = LeaseMut::<f32>::try_from_owner_with("text".to_string(), |_| Err(refusal())).unwrap_err();
    assert_eq!((refused.value.as_str(), refused.error), ("text", refusal()));
    let mut array =
        Array::new(LeaseMut::try_from_owner_with(Tensor::Cpu(vec![2.0]), elements).unwrap(), &[1]);
    array.fill(3.0_f32).unwrap();
    assert!(matches!(array.data.try_into_owner().unwrap(), Tensor::Cpu(elements) if elements == [3.0]));
}
