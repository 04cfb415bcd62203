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
//! | memory of a GPU: its UUID | 16 |
//! | element type as `DLDataType` | 4 |
//! | rank; extents; strides in elements | 1, 8 each, 8 each |
//! | fields of struct elements: their number, and each with its name, offset, type, extents and own fields | 1, … |

use interop_core::descriptor::{RawDescriptor, Strides};
use interop_core::element::{StructField, StructType};
use interop_core::storage::Mutability;
use interop_core::{ArrayInfo, DType, Device, Error, ErrorKind, Result, StreamHandle};

use crate::device_block::Uuid;
use crate::errors::malformed;
use crate::socket::{Address, MAX_ADDRESS};

const MAGIC: [u8; 4] = *b"ITPC";
const VERSION: u16 = 1;
/// The kind of memory: of the host, or of a GPU.
const HOST: u8 = 0;
const DEVICE: u8 = 1;
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
    /// The GPU that has the memory; `None` for the host.
    pub(crate) device: Option<Uuid>,
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
        out.extend([if self.device.is_some() { DEVICE } else { HOST }, flags]);
        out.extend(self.nonce);
        out.push(self.office.kind());
        write_short(&mut out, self.office.bytes())?;
        for word in [self.block, self.block_bytes, self.offset] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.device.iter().flatten());
        write_dtype(&mut out, self.dtype);
        out.push(count("axes", self.shape.len(), MAX_RANK)?);
        for word in self.shape.iter().chain(&self.strides) {
            out.extend(word.to_le_bytes());
        }
        write_fields(&mut out, self.struct_type.as_ref())?;
        if out.len() > MAX_BYTES {
            let (found, allowed) = (format!("{} bytes", out.len()), format!("at most {MAX_BYTES}"));
            return Err(Error::new(ErrorKind::Unsupported, "parcel", found, allowed));
        }
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
        if !matches!(kind, HOST | DEVICE) {
            return Err(malformed("kind", kind, "0 or 1: memory of the host or of a GPU"));
        }
        let flags = reader.byte()?;
        if flags & !(READ_ONLY | PADDED) != 0 {
            return Err(malformed("flags", flags, "0 to 3"));
        }
        let nonce = reader.array()?;
        let address_kind = reader.byte()?;
        let office = Address::new(address_kind, reader.short(MAX_ADDRESS)?)?;
        let [block, block_bytes, offset] = [reader.word()?, reader.word()?, reader.word()?];
        let device = if kind == DEVICE { Some(reader.array()?) } else { None };
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
            device,
            dtype,
            shape,
            strides,
            struct_type,
        };
        // Whatever address the block gets, the elements must lie in it.
        message.describe(ANY_ADDRESS, Device::CPU, StreamHandle::NothingPending)?;
        Ok(message)
    }

    /// Describes the array in a block at an address, whose work comes before later work on a stream, and checks it.
    pub(crate) fn describe(&self, block: usize, device: Device, stream: StreamHandle) -> Result<ArrayInfo> {
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
            stream: Some(stream),
            memory: Some(block..end),
            ..RawDescriptor::new(block, device, &self.shape)
        }
        .validate()
    }
}

/// An address at the start of a page, as that of every block.
pub(crate) const ANY_ADDRESS: usize = 1 << 16;

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
            dtype: opaque(24),
            shape: vec![2, 3],
            strides: vec![-6, 1],
            struct_type: Some(StructType { fields: vec![field("energy", 0, DType::F64), place] }),
        }
    }

    fn describe(message: &Message) -> Result<ArrayInfo> {
        message.describe(1 << 20, Device::CPU, StreamHandle::NothingPending)
    }

    #[test]
    fn a_message_says_what_was_written() {
        let info = describe(&message());
        let plain = Message { dtype: DType::F32, offset: 40, struct_type: None, ..message() };
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
            let error = Message { struct_type: Some(struct_type), ..message() }.write().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        let named = StructType { fields: vec![field(&"x".repeat(256), 0, DType::F32)] };
        let error = Message { struct_type: Some(named), ..message() }.write().unwrap_err();
        assert!(error.to_string().contains("256 bytes of a name"), "{error}");
    }

    #[test]
    fn fields_are_counted_named_and_nested_within_limits() {
        let read = |struct_type: StructType| {
            Message::read(&Message { struct_type: Some(struct_type), ..message() }.write()?)
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
