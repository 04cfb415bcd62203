//! Interface dicts of the CUDA Array Interface: compares their validation with the oracle, and exports legal ones
//! again.
#![expect(
    unsafe_code,
    reason = "creates imports of memory that the caller vouches for, which nobody touches here"
)]

use interop_core::protocols::cai::{CudaArrayInterface, DescrEntry, DescrType};
use interop_core::{ArrayInfo, Device, Import, StreamHandle};

use crate::input::{Input, Output};
use crate::oracle::{addresses, check, check_error, check_same, compact, numel, span, widen};
use crate::types::{TEXT, size};

/// The maximum length of a list; more axes than are allowed.
const AXES: u8 = 70;
/// The maximum number of entries of one `descr`.
const ENTRIES: u8 = 6;
/// A nesting depth that is deeper than records may be.
const DEPTH: usize = 20;

/// Runs the target.
///
/// # Panics
///
/// If the crate and the oracle differ.
pub fn run(data: &[u8]) {
    let interface = read(&mut Input::new(data));
    // SAFETY: nobody dereferences the address.
    let import = unsafe { Import::from_cai_on_device(&interface, Device::cuda(0), ()) };
    let legal = legal(&interface);
    match import {
        Err(error) => {
            check_error(&error);
            // The fields of a record have additional rules, which the oracle does not know.
            assert!(legal.is_none() || interface.descr.is_some(), "{error}");
        }
        Ok(import) => {
            let (strides, item) = legal.expect("something that is wrong was taken");
            let info = import.info();
            check(info, &widen(&interface.shape), &strides, interface.data.0 as i128, 8 * item);
            assert_eq!(info.is_read_only(), interface.data.1);
            check_again(info);
        }
    }
}

/// Exports an import again, and checks that importing the result gives the same description.
fn check_again(info: &ArrayInfo) {
    let again = CudaArrayInterface::try_from(info).expect("an array of the interface");
    assert_eq!(Some(again.stream), info.stream());
    // SAFETY: nobody dereferences the address.
    let import = unsafe { Import::from_cai_on_device(&again, info.device(), ()) }.expect("our own dict");
    check_same(info, import.info());
    assert_eq!(info.stream(), import.info().stream());
    let legacy = CudaArrayInterface { version: 2, stream: StreamHandle::NothingPending, ..again }
        .info()
        .expect("the same without a stream");
    assert_eq!((legacy.byte_range(), legacy.shape()), (info.byte_range(), info.shape()));
}

/// Returns the strides in elements and the item size in bytes if everything except `descr` is legal.
fn legal(interface: &CudaArrayInterface) -> Option<(Vec<i128>, i128)> {
    let item = size(&interface.typestr)? as i128;
    let shape = widen(&interface.shape);
    let count = numel(&shape)?;
    let strides = match &interface.strides {
        None => compact(&shape, interop_core::Order::C),
        Some(strides) => {
            let idle = |axis: usize| count == 0 || shape[axis] == 1;
            let strides = widen(strides);
            let counted = strides.len() == shape.len();
            if !counted || (0..shape.len()).any(|axis| !idle(axis) && strides[axis] % item != 0) {
                return None;
            }
            strides.iter().map(|stride| stride / item).collect()
        }
    };
    let plain = (0..=3).contains(&interface.version) && !interface.mask;
    let reach = addresses(interface.data.0 as i128, span(&shape, &strides)?, 8 * item);
    (plain && reach.is_some()).then_some((strides, item))
}

/// Returns the stream with this number, or `NothingPending` if the number is invalid.
///
/// Reading a dict rejects invalid numbers, and other tests cover all of them.
pub(crate) fn stream(number: Option<i128>) -> StreamHandle {
    // SAFETY: no driver is loaded, so nothing uses the handle.
    unsafe { StreamHandle::from_cai(number) }.unwrap_or(StreamHandle::NothingPending)
}

/// Decodes a dict from bytes.
pub(crate) fn read(input: &mut Input<'_>) -> CudaArrayInterface {
    CudaArrayInterface {
        typestr: input.text(TEXT),
        shape: input.list(AXES),
        strides: input.optional(|input| input.list(AXES)),
        data: (usize::from_ne_bytes(input.number().to_ne_bytes()), input.byte() % 2 == 1),
        version: i128::from(input.number()),
        stream: stream(input.optional(|input| i128::from(input.number()))),
        mask: input.byte() == 1,
        descr: input.optional(|input| entries(input, DEPTH)),
    }
}

fn entries(input: &mut Input<'_>, depth: usize) -> Vec<DescrEntry> {
    let count = input.byte() % (ENTRIES + 1);
    (0..count)
        .map(|_| {
            let nested = depth > 0 && input.byte() % 4 == 1;
            DescrEntry {
                name: input.text(4),
                dtype: if nested {
                    DescrType::Nested(entries(input, depth - 1))
                } else {
                    DescrType::Typestr(input.text(TEXT))
                },
                shape: input.list(4),
            }
        })
        .collect()
}

/// Encodes a dict as bytes. Numbers beyond 64 bits are clamped.
pub(crate) fn write(interface: &CudaArrayInterface) -> Vec<u8> {
    let cut = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
    let mut output = Output::default();
    output.text(&interface.typestr, TEXT).list(&interface.shape, AXES);
    output.optional(interface.strides.as_ref(), |output, strides| {
        output.list(strides, AXES);
    });
    output.number(i64::from_ne_bytes(interface.data.0.to_ne_bytes())).byte(u8::from(interface.data.1));
    output.number(cut(interface.version));
    output.optional(interface.stream.to_raw().map(|stream| stream as i128), |output, stream| {
        output.number(cut(stream));
    });
    output.byte(u8::from(interface.mask));
    output.optional(interface.descr.as_ref(), |output, descr| write_entries(output, descr));
    output.0
}

fn write_entries(output: &mut Output, descr: &[DescrEntry]) {
    let descr = &descr[..descr.len().min(usize::from(ENTRIES))];
    output.byte(u8::try_from(descr.len()).unwrap_or(ENTRIES));
    for DescrEntry { name, dtype, shape } in descr {
        output.byte(u8::from(matches!(dtype, DescrType::Nested(_)))).text(name, 4);
        match dtype {
            DescrType::Typestr(typestr) => drop(output.text(typestr, TEXT)),
            DescrType::Nested(entries) => write_entries(output, entries),
        }
        output.list(shape, 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dict_that_is_written_is_read() {
        let entry = |dtype| DescrEntry { name: "x".into(), dtype, shape: vec![2] };
        let inner = vec![entry(DescrType::Typestr("<i2".into()))];
        let interface = CudaArrayInterface {
            shape: vec![2, i64::MAX],
            typestr: "|V8".into(),
            data: (0x7000, true),
            version: 3,
            strides: Some(vec![-8, 1 << 40]),
            stream: StreamHandle::LegacyDefault,
            descr: Some(vec![entry(DescrType::Nested(inner)), entry(DescrType::Typestr("<f4".into()))]),
            mask: true,
        };
        assert_eq!(read(&mut Input::new(&write(&interface))), interface);
    }
}
