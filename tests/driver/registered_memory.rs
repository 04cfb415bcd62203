//! R35: registered host memory that has different addresses on devices and on the host.
#![expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]

use interop_core::cuda::{finish_releases, pointer_attributes};
use interop_core::protocols::RawDescriptor;
use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::Versioned;
use interop_core::storage::Owner;
use interop_core::{CudaArray, DType, Device, FromArray, Import, LeaseMut, StreamHandle};

use crate::counted_imports::claim;
use crate::cuda_program::{Place, cu, done};
use crate::exclusive_driver::turn;
use crate::support::arrays::Array;
use crate::support::signed;

/// The program's own host memory, registered so that devices can access it.
#[derive(Debug)]
pub(crate) struct Registered(Vec<u8>);

impl Registered {
    pub(crate) fn new(count: usize) -> Self {
        let mut memory = vec![0; count];
        let first = memory.as_mut_ptr().expose_provenance() as u64;
        Place::primary(0).with(|| {
            done(cu!("cuMemHostRegister_v2", first => u64, count => usize, 0 => u32));
        });
        Self(memory)
    }

    pub(crate) fn at(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// The address of the memory on devices.
    pub(crate) fn on_devices(&self) -> usize {
        let (mut address, host) = (0, self.at() as u64);
        Place::primary(0).with(|| {
            done(cu!("cuMemHostGetDevicePointer_v2", &raw mut address => *mut u64, host => u64, 0 => u32));
        });
        signed(address)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let first = self.at() as u64;
        Place::primary(0).with(|| done(cu!("cuMemHostUnregister", first => u64)));
    }
}

/// The number of elements in each import. An element has two bytes.
const COUNT: usize = 8;
const BYTES: usize = 2 * COUNT;

/// A tensor of the elements from `address` on, forwards.
fn by_tensor(address: usize) -> Import {
    let (_, tensor) = claim(address, COUNT, Device::CUDA_HOST).send::<Versioned>();
    Import::from_dlpack(tensor).unwrap()
}

/// An interface dict of the elements from `address` on, backwards.
fn by_dict(address: usize) -> Import {
    let interface = CudaArrayInterface {
        shape: vec![signed(COUNT)],
        typestr: "<i2".into(),
        data: (address + BYTES - 2, false),
        strides: Some(vec![-2]),
        version: 3,
        ..CudaArrayInterface::default()
    };
    // SAFETY: the memory outlives the import.
    unsafe { Import::from_cai_for_stream(&interface, StreamHandle::LegacyDefault, ()) }.unwrap()
}

/// A description of pinned memory with an ordinal, as some libraries make it, of the elements from `address` on.
fn by_hand(address: usize) -> Import {
    let shape = [signed(COUNT)];
    let device = Device { device_id: 1, ..Device::CUDA_HOST };
    let claims = RawDescriptor { dtype: DType::I16, ..RawDescriptor::new(address, device, &shape) };
    // SAFETY: the memory outlives the import.
    unsafe { Import::from_parts(claims.validate().unwrap(), Owner::default()) }
}

/// Lets a device write all elements at the device address, and the host read them at the host address.
fn is_used_by_both(import: Import, registered: &Registered, offset: usize) {
    let (stream, host) = (Place::primary(0).legacy(), registered.at() + offset);
    assert_eq!((import.info().device(), import.info().byte_range()), (Device::CUDA_HOST, host..host + BYTES));
    let mut array: Array<LeaseMut<i16>> = Array::from_import(import).unwrap();
    let interface = array.to_cai().unwrap();
    // SAFETY: the memory outlives the import.
    let again = unsafe { Import::from_cai_for_stream(&interface, StreamHandle::LegacyDefault, ()) }.unwrap();
    assert_eq!(again.info().address(), array.info().unwrap().address());
    let view = array.view_mut::<i16, 1>().unwrap().kernel_view_mut().unwrap();
    let backwards = view.strides() == [-1];
    let lowest = signed::<_, usize>(view.address()) - if backwards { BYTES - 2 } else { 0 };
    assert_eq!(lowest, registered.on_devices() + offset);
    assert_eq!(interface.data.0, signed::<_, usize>(view.address()));
    stream.fill(&stream.bytes_at(lowest, BYTES), 3);
    stream.finish();
    assert_eq!(array.to_vec::<i16>().unwrap(), [0x0303; COUNT]);
}

#[test]
fn kernels_get_the_address_of_devices_and_the_host_its_own() {
    let turn = turn();
    for apart in [true, false] {
        turn.set_registered_apart(apart);
        let registered = Registered::new(4 * BYTES);
        let (host, device) = (registered.at(), registered.on_devices());
        assert_eq!(host != device, apart);
        is_used_by_both(by_hand(host), &registered, 0);
        is_used_by_both(by_tensor(host + BYTES), &registered, BYTES);
        is_used_by_both(by_dict(host + 2 * BYTES), &registered, 2 * BYTES);
        // The address that a careful producer states: the interface requires one that devices can use.
        is_used_by_both(by_dict(device + 3 * BYTES), &registered, 3 * BYTES);
        assert_eq!(finish_releases(), 0);
        assert_eq!(pointer_attributes(device).unwrap().unwrap().device, Device::CUDA_HOST);
    }
}
