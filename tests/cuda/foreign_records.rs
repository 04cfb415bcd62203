//! Storages of other crates take part in the order: their own safe functions, and the frees of their memory, come after the
//! work in a scope or a loan.
#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use cust::memory::{CopyDestination, DeviceBuffer};
use interop_core::adapters::cudarc::{LentSlice, LentSliceMut};
use interop_core::{CudaArray, ErrorKind, FromArray, LaunchScope, SharedBuffer, StreamHandle};

use crate::support::{has_second_device, turn};

const LEN: usize = 1 << 16;

#[derive(CudaArray)]
#[cuda_array(shape = [len])]
struct Row<S> {
    #[cuda_array(data)]
    values: S,
    len: usize,
}

/// A struct with a `stream` field, which an import leaves on a stream of its own.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [len])]
struct Beside {
    #[cuda_array(data)]
    values: CudaSlice<f32>,
    len: usize,
    #[cuda_array(stream, default = own_stream())]
    stream: Arc<CudaStream>,
}

fn own_stream() -> Arc<CudaStream> {
    static OWN: OnceLock<Arc<CudaStream>> = OnceLock::new();
    OWN.get_or_init(|| CudaContext::new(0).unwrap().new_stream().unwrap()).clone()
}

fn streams<const N: usize>() -> [Arc<CudaStream>; N] {
    let context = CudaContext::new(0).unwrap();
    std::array::from_fn(|_| context.new_stream().unwrap())
}

/// Writes zeros in a loan on a stream.
fn zero(array: &mut impl CudaArray, stream: &Arc<CudaStream>) {
    let mut lent = LentSliceMut::<f32>::with_stream(array, stream).unwrap();
    stream.memset_zeros(&mut lent.view_mut()).unwrap();
    lent.finish().unwrap();
}

#[test]
fn a_slice_is_read_on_a_third_stream_after_a_loan() {
    let _turn = turn();
    let [own, second, third] = streams();
    let values = own.clone_htod(&vec![1.0_f32; LEN]).unwrap();
    own.synchronize().unwrap();
    let mut row = Row { values, len: LEN };
    zero(&mut row, &second);
    assert_eq!(third.clone_dtoh(&row.values).unwrap(), vec![0.0; LEN]);
}

/// The functions of `cudarc`, by another handle, would use the memory before the work of the loan is queued.
#[test]
fn a_slice_in_an_arc_is_written_by_its_only_handle() {
    let _turn = turn();
    let [own, second, third] = streams();
    let values = Arc::new(own.clone_htod(&vec![1.0_f32; LEN]).unwrap());
    own.synchronize().unwrap();
    let mut rows = (
        Row { values: SharedBuffer::new(values.clone()), len: LEN },
        Arc::new(Row { values: values.clone(), len: LEN }),
        Row { values: values.clone(), len: LEN },
    );
    let refused = [
        LentSliceMut::<f32>::with_stream(&mut rows.0, &second).map(drop),
        LentSliceMut::<f32>::with_stream(&mut rows.1, &second).map(drop),
        LentSliceMut::<f32>::with_stream(&mut rows.2, &second).map(drop),
        LaunchScope::on(&second).write_any(&mut rows.2).map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyBorrowed);
    }
    // Reading is shared.
    let lent = LentSlice::<f32>::with_stream(&rows.2, &second).unwrap();
    assert_eq!(third.clone_dtoh(&*values).unwrap(), second.clone_dtoh(&lent.view()).unwrap());
    lent.finish().unwrap();
    let (shared, counted, mut row) = rows;
    drop((shared, counted, values));
    zero(&mut row, &second);
    assert_eq!(third.clone_dtoh(&*row.values).unwrap(), vec![0.0; LEN]);
}

/// The next write by `cudarc` comes after a kernel that reads, too.
#[test]
fn a_slice_is_written_on_a_third_stream_after_a_scope_that_reads() {
    let _turn = turn();
    let [own, second, third] = streams();
    let values = own.clone_htod(&vec![1.0_f32; LEN]).unwrap();
    own.synchronize().unwrap();
    let mut row = Row { values, len: LEN };
    let mut copy = second.alloc_zeros::<f32>(LEN).unwrap();
    let lent = LentSlice::<f32>::with_stream(&row, &second).unwrap();
    second.memcpy_dtod(&lent.view(), &mut copy).unwrap();
    lent.finish().unwrap();
    third.memset_zeros(&mut row.values).unwrap();
    third.synchronize().unwrap();
    assert_eq!(second.clone_dtoh(&copy).unwrap(), vec![1.0; LEN]);
}

#[test]
fn a_slice_is_freed_after_the_work_on_the_stream_of_a_field() {
    let _turn = turn();
    let [own, field] = streams();
    let values = own.alloc_zeros::<f32>(LEN).unwrap();
    own.synchronize().unwrap();
    let mut row = Beside { values, len: LEN, stream: field.clone() };
    zero(&mut row, &field);
    drop(row);
    let again = own.alloc_zeros::<f32>(LEN).unwrap();
    own.synchronize().unwrap();
    field.synchronize().unwrap();
    drop(again);
}

#[test]
fn an_export_comes_after_the_work_on_the_stream_of_the_slice() {
    let _turn = turn();
    let [own, field] = streams();
    let values = own.clone_htod(&vec![1.0_f32; LEN]).unwrap();
    let row = Beside { values, len: LEN, stream: field };
    assert_eq!(row.to_vec::<f32>().unwrap(), vec![1.0; LEN]);
    let tensor = row.into_dlpack().unwrap();
    assert_eq!(Row::<CudaSlice<f32>>::from_dlpack(tensor).unwrap().to_vec::<f32>().unwrap(), vec![1.0; LEN]);
}

#[test]
fn an_import_beside_a_stream_field_is_freed_after_its_work() {
    let _turn = turn();
    let tensor = Row { values: vec![1.0_f32; LEN], len: LEN }.into_dlpack().unwrap();
    let mut row = Beside::from_dlpack(tensor).unwrap();
    let stream = row.stream.clone();
    zero(&mut row, &stream);
    drop(row);
    stream.context().default_stream().synchronize().unwrap();
    stream.synchronize().unwrap();
}

/// `cust` keeps no records, and its buffers state no stream: the host waits at the end of the scope.
#[test]
fn a_buffer_of_cust_is_read_after_a_scope() {
    let _turn = turn();
    let _context = cust::quick_init().unwrap();
    let [stream] = streams();
    let mut row = Row { values: DeviceBuffer::from_slice(&vec![1.0_f32; LEN]).unwrap(), len: LEN };
    zero(&mut row, &stream);
    let mut seen = vec![2.0_f32; LEN];
    row.values.copy_to(&mut seen).unwrap();
    assert_eq!(seen, vec![0.0; LEN]);
}

/// Its handle alone would mean the default stream of the array's device.
#[test]
fn a_default_stream_of_another_device_is_not_that_of_the_array() {
    let _turn = turn();
    if !has_second_device() {
        return;
    }
    let [own] = streams();
    let mut row = Row { values: own.alloc_zeros::<f32>(LEN).unwrap(), len: LEN };
    let other = CudaContext::new(1).unwrap().default_stream();
    let scope = LaunchScope::on(&*other);
    assert_eq!(scope.write_any(&mut row).unwrap_err().kind(), ErrorKind::Device);
    drop(scope);
    let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
    scope.write_any(&mut row).unwrap();
    scope.finish().unwrap();
}
