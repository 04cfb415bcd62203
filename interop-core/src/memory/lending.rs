//! Leases of values that lend their elements through a function or as bytes, and the conversion back to the value.
#![expect(unsafe_code, reason = "keeps a borrow of a boxed value for as long as the box")]

use core::any::TypeId;
use core::marker::PhantomData;

use crate::array::element::Element;
use crate::error::{Error, ErrorKind, Refused, Result};
use crate::memory::lease::{Lease, LeaseMut, LeasedMemory};
use crate::memory::owner::Owner;

impl<T: Element> Lease<T> {
    /// As [`from_owner`](Self::from_owner), for a value from which a function borrows the elements.
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
        // SAFETY: the value stays in its box until the owner is dropped, which happens after the last use of the
        // elements. Nothing else accesses the value until then, so this borrow stays valid.
        let elements = elements(unsafe { place.as_ref() });
        let memory = LeasedMemory::from_owned_memory::<O>(
            elements.as_ptr().expose_provenance(),
            size_of_val(elements),
            owner,
        );
        Self { memory, marker: PhantomData }
    }

    /// Uses the bytes of a value in place as elements `T`: those of an Arrow `Buffer`, of `Bytes` or of a memory map.
    ///
    /// Types with invalid bit patterns, such as `bool`, do not compile. Import such an array instead: the import checks
    /// the bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Alignment`] if the bytes are not aligned for `T`; [`ErrorKind::OutOfBounds`] if their number is not
    /// a multiple of its size. The value is returned with the error.
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
            // SAFETY: the owner was made above for an `O`, and the borrow of its bytes is not used any more.
            Err(error) => Err(Refused { value: unsafe { memory.owner.into_value::<O>() }, error }),
        }
    }
}

/// Returns an error if the bytes cannot be elements `T`.
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
    /// As [`from_owner`](Self::from_owner), for a value from which a function borrows the elements, such as a matrix of
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
        // SAFETY: as for `Lease`; this is the only borrow.
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
            /// Returns the value that lends the memory, if it has this type.
            ///
            /// # Errors
            ///
            /// The lease, if its memory was imported or belongs to a value of another type.
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
                // SAFETY: the value has this type, which was recorded when the owner was made. The lease is consumed,
                // so no borrow of the value is left.
                Ok(unsafe { self.memory.owner.into_value::<O>() })
            }
        }
    };
}

way_back!(Lease);

way_back!(LeaseMut);
