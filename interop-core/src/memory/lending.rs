//! More ways for a value to lend its memory to a lease, and the way back to the value.
#![expect(unsafe_code, reason = "keeps a borrow of a boxed value for as long as the box")]

use core::any::TypeId;
use core::marker::PhantomData;

use crate::array::element::Element;
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::lease::{Lease, LeaseMut, LeasedMemory};
use crate::memory::owner::Owner;

impl<T: Element> Lease<T> {
    /// As [`from_owner`](Self::from_owner), of a value whose elements a function borrows from it.
    ///
    /// ```
    /// use interop_core::Lease;
    ///
    /// let lease = Lease::from_owner_with(vec![[1_u8, 2], [3, 4]], |pairs| pairs.as_flattened());
    /// # assert_eq!(interop_core::Storage::memory(&lease).range.len(), 4);
    /// ```
    pub fn from_owner_with<O, F>(owner: O, elements: F) -> Self
    where
        O: Send + 'static,
        F: FnOnce(&O) -> &[T],
    {
        let (owner, place) = Owner::new_with_address(owner);
        // SAFETY: the value is in its box until the owner is dropped, which comes after the last use of the elements;
        // nobody else gets at it until then, so this borrow of it goes on.
        let elements = elements(unsafe { place.as_ref() });
        let memory = LeasedMemory::from_owned_memory::<O>(
            elements.as_ptr().expose_provenance(),
            size_of_val(elements),
            owner,
        );
        Self { memory, marker: PhantomData }
    }

    /// The elements in the bytes that a value lends, in place, as of Arrow's `Buffer`, of `Bytes` or of a memory map.
    ///
    /// Not of types that some bytes are no value of, such as `bool`, at compile time: import those, which checks them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Alignment`] for bytes that are not aligned for `T`, and [`ErrorKind::OutOfBounds`] for a number of them that is
    /// no multiple of its size. The value comes back.
    ///
    /// ```
    /// use interop_core::{ErrorKind, Lease};
    ///
    /// let lease = Lease::<u8>::try_from_bytes(vec![1_u8, 2, 3])?;
    /// let refused = Lease::<u32>::try_from_bytes(vec![0_u8; 7]).unwrap_err();
    /// assert_eq!(refused.value.len(), 7);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn try_from_bytes<O: AsRef<[u8]> + Send + 'static>(owner: O) -> Result<Self, Refused<O>> {
        const {
            assert!(T::TYPE.any_bits, "not every byte is a value of this type");
        };
        let (owner, place) = Owner::new_with_address(owner);
        // SAFETY: as in `from_owner_with`.
        let bytes: &[u8] = unsafe { place.as_ref() }.as_ref();
        let (address, len) = (bytes.as_ptr().expose_provenance(), bytes.len());
        let memory = LeasedMemory::from_owned_memory::<O>(address, len, owner);
        match check::<T>(address, len) {
            Ok(()) => Ok(Self { memory, marker: PhantomData }),
            // SAFETY: the value was put there above.
            Err(error) => Err(Refused { value: unsafe { memory.owner.into_value::<O>() }, error }),
        }
    }
}

/// Refuses bytes that are no elements.
fn check<T: Element>(address: usize, len: usize) -> Result<()> {
    let (align, size) = (align_of::<T>(), size_of::<T>());
    if len > 0 && address % align != 0 {
        let allowed = format!("a multiple of {align}, the alignment of {}", T::TYPE.describe());
        return Err(Error::new(ErrorKind::Alignment, "address", format_args!("{address:#x}"), allowed));
    }
    if size == 0 || len % size != 0 {
        let allowed = format!("a multiple of {size}, the size of {}", T::TYPE.describe());
        return Err(Error::new(ErrorKind::OutOfBounds, "bytes", len, allowed));
    }
    Ok(())
}

impl<T: Element> LeaseMut<T> {
    /// As [`from_owner`](Self::from_owner), of a value whose elements a function borrows from it, such as a matrix of
    /// `nalgebra`: `LeaseMut::from_owner_with(matrix, DMatrix::as_mut_slice)`.
    ///
    /// ```
    /// use interop_core::{CudaArray, LeaseMut};
    ///
    /// #[derive(CudaArray)]
    /// #[cuda_array(shape = [len])]
    /// struct Samples<S> { #[cuda_array(data)] values: S, len: usize }
    ///
    /// let values = LeaseMut::from_owner_with(vec![1.0_f32, 2.0], Vec::as_mut_slice);
    /// let mut samples = Samples { values, len: 2 };
    /// samples.map_inplace(|value: f32| value * 2.0)?;
    /// let vector = samples.values.try_into_owner::<Vec<f32>>().unwrap();
    /// assert_eq!(vector, [2.0, 4.0]);
    /// # Ok::<(), interop_core::Error>(())
    /// ```
    pub fn from_owner_with<O, F>(owner: O, elements: F) -> Self
    where
        O: Send + 'static,
        F: FnOnce(&mut O) -> &mut [T],
    {
        const {
            assert!(
                T::TYPE.any_bits,
                "not every byte that a consumer may write is a `bool`: lend it as `u8`"
            );
        };
        let (owner, mut place) = Owner::new_with_address(owner);
        // SAFETY: as for `Lease`; the borrow is the only one.
        let elements = elements(unsafe { place.as_mut() });
        let bytes = size_of_val(elements);
        let memory =
            LeasedMemory::from_owned_memory::<O>(elements.as_mut_ptr().expose_provenance(), bytes, owner);
        Self { memory, marker: PhantomData }
    }
}

macro_rules! way_back {
    ($lease:ident) => {
        impl<T: Element> $lease<T> {
            /// The value that lent the memory, where it is of this type.
            ///
            /// # Errors
            ///
            /// The lease, where its memory was imported or is another value's.
            ///
            /// ```
            #[doc = concat!("use interop_core::", stringify!($lease), ";")]
            ///
            #[doc = concat!("let lease = ", stringify!($lease), "::from_owner(vec![1.0_f32, 2.0]);")]
            /// let lease = lease.try_into_owner::<String>().unwrap_err();
            /// assert_eq!(lease.try_into_owner::<Vec<f32>>().unwrap(), [1.0, 2.0]);
            /// ```
            pub fn try_into_owner<O: Send + 'static>(self) -> Result<O, Self> {
                if self.memory.lender.is_none_or(|lender| lender() != TypeId::of::<O>()) {
                    return Err(self);
                }
                // SAFETY: the value is of this type, as it said when it was put there; nothing of the lease remains.
                Ok(unsafe { self.memory.owner.into_value::<O>() })
            }
        }
    };
}

way_back!(Lease);

way_back!(LeaseMut);
