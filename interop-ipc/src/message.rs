//! The message: plain bytes of a bounded length. Everything in it is a claim until [`Message::read`] has checked it.
//!
//! It starts with `ITPC` and a version, of two bytes in little-endian order. The rest is the struct [`Message`] in the format of
//! [`postcard`], and nothing follows. The requests to an office, and its answers, have the same format without this start.

use core::ops::Range;

use interop_core::element::{StructField, StructType};
use interop_core::protocols::{RawDescriptor, Strides};
use interop_core::storage::Mutability;
use interop_core::{ArrayInfo, DType, Device, Error, ErrorKind, Result, StreamHandle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device_block::Uuid;
use crate::errors::malformed;
use crate::socket::Address;

const MAGIC: [u8; 4] = *b"ITPC";
const VERSION: u16 = 1;
/// The greatest length of a message.
pub(crate) const MAX_BYTES: usize = 4096;
const MAX_RANK: usize = 64;
/// The greatest number of fields of a struct element, with those of its fields, and how deep they nest.
const MAX_FIELDS: usize = 64;
const MAX_DEPTH: usize = 16;
/// The number that only a reader of the message knows.
pub(crate) type Nonce = [u8; 16];
/// The code, bits and lanes of an element type, as in a `DLDataType`.
type ElementType = (u8, u8, u16);

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) is_read_only: bool,
    is_padded: bool,
    pub(crate) nonce: Nonce,
    pub(crate) office: Address,
    /// Unique in the process of the producer.
    pub(crate) block: u64,
    pub(crate) block_bytes: u64,
    /// The place of element \[0, …, 0\] in the block.
    offset: u64,
    /// The GPU that has the memory; `None` for the host.
    pub(crate) device: Option<Uuid>,
    dtype: ElementType,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    strides: Vec<i64>,
    fields: Vec<Field>,
}

/// A field of struct elements. The fields of a field follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Field {
    /// In how many other fields it lies.
    depth: usize,
    name: String,
    offset: usize,
    dtype: ElementType,
    shape: Vec<usize>,
}

/// Writes a message, a request or an answer.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|error| Error::new(ErrorKind::Unsupported, "parcel", error, ""))
}

/// Reads a value, behind which nothing may follow.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(malformed("bytes", format_args!("{} behind the end", rest.len()), "none")),
        Err(error) => Err(malformed("bytes", error, "a whole message")),
    }
}

impl Message {
    /// Describes an array in a block, which has a number and lies in a range.
    pub(crate) fn new(
        info: &ArrayInfo,
        (block, range): (u64, &Range<usize>),
        device: Option<Uuid>,
        is_read_only: bool,
        (nonce, office): (Nonce, Address),
    ) -> Self {
        let mut fields = Vec::new();
        flatten(info.struct_type(), 0, &mut fields);
        // An array without elements may be described by any address.
        let offset = if info.numel() == 0 { 0 } else { info.address() - range.start };
        Self {
            is_read_only,
            is_padded: info.is_padded(),
            nonce,
            office,
            block,
            block_bytes: range.len() as u64,
            offset: offset as u64,
            device,
            dtype: parts(info.dtype()),
            shape: info.shape().iter().map(|extent| *extent as i64).collect(),
            strides: info.strides().iter().map(|stride| *stride as i64).collect(),
            fields,
        }
    }

    /// Writes the message.
    ///
    /// # Errors
    ///
    /// `Unsupported` if it is too long, or has more fields of struct elements than a message can have.
    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &encode(self)?].concat();
        let (fields, what) = (self.fields.len(), "fields of a struct element");
        for (found, most, what) in [(fields, MAX_FIELDS, what), (bytes.len(), MAX_BYTES, "bytes")] {
            if found > most {
                let (found, allowed) = (format!("{found} {what}"), format!("at most {most}"));
                return Err(Error::new(ErrorKind::Unsupported, "parcel", found, allowed));
            }
        }
        Ok(bytes)
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
        let start = bytes.split_first_chunk().filter(|(magic, _)| **magic == MAGIC);
        let Some((version, rest)) = start.and_then(|(_, rest)| rest.split_first_chunk()) else {
            return Err(malformed("magic", "other bytes", "`ITPC`: the bytes of a parcel of `interop-ipc`"));
        };
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::new(ErrorKind::Version, "parcel.version", version, VERSION));
        }
        let message: Self = decode(rest)?;
        message.office.check()?;
        let counts = [("rank", message.shape.len(), MAX_RANK), ("fields", message.fields.len(), MAX_FIELDS)];
        for (field, found, most) in counts {
            if found > most {
                return Err(malformed(field, found, format_args!("at most {most}")));
            }
        }
        // Whatever address the block gets, the elements must lie in it.
        message.describe(ANY_ADDRESS, Device::CPU, StreamHandle::NothingPending)?;
        Ok(message)
    }

    /// Describes the array in a block at an address, whose work comes before later work on a stream, and checks it.
    pub(crate) fn describe(&self, block: usize, device: Device, stream: StreamHandle) -> Result<ArrayInfo> {
        let end = usize::try_from(self.block_bytes).ok().and_then(|bytes| block.checked_add(bytes));
        let Some(end) = end else {
            let found = format!("{} bytes", self.block_bytes);
            return Err(malformed("block", found, "a size that fits the address space"));
        };
        let mutability = if self.is_read_only { Mutability::ReadOnly } else { Mutability::Writable };
        RawDescriptor {
            byte_offset: self.offset,
            dtype: dtype(self.dtype),
            padded: self.is_padded,
            struct_type: struct_type(&self.fields, 0)?.as_ref(),
            strides: Strides::Elements(&self.strides),
            mutability,
            stream: Some(stream),
            memory: Some(block..end),
            ..RawDescriptor::new(block, device, &self.shape)
        }
        .validate()
    }
}

/// An address at the start of a page, as that of every block.
pub(crate) const ANY_ADDRESS: usize = 1 << 16;

fn parts(dtype: DType) -> ElementType {
    (dtype.code, dtype.bits, dtype.lanes)
}

fn dtype((code, bits, lanes): ElementType) -> DType {
    DType::new(code, bits, lanes)
}

/// Lists the fields of a struct, each before its own.
fn flatten(struct_type: Option<&StructType>, depth: usize, into: &mut Vec<Field>) {
    for field in struct_type.map_or(&[][..], |struct_type| &struct_type.fields) {
        let (name, shape) = (field.name.clone(), field.shape.clone());
        into.push(Field { depth, name, offset: field.offset, dtype: parts(field.dtype), shape });
        flatten(field.struct_type.as_ref(), depth + 1, into);
    }
}

/// The struct type with these fields, and those in them; `None` without fields.
fn struct_type(list: &[Field], depth: usize) -> Result<Option<StructType>> {
    let mut fields: Vec<StructField> = Vec::new();
    for list in list.chunk_by(|_, next| next.depth > depth) {
        let Some((field, own)) =
            list.split_first().filter(|(field, _)| field.depth == depth && depth < MAX_DEPTH)
        else {
            return Err(malformed(
                "fields",
                "others",
                format_args!("structs in structs up to {MAX_DEPTH} deep"),
            ));
        };
        let (name, shape) = (field.name.clone(), field.shape.clone());
        if fields.iter().any(|other| other.name == name) {
            return Err(malformed("fields", format_args!("two named {name:?}"), "different names"));
        }
        let struct_type = struct_type(own, depth + 1)?;
        fields.push(StructField {
            name,
            offset: field.offset,
            dtype: dtype(field.dtype),
            shape,
            struct_type,
        });
    }
    Ok((!fields.is_empty()).then_some(StructType { fields }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: usize, dtype: DType) -> StructField {
        StructField { name: name.to_owned(), offset, dtype, shape: Vec::new(), struct_type: None }
    }

    fn opaque(bytes: u16) -> DType {
        DType::new(3, 8, bytes)
    }

    /// An array of structs in structs, whose rows are in reverse.
    fn message() -> Message {
        let inner = StructType { fields: vec![field("x", 0, DType::F32), field("y", 4, DType::F32)] };
        let place = StructField { shape: vec![2], struct_type: Some(inner), ..field("place", 8, opaque(8)) };
        Message {
            is_read_only: true,
            is_padded: false,
            nonce: *b"sixteen bytes...",
            office: Address::random().expect("random bytes"),
            block: 7,
            block_bytes: 4096,
            offset: 24 * 9,
            device: None,
            dtype: parts(opaque(24)),
            shape: vec![2, 3],
            strides: vec![-6, 1],
            fields: list(&StructType { fields: vec![field("energy", 0, DType::F64), place] }),
        }
    }

    fn list(struct_type: &StructType) -> Vec<Field> {
        let mut fields = Vec::new();
        flatten(Some(struct_type), 0, &mut fields);
        fields
    }

    fn describe(message: &Message) -> Result<ArrayInfo> {
        message.describe(1 << 20, Device::CPU, StreamHandle::NothingPending)
    }

    #[test]
    fn a_message_says_what_was_written() {
        let info = describe(&message());
        let plain = Message { dtype: parts(DType::F32), offset: 40, fields: Vec::new(), ..message() };
        let on_device = Message { device: Some(*b"sixteen bytes..."), ..plain.clone() };
        assert!(on_device.write().expect("short").len() <= 200);
        for message in [message(), plain.clone(), on_device] {
            assert_eq!(Message::read(&message.write().expect("short")), Ok(message));
        }
        assert!(plain.write().expect("short").len() <= 200);
        let info = info.expect("within the block");
        assert_eq!(
            info.byte_range(),
            (1 << 20) + 24 * 3..(1 << 20) + 24 * 12,
            "the last row starts below the first"
        );
    }

    #[test]
    fn an_array_must_lie_in_its_block() {
        let fits = Message { block_bytes: 24 * 12, ..message() };
        assert!(describe(&fits).is_ok());
        let changes: [fn(&mut Message); 7] = [
            |message| message.block_bytes -= 1,
            |message| message.offset -= 24 * 4,
            |message| message.offset = u64::MAX,
            |message| message.block_bytes = u64::MAX,
            |message| message.shape[1] = i64::MAX,
            |message| message.shape[0] = -1,
            |message| message.strides[0] = i64::MIN,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut message = fits.clone();
            change(&mut message);
            let bytes = message.write().expect("short");
            assert!(Message::read(&bytes).is_err(), "change {index}");
        }
    }

    #[test]
    fn what_no_message_can_say_is_an_error_when_it_is_written() {
        let fields = |count: usize| StructType {
            fields: (0..count).map(|index| field(&format!("{index:>99}"), 0, DType::F32)).collect(),
        };
        for (struct_type, words) in [(fields(65), "65 fields"), (fields(40), "at most 4096")] {
            let error = Message { fields: list(&struct_type), ..message() }.write().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn fields_are_counted_named_and_nested_within_limits() {
        let read = |struct_type: StructType| {
            let message = Message { fields: list(&struct_type), ..message() };
            Message::read(&[&MAGIC[..], &VERSION.to_le_bytes(), &encode(&message)?].concat())
        };
        let twice = StructType { fields: vec![field("a", 0, DType::F32), field("a", 4, DType::F32)] };
        assert!(read(twice).unwrap_err().to_string().contains("two named \"a\""));
        let mut deep = StructType { fields: vec![field("x", 0, opaque(24))] };
        for _ in 0..MAX_DEPTH {
            deep = StructType {
                fields: vec![StructField { struct_type: Some(deep), ..field("x", 0, opaque(24)) }],
            };
        }
        let error = read(deep).unwrap_err();
        assert!(error.to_string().contains("up to 16 deep"), "{error}");
        let many =
            StructType { fields: (0..12).map(|index| field(&index.to_string(), 0, opaque(0))).collect() };
        let outer = |index: usize| StructField {
            struct_type: Some(many.clone()),
            ..field(&index.to_string(), 0, opaque(0))
        };
        let error = read(StructType { fields: (0..6).map(outer).collect() }).unwrap_err();
        assert!(error.to_string().contains("parcel.fields"), "78 fields in all: {error}");
    }

    /// Random bytes, cuts and changes of single bits: nothing panics, and what is read lies within its block.
    #[test]
    fn hostile_messages_are_refused_or_lie_in_their_block() {
        let whole = message().write().expect("short");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).expect("31 bits") % limit
        };
        let (mut read, mut refused) = (0, 0);
        for _ in 0..40_000 {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = u8::try_from(next(256)).expect("a byte"),
                    1 => bytes[at] ^= 1 << next(8),
                    2 => bytes[at] = [0, 1, 127, 128, 255][next(5)],
                    _ if next(8) == 0 => bytes.truncate(at + 1),
                    _ => {}
                }
            }
            match Message::read(&bytes) {
                Ok(message) => {
                    read += 1;
                    let info = describe(&message).expect("checked");
                    // Without elements, any address describes the array.
                    let range = if info.numel() == 0 { 1 << 20..1 << 20 } else { info.byte_range() };
                    let end = (1_u64 << 20).checked_add(message.block_bytes).expect("checked");
                    assert!(range.start >= 1 << 20 && range.end as u64 <= end, "{message:?}");
                }
                Err(_) => refused += 1,
            }
        }
        assert!(read > 2_000 && refused > 10_000, "both happen: {read}, {refused}");
    }
}
