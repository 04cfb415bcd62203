//! The message: plain bytes of a bounded length. Everything in it is a claim until [`Message::read`] has checked it.
//!
//! All numbers are little-endian, in this order, and nothing follows the last:
//!
//! | field | bytes |
//! | --- | --- |
//! | `ITPC`, the version, the kind of memory, flags | 4, 2, 1, 1 |
//! | nonce | 16 |
//! | address of the office: its kind, length and bytes | 1, 1, up to 107 |
//! | block: number, bytes; offset of element \[0, …, 0\] in it | 8, 8, 8 |
//! | element type as `DLDataType` | 4 |
//! | rank; extents; strides in elements | 1, 8 each, 8 each |
//! | fields of struct elements: their number, and each with its name, offset, type, extents and own fields | 1, … |

use interop_core::descriptor::{RawDescriptor, Strides};
use interop_core::element::{StructField, StructType};
use interop_core::storage::Mutability;
use interop_core::{ArrayInfo, DType, Device, Error, ErrorKind, Result, StreamHandle};

use crate::errors::malformed;
use crate::socket::{Address, MAX_ADDRESS};

const MAGIC: [u8; 4] = *b"ITPC";
const VERSION: u16 = 1;
/// The kind of memory: a sealed memory file of the host. Kinds of a GPU follow.
const HOST: u8 = 0;
const READ_ONLY: u8 = 1;
const PADDED: u8 = 2;
/// The greatest length of a message.
pub(crate) const MAX_BYTES: usize = 4096;
const MAX_RANK: usize = 64;
/// The greatest number of fields of a struct element, with those of its fields, and how deep they nest.
const MAX_FIELDS: usize = 64;
const MAX_DEPTH: usize = 16;
/// The number that only a reader of the message knows.
pub(crate) type Nonce = [u8; 16];

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_read_only: bool,
    pub(crate) is_padded: bool,
    pub(crate) nonce: Nonce,
    pub(crate) office: Address,
    /// Unique in the process of the producer.
    pub(crate) block: u64,
    pub(crate) block_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
    pub(crate) struct_type: Option<StructType>,
}

impl Message {
    /// Writes the message.
    ///
    /// # Errors
    ///
    /// `Unsupported` if it is too long, or has more fields of struct elements than a message can have.
    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        let flags = if self.is_read_only { READ_ONLY } else { 0 } | if self.is_padded { PADDED } else { 0 };
        out.extend([HOST, flags]);
        out.extend(self.nonce);
        out.push(self.office.kind());
        write_short(&mut out, self.office.bytes())?;
        for word in [self.block, self.block_bytes, self.offset] {
            out.extend(word.to_le_bytes());
        }
        write_dtype(&mut out, self.dtype);
        out.push(count("axes", self.shape.len(), MAX_RANK)?);
        for word in self.shape.iter().chain(&self.strides) {
            out.extend(word.to_le_bytes());
        }
        write_fields(&mut out, self.struct_type.as_ref())?;
        count("bytes of the message", out.len() / 256, MAX_BYTES / 256)?;
        Ok(out)
    }

    /// Reads and checks a message. What only the office can tell is checked when the array is opened.
    ///
    /// # Errors
    ///
    /// `Type` for bytes that are no message, `Version` for one of another version, and those of
    /// [`RawDescriptor::validate`] for an array that does not lie in its block.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return Err(malformed("bytes", bytes.len(), format_args!("at most {MAX_BYTES}")));
        }
        let mut reader = Reader { rest: bytes, fields: MAX_FIELDS };
        if reader.array()? != MAGIC {
            return Err(malformed("magic", "other bytes", "`ITPC`: the bytes of a parcel of `interop-ipc`"));
        }
        let version = u16::from_le_bytes(reader.array()?);
        if version != VERSION {
            let location = "parcel.version";
            return Err(Error::new(ErrorKind::Version, location, version, format_args!("{VERSION}")));
        }
        let kind = reader.byte()?;
        if kind != HOST {
            return Err(malformed("kind", kind, "0: memory of the host"));
        }
        let flags = reader.byte()?;
        if flags & !(READ_ONLY | PADDED) != 0 {
            return Err(malformed("flags", flags, "0 to 3"));
        }
        let nonce = reader.array()?;
        let address_kind = reader.byte()?;
        let office = Address::new(address_kind, reader.short(MAX_ADDRESS)?)?;
        let [block, block_bytes, offset] = [reader.word()?, reader.word()?, reader.word()?];
        let dtype = reader.dtype()?;
        let rank = reader.count("rank", MAX_RANK)?;
        let (shape, strides) = (reader.words(rank)?, reader.words(rank)?);
        let struct_type = reader.struct_type(MAX_DEPTH)?;
        if !reader.rest.is_empty() {
            return Err(malformed("bytes", format_args!("{} behind the end", reader.rest.len()), "none"));
        }
        let (is_read_only, is_padded) = (flags & READ_ONLY != 0, flags & PADDED != 0);
        let message = Self {
            is_read_only,
            is_padded,
            nonce,
            office,
            block,
            block_bytes,
            offset,
            dtype,
            shape,
            strides,
            struct_type,
        };
        // Whatever address the block gets, the elements must lie in it.
        message.describe(ANY_ADDRESS)?;
        Ok(message)
    }

    /// Describes the array in a block at an address, and checks it.
    pub(crate) fn describe(&self, block: usize) -> Result<ArrayInfo> {
        let end = usize::try_from(self.block_bytes).ok().and_then(|bytes| block.checked_add(bytes));
        let Some(end) = end else {
            return Err(malformed(
                "block",
                format_args!("{} bytes", self.block_bytes),
                "a size that fits the address space",
            ));
        };
        let mutability = if self.is_read_only { Mutability::ReadOnly } else { Mutability::Writable };
        RawDescriptor {
            byte_offset: self.offset,
            dtype: self.dtype,
            padded: self.is_padded,
            struct_type: self.struct_type.as_ref(),
            strides: Strides::Elements(&self.strides),
            mutability,
            stream: Some(StreamHandle::NothingPending),
            memory: Some(block..end),
            ..RawDescriptor::new(block, Device::CPU, &self.shape)
        }
        .validate()
    }
}

/// An address at the start of a page, as that of every block.
const ANY_ADDRESS: usize = 1 << 16;

/// Returns a count as it is written.
fn count(what: &str, found: usize, most: usize) -> Result<u8> {
    let fits = u8::try_from(found).ok().filter(|_| found <= most);
    fits.ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "parcel",
            format_args!("{found} {what}"),
            format_args!("at most {most}"),
        )
    })
}

fn write_short(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    out.push(count("bytes of a name", bytes.len(), 255)?);
    out.extend(bytes);
    Ok(())
}

fn write_dtype(out: &mut Vec<u8>, dtype: DType) {
    out.extend([dtype.code, dtype.bits]);
    out.extend(dtype.lanes.to_le_bytes());
}

fn write_fields(out: &mut Vec<u8>, struct_type: Option<&StructType>) -> Result<()> {
    let fields = struct_type.map_or(&[][..], |struct_type| &struct_type.fields);
    out.push(count("fields of a struct element", fields.len(), MAX_FIELDS)?);
    for field in fields {
        write_short(out, field.name.as_bytes())?;
        out.extend((field.offset as u64).to_le_bytes());
        write_dtype(out, field.dtype);
        out.push(count("axes of a field", field.shape.len(), MAX_RANK)?);
        for extent in &field.shape {
            out.extend((*extent as u64).to_le_bytes());
        }
        write_fields(out, field.struct_type.as_ref())?;
    }
    Ok(())
}

/// The bytes that are not read yet, and how many fields may follow.
struct Reader<'a> {
    rest: &'a [u8],
    fields: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(malformed("bytes", "an early end", "a whole message"));
        };
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let head = self.take(N)?;
        Ok(core::array::from_fn(|index| head[index]))
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn words(&mut self, count: usize) -> Result<Vec<i64>> {
        (0..count).map(|_| self.array().map(i64::from_le_bytes)).collect()
    }

    fn count(&mut self, field: &str, most: usize) -> Result<usize> {
        let found = usize::from(self.byte()?);
        if found > most {
            return Err(malformed(field, found, format_args!("at most {most}")));
        }
        Ok(found)
    }

    fn short(&mut self, most: usize) -> Result<&'a [u8]> {
        let bytes = self.count("name", most)?;
        self.take(bytes)
    }

    fn size(&mut self) -> Result<usize> {
        let found = self.word()?;
        usize::try_from(found).map_err(|_| malformed("field", found, "a number that fits the address space"))
    }

    fn dtype(&mut self) -> Result<DType> {
        let [code, bits, low, high] = self.array()?;
        Ok(DType::new(code, bits, u16::from_le_bytes([low, high])))
    }

    /// Reads the fields of struct elements; none if there are no fields.
    fn struct_type(&mut self, depth: usize) -> Result<Option<StructType>> {
        let count = self.count("fields", self.fields)?;
        if count == 0 {
            return Ok(None);
        }
        if depth == 0 {
            return Err(malformed(
                "fields",
                "more",
                format_args!("structs in structs up to {MAX_DEPTH} deep"),
            ));
        }
        self.fields -= count;
        let mut fields: Vec<StructField> = Vec::new();
        for _ in 0..count {
            let field = self.field(depth)?;
            if fields.iter().any(|other| other.name == field.name) {
                return Err(malformed(
                    "fields",
                    format_args!("two named {:?}", field.name),
                    "different names",
                ));
            }
            fields.push(field);
        }
        Ok(Some(StructType { fields }))
    }

    fn field(&mut self, depth: usize) -> Result<StructField> {
        let name = core::str::from_utf8(self.short(255)?);
        let name = name.map_err(|error| malformed("fields", error, "names in UTF-8"))?.to_owned();
        let (offset, dtype) = (self.size()?, self.dtype()?);
        let axes = self.count("fields", MAX_RANK)?;
        let shape = (0..axes).map(|_| self.size()).collect::<Result<_>>()?;
        let struct_type = self.struct_type(depth - 1)?;
        Ok(StructField { name, offset, dtype, shape, struct_type })
    }
}
