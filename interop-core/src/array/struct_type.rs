//! Struct elements: the fields of a `#[derive(Element)]` struct, or of the `descr` of a structured array.

use core::fmt;
use core::ops::Range;

use crate::array::dtype::DType;
use crate::error::{Error, ErrorKind, Result, text};

/// The layout of a struct element: named fields at byte offsets, which may be structs themselves.
///
/// It holds the content of the key `descr` of an interface dict, without unnamed padding.
///
/// ```
/// use interop_core::{CudaArray, Element};
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Hit { detector: u8, energy: f64 }
///
/// #[derive(CudaArray)]
/// #[cuda_array(shape = [len])]
/// struct Hits { #[cuda_array(data)] hits: Vec<Hit>, len: usize }
///
/// let info = Hits { hits: vec![Hit { detector: 1, energy: 0.5 }], len: 1 }.info()?;
/// let struct_type = info.struct_type().expect("the elements are structs");
/// assert_eq!(struct_type.to_string(), "{detector: uint8 @0, energy: float64 @8}");
/// # Ok::<(), interop_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructType {
    /// The fields, by increasing offset. They do not overlap.
    pub fields: Vec<StructField>,
}

/// One field of a [`StructType`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructField {
    /// The name.
    pub name: String,
    /// The offset in bytes from the start of the struct.
    pub offset: usize,
    /// The type of an item, or opaque bytes if `struct_type` is given.
    pub dtype: DType,
    /// The shape of a field that is an array.
    pub shape: Vec<usize>,
    /// The fields of the item, if it is a struct.
    pub struct_type: Option<StructType>,
}

impl StructField {
    /// The size of the field in bytes, or `None` if it overflows.
    pub(crate) fn size(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.dtype.packed_bits() / 8, |size, extent| size.checked_mul(*extent))
    }
}

/// The greatest nesting depth of structs that is read.
pub(crate) const MAX_DEPTH: usize = 16;

impl StructType {
    /// Returns an error for two fields of one name. The names are sorted, because comparing all pairs of a large struct
    /// can take half a minute.
    pub(crate) fn check_names(&self, location: &str) -> Result<()> {
        let mut names: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = text!("two fields named {name:?}");
            return Err(Error::new(ErrorKind::DType, location, found, "different names"));
        }
        Ok(())
    }

    /// Returns an error unless `dtype` is opaque bytes and contains all fields.
    pub(crate) fn check(&self, dtype: DType) -> Result<()> {
        let fail = |found: &str| {
            let allowed = text!(
                "non-overlapping fields of whole bytes in increasing order within {dtype}, which is opaque bytes"
            );
            Err(Error::new(ErrorKind::DType, "record", format_args!("{found} in struct {self}"), allowed))
        };
        if !dtype.is_opaque() {
            return fail("elements that are not opaque bytes");
        }
        let mut free = 0;
        for field in &self.fields {
            field.dtype.check()?;
            let end = field.size().and_then(|size| size.checked_add(field.offset));
            let end = end.filter(|end| *end <= dtype.packed_bits() / 8 && field.offset >= free);
            let Some(end) = end.filter(|_| field.dtype.packed_bits() % 8 == 0) else {
                return fail(&format!("the field {:?}", field.name));
            };
            free = end;
            field.struct_type.as_ref().map_or(Ok(()), |struct_type| struct_type.check(field.dtype))?;
        }
        Ok(())
    }

    /// The bytes of a struct of `size` bytes that belong to no field.
    pub(crate) fn padding(&self, size: usize) -> Vec<Range<usize>> {
        let (mut gaps, mut end) = (Vec::new(), 0);
        for field in &self.fields {
            gaps.push(end..field.offset);
            let item = field.dtype.packed_bits() / 8;
            end = field.offset + field.size().unwrap_or(0);
            let Some(struct_type) = &field.struct_type else { continue };
            let inner = struct_type.padding(item);
            for start in (field.offset..end).step_by(item.max(1)) {
                gaps.extend(inner.iter().map(|gap| start + gap.start..start + gap.end));
            }
        }
        gaps.push(end..size);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    /// The scalar type and count of a struct of `size` bytes that consists of fields of one type without gaps.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DType`] for any other struct, which DLPack cannot express.
    pub(crate) fn as_single_scalar(&self, size: usize) -> Result<(DType, usize)> {
        let scalar = self.scalar(size);
        scalar.map(|dtype| (dtype, size / (dtype.packed_bits() / 8))).ok_or_else(|| {
            let allowed = "a struct whose fields are all of one scalar type, without padding, for DLPack; any other \
                           struct without padding goes by the CUDA Array Interface, or out of host memory by the buffer \
                           protocol (`numpy.asarray`)";
            Error::new(ErrorKind::DType, "dtype", format_args!("struct {self}"), allowed)
        })
    }

    /// The common type of all scalars of a struct of `size` bytes without gaps, or `None`.
    ///
    /// It visits each field once and not each item: a `descr` can have thousands of both. A field without items has no
    /// type.
    fn scalar(&self, size: usize) -> Option<DType> {
        let (mut scalar, mut end) = (None, 0);
        for field in &self.fields {
            let bytes = field.size()?;
            if bytes == 0 {
                continue;
            }
            let dtype = match &field.struct_type {
                None => field.dtype,
                Some(struct_type) => struct_type.scalar(field.dtype.packed_bits() / 8)?,
            };
            if field.offset != end || *scalar.get_or_insert(dtype) != dtype {
                return None;
            }
            end += bytes;
        }
        scalar.filter(|_| end == size)
    }
}

impl fmt::Display for StructType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, field) in self.fields.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}: ", field.name)?;
            match &field.struct_type {
                Some(struct_type) => struct_type.fmt(f)?,
                None => f.write_str(&field.dtype.name())?,
            }
            if !field.shape.is_empty() {
                write!(f, "{:?}", field.shape)?;
            }
            write!(f, " @{}", field.offset)?;
        }
        f.write_str("}")
    }
}
