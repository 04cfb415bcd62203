//! The key `descr` of an interface dict: the fields of struct elements.

use crate::array::dims::MAX_NDIM;
use crate::array::dtype::DType;
use crate::array::struct_type::{MAX_DEPTH, StructField, StructType};
use crate::error::{Error, ErrorKind, Result, text};

/// One entry of `descr`: name, type, and the shape of a field that is an array. An entry without a name is padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescrEntry {
    /// The name. Empty for padding, and for a single entry that repeats the typestr.
    pub name: String,
    /// The type.
    pub dtype: DescrType,
    /// The shape, or empty for a single item.
    pub shape: Vec<i64>,
}

/// The type of a [`DescrEntry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescrType {
    /// A typestr.
    Typestr(String),
    /// A nested struct.
    Nested(Vec<DescrEntry>),
}

/// The entries for a struct of `size` bytes, including its padding.
///
/// # Errors
///
/// [`ErrorKind::DType`] for a field whose type has no typestr.
pub(crate) fn write(struct_type: &StructType, size: usize) -> Result<Vec<DescrEntry>> {
    let padding = |bytes: usize| DescrEntry {
        name: String::new(),
        dtype: DescrType::Typestr(format!("|V{bytes}")),
        shape: Vec::new(),
    };
    let mut entries = Vec::new();
    let mut end = 0;
    for field in &struct_type.fields {
        if field.offset > end {
            entries.push(padding(field.offset - end));
        }
        let item = field.dtype.packed_bits() / 8;
        let typestr = || {
            let allowed = "a type with a typestr in the CUDA Array Interface; use DLPack for other types";
            let location = text!("descr field {:?}", field.name);
            field.dtype.typestr().ok_or_else(|| Error::new(ErrorKind::DType, location, field.dtype, allowed))
        };
        entries.push(DescrEntry {
            name: field.name.clone(),
            dtype: match &field.struct_type {
                Some(struct_type) => DescrType::Nested(write(struct_type, item)?),
                None => DescrType::Typestr(typestr()?),
            },
            shape: field.shape.iter().map(|extent| *extent as i64).collect(),
        });
        end = field.offset + field.size().unwrap_or(0);
    }
    if end < size {
        entries.push(padding(size - end));
    }
    Ok(entries)
}

/// The struct that the entries describe, or `None` if they only repeat the typestr.
pub(crate) fn read(descr: &[DescrEntry], dtype: DType, typestr: &str) -> Result<Option<StructType>> {
    let size = dtype.packed_bits() / 8;
    let (struct_type, bytes) = fields(descr, MAX_DEPTH)?;
    if bytes != size {
        let found = text!("fields of {bytes} bytes");
        let allowed = text!("fields of {size} bytes in all, the size in the typestr {typestr:?}");
        return Err(Error::new(ErrorKind::DType, "descr", found, allowed));
    }
    if let [DescrEntry { dtype: DescrType::Typestr(only), shape, name }] = descr {
        let repeats_typestr = shape.is_empty() && DType::from_typestr(only)? == dtype;
        if repeats_typestr && (name.is_empty() || !dtype.is_opaque()) {
            return Ok(None);
        }
    }
    if !dtype.is_opaque() {
        let allowed = text!("one field of type {typestr:?}, or a typestr \"|V{size}\" for a struct");
        return Err(Error::new(ErrorKind::DType, "descr", format_args!("struct {struct_type}"), allowed));
    }
    // Padding alone adds nothing to the typestr.
    Ok(Some(struct_type).filter(|struct_type| !struct_type.fields.is_empty()))
}

/// The fields, and their total size.
fn fields(descr: &[DescrEntry], depth: usize) -> Result<(StructType, usize)> {
    let Some(depth) = depth.checked_sub(1) else {
        let allowed = text!("structs nested at most {MAX_DEPTH} deep");
        return Err(Error::new(ErrorKind::DType, "descr", "structs nested deeper", allowed));
    };
    let mut struct_type = StructType { fields: Vec::with_capacity(descr.len()) };
    let mut end = 0_usize;
    for entry in descr {
        let (dtype, nested) = match &entry.dtype {
            DescrType::Typestr(typestr) => {
                (DType::from_typestr(typestr).map_err(|error| in_descr(&error))?, None)
            }
            DescrType::Nested(entries) => {
                let (struct_type, bytes) = fields(entries, depth)?;
                let bytes = u16::try_from(bytes)
                    .ok()
                    .filter(|bytes| *bytes > 0)
                    .ok_or_else(|| invalid_size(bytes))?;
                (DType::opaque(bytes), Some(struct_type))
            }
        };
        let shape = extents(entry)?;
        let field = StructField { name: entry.name.clone(), offset: end, dtype, shape, struct_type: nested };
        end =
            field.size().and_then(|bytes| end.checked_add(bytes)).ok_or_else(|| invalid_size(usize::MAX))?;
        let padding = entry.name.is_empty() && dtype.is_opaque() && field.struct_type.is_none();
        if !padding {
            struct_type.fields.push(field);
        }
    }
    struct_type.check_names("descr")?;
    Ok((struct_type, end))
}

fn extents(entry: &DescrEntry) -> Result<Vec<usize>> {
    if entry.shape.len() > MAX_NDIM {
        let location = text!("descr field {:?}", entry.name);
        let found = text!("{} axes", entry.shape.len());
        return Err(Error::new(ErrorKind::Rank, location, found, format_args!("at most {MAX_NDIM} axes")));
    }
    let extent = |extent: &i64| {
        usize::try_from(*extent).map_err(|_| {
            let location = text!("descr field {:?}", entry.name);
            Error::new(
                ErrorKind::Shape,
                location,
                format_args!("the extent {extent}"),
                "extents of 0 or greater",
            )
        })
    };
    entry.shape.iter().map(extent).collect()
}

#[cold]
fn invalid_size(bytes: usize) -> Error {
    Error::new(ErrorKind::DType, "descr", format_args!("a struct of {bytes} bytes"), "1 to 65535 bytes")
}

/// The error of a typestr inside `descr`.
fn in_descr(error: &Error) -> Error {
    Error::new(error.kind(), "descr", error.found(), error.allowed())
}
