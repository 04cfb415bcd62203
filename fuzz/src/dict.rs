//! Dicts of the CUDA Array Interface: what they say is legal or it is not, and what is legal goes out as it came in.
#![expect(
    unsafe_code,
    reason = "creates imports of memory that the caller vouches for, which nobody touches here"
)]

use interop_core::cai::{CudaArrayInterface, DescrEntry, DescrType};
use interop_core::{ArrayInfo, Device, Import, StreamHandle};

use crate::input::{Input, Output};
use crate::oracle::{addresses, check, check_error, check_same, compact, numel, span, widen};
use crate::types::{TEXT, size};

/// More axes than there may be.
const AXES: u8 = 70;
/// The most entries of one `descr`.
const ENTRIES: u8 = 6;
/// Deeper than records may be nested.
const DEPTH: usize = 20;

/// Runs the target.
///
/// # Panics
///
/// When the crate and the oracle differ.
pub fn run(data: &[u8]) {
    let interface = read(&mut Input::new(data));
    // SAFETY: nobody follows the address.
    let import = unsafe { Import::from_cai_on_device(&interface, Device::cuda(0), ()) };
    let legal = legal(&interface);
    match import {
        Err(error) => {
            check_error(&error);
            // The fields of a record have rules of their own, which the oracle does not know.
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

/// What went in comes out, and what comes out goes in.
fn check_again(info: &ArrayInfo) {
    let again = CudaArrayInterface::from_info(info).expect("an array of the interface");
    assert_eq!(again.stream, info.stream());
    // SAFETY: nobody follows the address.
    let import = unsafe { Import::from_cai_on_device(&again, info.device(), ()) }.expect("our own dict");
    check_same(info, import.info());
    assert_eq!(info.stream(), import.info().stream());
    let legacy = again.into_version_2().info().expect("the same without a stream");
    assert_eq!((legacy.byte_range(), legacy.shape()), (info.byte_range(), info.shape()));
}

/// The strides in elements and the bytes of one, where everything but `descr` is legal.
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

/// The stream of this number; nothing where it is none, which is refused where it is read, and tests have all that there are.
pub(crate) fn stream(number: Option<i128>) -> StreamHandle {
    // SAFETY: no driver is there that would follow it.
    unsafe { StreamHandle::from_cai(number) }.unwrap_or_default()
}

/// A dict from bytes.
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

/// The bytes of a dict; a number beyond 64 bits is cut.
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
