//! Arrays without a struct, of any element type.

#![expect(unsafe_code, reason = "makes imports of shared memory, and copies into it")]

use core::time::Duration;
use std::sync::Arc;

use interop_core::__private::processes::copy_for_others;
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::{Mutability, Owner, copy_import as copy_elements};
use interop_core::{
    ArrayInfo, DType, Device, DeviceType, Error, ErrorKind, Import, Order, Refused, Result, StreamHandle,
};

use crate::block::Block;
use crate::message::ANY_ADDRESS;
use crate::office::{Draft, Parcel};
use crate::share::{draft, offered};

/// Offers an array without a struct, as [`share_parcel`](crate::ShareParcel::share_parcel) does.
///
/// # Errors
///
/// The import is returned with the reason, as [`share_parcel`](crate::ShareParcel::share_parcel).
pub fn share_import(import: Import, opens: u32, time: Duration) -> Result<Parcel<Import>, Refused<Import>> {
    let draft = draft(import.info(), true, opens, time);
    offered(import, draft)
}

/// Gives away an array without a struct, as [`into_parcel`](crate::ShareParcel::into_parcel) does: if the import is writable, the
/// process that opens it may write.
///
/// # Errors
///
/// The import is returned with the reason, as [`share_parcel`](crate::ShareParcel::share_parcel).
pub fn give_import(import: Import, time: Duration) -> Result<Parcel<Import>, Refused<Import>> {
    let draft = draft(import.info(), import.info().is_read_only(), 1, time);
    offered(import, draft)
}

/// As [`share_import`] or [`give_import`], for a program that keeps the array by other means as well: the block stays mapped in the
/// other process for a while, and the import is kept until it is closed, also after [`Parcel::end_use`].
#[doc(hidden)]
pub fn lend_import(
    import: Import,
    is_read_only: bool,
    opens: u32,
    time: Duration,
) -> Result<Parcel<Import>, Refused<Import>> {
    let draft = draft(import.info(), is_read_only, opens, time).map(Draft::that_may_rest);
    offered(import, draft)
}

/// Offers a copy of an array without a struct, as [`copy_parcel`](crate::ShareParcel::copy_parcel) does.
///
/// # Errors
///
/// As [`copy_parcel`](crate::ShareParcel::copy_parcel).
pub fn copy_import(import: &Import, opens: u32, time: Duration) -> Result<Parcel<Import>> {
    // SAFETY: the import keeps the memory.
    let copy = unsafe { copied(import.info()) }?;
    Ok(share_import(copy, opens, time)?)
}

/// Allocates zeroed elements of any type in memory that other processes can map, in the order of C. [`SharedVec`](crate::SharedVec)
/// is the storage for a type that is known when the program is compiled.
///
/// ```
/// use interop_core::DType;
///
/// let import = interop_ipc::zeroed(DType::F32, &[480, 640])?;
/// assert_eq!(import.info().strides(), [640, 1]);
/// # Ok::<(), interop_core::Error>(())
/// ```
///
/// # Errors
///
/// `Overflow`, `Shape` and `OutOfMemory` for a size that the system does not have; `DType` for a type that DLPack does not have.
pub fn zeroed(dtype: DType, shape: &[usize]) -> Result<Import> {
    let extents: Vec<i64> = shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect();
    allocate(&RawDescriptor { dtype, ..RawDescriptor::new(ANY_ADDRESS, Device::CPU, &extents) })
        .map(|(import, _)| import)
}

/// Allocates memory for an array that is described at another address.
fn allocate(array: &RawDescriptor<'_>) -> Result<(Import, Arc<Block>)> {
    let bytes = array.clone().validate()?.nbytes();
    let block = Block::new(bytes)?;
    let mapping = block.mapping();
    let (address, memory) = (mapping.address(), Some(mapping.range()));
    let info = RawDescriptor { address, memory, stream: Some(StreamHandle::NothingPending), ..array.clone() };
    let info = info.validate()?;
    // SAFETY: 1: the block keeps the memory, which is zeroed and mapped for writes. 2: the memory is in no `Box`.
    Ok((unsafe { Import::from_parts(info, Owner::new(block.clone())) }, block))
}

/// Copies an array into new memory that others can map, in the order of C.
///
/// # Errors
///
/// `Unsupported` for elements that are packed below the byte, `OutOfMemory`; those of the driver.
///
/// # Safety
///
/// The memory is live until this returns.
pub(crate) unsafe fn copied(info: &ArrayInfo) -> Result<Import> {
    match info.device().device_type {
        // SAFETY: as the caller promises.
        DeviceType::CUDA | DeviceType::CUDA_MANAGED => return unsafe { copy_for_others(info) },
        DeviceType::CUDA_HOST => {
            // SAFETY: 1: the caller keeps the memory, and the import ends with this call. 2: the owner owns nothing. 3: as for the array.
            let import = unsafe { Import::from_parts(info.clone(), Owner::new(())) };
            // The host waits for its work.
            import.with_stream(StreamHandle::NothingPending)?;
        }
        _ => {}
    }
    let Some(byte_strides) = info.byte_strides() else {
        return Err(Error::new(ErrorKind::Unsupported, "dtype", info.dtype(), "elements of whole bytes"));
    };
    let extents = |shape: &[usize]| shape.iter().map(|extent| *extent as i64).collect::<Vec<_>>();
    let shape = extents(info.shape());
    let (copy, block) = allocate(&RawDescriptor {
        dtype: info.dtype(),
        padded: info.is_padded(),
        struct_type: info.struct_type(),
        ..RawDescriptor::new(ANY_ADDRESS, Device::CPU, &shape)
    })?;
    // As bytes, which have one more axis. So elements of every type are copied in one way.
    let bytes_of_one = copy.info().nbytes().checked_div(info.numel()).unwrap_or(1);
    let shape = extents(&[info.shape(), &[bytes_of_one]].concat());
    let strides: Vec<i64> = byte_strides.iter().map(|stride| *stride as i64).chain([1]).collect();
    let source = RawDescriptor {
        dtype: DType::U8,
        strides: Strides::Elements(&strides),
        mutability: Mutability::ReadOnly,
        stream: Some(StreamHandle::NothingPending),
        ..RawDescriptor::new(info.address(), Device::CPU, &shape)
    };
    // SAFETY: 1: the caller keeps the memory, and the import ends with this call. It is only read. 2: the owner owns nothing.
    let mut source = unsafe { Import::from_parts(source.validate()?, Owner::new(())) };
    // SAFETY: the new memory has room for the elements; it is host memory, as that of the import.
    unsafe { copy_elements::<u8>(&mut source, Order::C, block.mapping().first().as_ptr()) }?;
    Ok(copy)
}
