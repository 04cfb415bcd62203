//! `LaunchScope`: kernels that are launched by hand come after the work on their arrays, and before what follows.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, pending_releases};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Kept, LaunchScope, Lease, LeaseMut, StreamHandle,
};
use simulated_cuda::Mistake;

use crate::counted_imports::{Row, arrive_on, drained, row};
use crate::cuda_program::{Bytes, Place, Stream};
use crate::exclusive_driver::{Turn, first_gpu, turn};
use crate::support::arrays::Array;

const GPU: Device = Device::cuda(0);

/// The stream of an array, another one, and the memory.
fn scene() -> (Turn, Stream, Stream, Bytes) {
    let (turn, place) = first_gpu();
    (turn, place.non_blocking(), place.non_blocking(), place.bytes(1, 64))
}

#[test]
fn one_array_needs_no_call() {
    let (turn, place) = first_gpu();
    let data = place.bytes(1, 64);
    for stream in [place.legacy(), place.blocking(), place.non_blocking()] {
        let (ledger, mut array) = row::<LeaseMut<i16>>(&data, stream);
        turn.reset_calls();
        let scope = LaunchScope::new();
        let view = scope.write::<i16, 1>(&mut array).unwrap();
        assert_eq!((view.address(), view.shape()), (data.address, [32]));
        assert_eq!(turn.all_calls(), 0);
        // The handle of a default stream means another one in another context. So the driver is asked which is current.
        let is_default = u64::from(stream.number() == 1);
        let handle: StreamHandle = scope.stream().unwrap();
        assert_eq!((handle, turn.all_calls()), (stream.handle(), is_default));
        stream.fill(&data, 9);
        turn.reset_calls();
        scope.finish().unwrap();
        drop(array);
        assert_eq!((turn.all_calls(), ledger.released(), pending_releases()), (0, 1, 0), "{stream:?}");
        assert_eq!(stream.reads(&data), 9);
    }
}

/// A kernel copies from an array of one library to that of another, on the stream of the first: it comes after the work of both, and
/// before what comes next on each.
#[track_caller]
fn copies_in_a_scope(turn: &Turn, (to, writer): (&Bytes, Stream), (from, reader): (&Bytes, Stream)) {
    writer.spin();
    writer.fill(to, 3);
    reader.spin();
    reader.fill(from, 5);
    let (one, mut target) = row::<LeaseMut<i16>>(to, writer);
    let (two, source) = row::<Lease<i16>>(from, reader);
    {
        let scope = LaunchScope::new();
        scope.write::<i16, 1>(&mut target).unwrap();
        scope.read::<i16, 1>(&source).unwrap();
        assert_eq!(scope.stream::<StreamHandle>().unwrap(), writer.handle());
        writer.copy(to, from);
    }
    drop((target, source));
    assert_eq!([one.released(), two.released(), pending_releases()], [1, 1, 0]);
    // The library of the array that was read may write it now, after the kernel.
    reader.fill(from, 6);
    assert_eq!((writer.reads(to), reader.reads(from)), (5, 6));
    turn.assert_no_reports();
}

#[test]
fn arrays_of_several_libraries_are_ordered_with_one_kernel() {
    let (turn, place) = first_gpu();
    let streams = [place.non_blocking(), place.non_blocking(), place.blocking(), place.legacy()];
    for (first, writer) in streams.into_iter().enumerate() {
        let (from, to) = (place.bytes(1, 64), place.bytes(1, 64));
        copies_in_a_scope(&turn, (&to, writer), (&from, streams[(first + 1) % streams.len()]));
    }
}

/// An array on a stream outside cannot be read in a captured scope: the error comes before the launch.
#[test]
fn an_array_outside_of_the_capture_is_refused() {
    let (_turn, place) = first_gpu();
    let (captures, outside) = (place.non_blocking(), place.non_blocking());
    let (from, to) = (place.bytes(1, 64), place.bytes(1, 64));
    captures.begin();
    let (one, mut target) = row::<LeaseMut<i16>>(&to, captures);
    let (two, source) = row::<Lease<i16>>(&from, outside);
    let scope = LaunchScope::new();
    scope.write::<i16, 1>(&mut target).unwrap();
    let refused = scope.read::<i16, 1>(&source).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StreamCapture);
    drop(scope);
    drop((target, source));
    assert_eq!([one.released(), two.released(), pending_releases()], [1, 1, 0]);
    assert!(captures.end());
}

/// No wait is possible then, and the graph is ordered where it is launched: nothing is pending on these arrays.
#[test]
fn arrays_on_no_known_stream_take_part_in_a_capture() {
    let (_turn, place) = first_gpu();
    let captures = place.non_blocking();
    let (ledger, import) = arrive_on(&place.bytes(2, 64), GPU, captures);
    let kept: Kept<Row<Lease<i16>>> = Kept::from_import(import).unwrap();
    let unknown = Row { data: CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap(), len: 32 };
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap();
    let mut nothing = Array::new(buffer, &[32]);
    let target = place.bytes(1, 64);
    let scope_of = |array: &mut Row<LeaseMut<i16>>, nothing: &mut Array<CudaBuffer>| {
        let scope = LaunchScope::new();
        scope.write::<i16, 1>(array).unwrap();
        scope.read::<i16, 1>(&kept).unwrap();
        scope.read::<i16, 1>(&unknown).unwrap();
        scope.write::<i16, 1>(nothing).unwrap();
        assert_eq!(scope.stream::<StreamHandle>().unwrap(), captures.handle());
        captures.fill(&target, 4);
        scope.finish().unwrap();
    };
    assert_eq!(finish_releases(), 0);
    captures.begin();
    let (one, mut array) = row::<LeaseMut<i16>>(&target, captures);
    scope_of(&mut array, &mut nothing);
    drop(array);
    assert_eq!((one.released(), pending_releases()), (1, 0));
    assert!(captures.end(), "the capture stays valid");
    drop(kept);
    assert_eq!((finish_releases(), ledger.released()), (0, 1));
}

/// The scope's own stream waits, and is waited for, also where an error or a panic comes after the launch.
#[test]
fn every_way_out_joins() {
    type End = Result<(), &'static str>;
    let ends: [fn() -> End; 3] = [|| Ok(()), || Err("late"), || panic!("late")];
    let (turn, theirs, own, data) = scene();
    for (end, expected) in ends.into_iter().zip([Some(Ok(())), Some(Err("late")), None]) {
        theirs.spin();
        theirs.fill(&data, 3);
        let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
        turn.reset_calls();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let scope = LaunchScope::on(&own);
            scope.write::<i16, 1>(&mut array).unwrap();
            own.spin();
            own.fill(&data, 4);
            end()?;
            scope.finish().unwrap();
            Ok(())
        }));
        turn.assert_no_host_wait();
        assert_eq!(ended.ok(), expected);
        drop(array);
        assert_eq!((ledger.released(), theirs.reads(&data)), (1, 4));
    }
}

/// If a stream cannot be made to wait, the host waits.
#[test]
fn a_join_that_fails_makes_the_host_wait() {
    let (turn, theirs, own, data) = scene();
    for name in ["cuEventRecord", "cuStreamWaitEvent"] {
        let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
        let scope = LaunchScope::on(&own);
        scope.write::<i16, 1>(&mut array).unwrap();
        own.spin();
        own.fill(&data, 4);
        turn.fail_next(name, 2);
        scope.finish().unwrap();
        drop(array);
        assert_eq!((ledger.released(), theirs.reads(&data)), (1, 4), "{name}");
    }
}

#[test]
fn a_wait_that_fails_is_an_error_before_the_launch() {
    let (turn, theirs, own, data) = scene();
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let scope = LaunchScope::on(&own);
    turn.fail_next("cuStreamWaitEvent", 2);
    assert_eq!(scope.write::<i16, 1>(&mut array).unwrap_err().kind(), ErrorKind::Driver);
    drop(scope);
    drop(array);
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
}

/// Nobody knows on which stream the memory was written, so the kernel comes after all work.
#[test]
fn an_unknown_stream_is_all_streams() {
    let (_turn, place) = first_gpu();
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap();
    let mut owned = Row { data: buffer, len: 32 };
    assert_eq!(owned.info().unwrap().stream(), None);
    let data = place.non_blocking().bytes_at(owned.info().unwrap().address(), 64);
    let hidden = place.non_blocking();
    hidden.spin();
    hidden.fill(&data, 5);
    let (theirs, target) = (place.non_blocking(), place.bytes(1, 64));
    let (ledger, mut array) = row::<LeaseMut<i16>>(&target, theirs);
    let scope = LaunchScope::new();
    // The unknown one comes first; the scope is on the stream of the other.
    scope.read::<i16, 1>(&owned).unwrap();
    scope.write::<i16, 1>(&mut array).unwrap();
    assert_eq!(scope.stream::<StreamHandle>().unwrap(), theirs.handle());
    theirs.copy(&target, &data);
    scope.finish().unwrap();
    drop(array);
    assert_eq!((ledger.released(), theirs.reads(&target)), (1, 5));
    // Alone, it is used on the legacy default stream.
    hidden.fill(&data, 6);
    let scope = LaunchScope::new();
    scope.write::<i16, 1>(&mut owned).unwrap();
    assert_eq!(scope.stream::<StreamHandle>().unwrap(), StreamHandle::LegacyDefault);
    scope.finish().unwrap();
    assert_eq!(owned.to_vec::<i16>().unwrap(), [0x606; 32]);
}

/// What states that nothing is pending has to be true after the kernel.
#[test]
fn an_array_without_pending_work_makes_the_host_wait() {
    let (_turn, place) = first_gpu();
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap();
    let mut array = Array::new(buffer, &[32]);
    let own = place.non_blocking();
    let data = own.bytes_at(array.info().unwrap().address(), 64);
    let scope = LaunchScope::on(&own);
    scope.write::<i16, 1>(&mut array).unwrap();
    own.spin();
    own.fill(&data, 4);
    scope.finish().unwrap();
    assert_eq!((data.value(), array.stream), (4, StreamHandle::NothingPending));
}

/// A struct with a stream of its own, as the launches of `cust` need it.
#[derive(Debug, CudaArray)]
#[cuda_array(shape = [len])]
struct WithStream<S> {
    #[cuda_array(data)]
    data: S,
    len: usize,
    #[cuda_array(stream, default = OWN.get())]
    stream: StreamHandle,
}

thread_local! {
    static OWN: Cell<StreamHandle> = const { Cell::new(StreamHandle::LegacyDefault) };
}

/// The caller's library goes on with its stream. The memory is released after the kernel on the other one.
#[test]
fn a_stream_field_of_ones_own_is_ordered_with_the_caller() {
    let (turn, theirs, own, data) = scene();
    OWN.set(own.handle());
    for is_set_later in [false, true] {
        theirs.spin();
        theirs.fill(&data, 3);
        let (ledger, import) = arrive_on(&data, GPU, theirs);
        let launch = |scope: &LaunchScope<'_>| {
            assert_eq!(scope.stream::<StreamHandle>().unwrap(), own.handle());
            own.fill(&data, 4);
            own.spin()
        };
        let scope = LaunchScope::new();
        let spin = if is_set_later {
            let mut array: Array<LeaseMut<i16>> = Array::from_import(import).unwrap();
            array.stream = own.handle();
            let scope = LaunchScope::new();
            scope.write::<i16, 1>(&mut array).unwrap();
            launch(&scope)
        } else {
            let mut array: WithStream<LeaseMut<i16>> = WithStream::from_import(import).unwrap();
            let scope = LaunchScope::new();
            scope.write::<i16, 1>(&mut array).unwrap();
            launch(&scope)
        };
        scope.finish().unwrap();
        assert_eq!((drained(), ledger.released()), (1, 0));
        turn.release(spin);
        assert_eq!(theirs.reads(&data), 4);
        assert_eq!((finish_releases(), ledger.released()), (0, 1));
    }
}

/// The library of a kept array works in the context of its memory, which is not that of the scope.
#[test]
fn the_context_of_the_memory_waits_for_the_scope() {
    let turn = turn();
    let (here, there, foreign) = (Place::primary(0), Place::primary(1), Place::foreign(0));
    for (memory, device, other) in [(there, 1, here), (here, 0, foreign)] {
        let (from, to) = (memory.bytes(5, 64), other.bytes(1, 64));
        let (library, own) = (memory.non_blocking(), other.non_blocking());
        let (ledger, import) = arrive_on(&from, Device::cuda(device), library);
        let source: Kept<Row<Lease<i16>>> = Kept::from_import(import).unwrap();
        let scope = LaunchScope::on(&own).across_devices();
        scope.read::<i16, 1>(&source).unwrap();
        own.spin();
        own.copy(&to, &from);
        scope.finish().unwrap();
        library.fill(&from, 7);
        assert_eq!((own.reads(&to), library.reads(&from)), (5, 7));
        drop(source);
        assert_eq!((finish_releases(), ledger.released()), (0, 1));
        turn.assert_no_reports();
    }
    foreign.destroy();
}

/// No stream is named, so the scope is on that of the array.
#[test]
fn a_scope_on_no_stream_is_on_that_of_its_array() {
    let (_turn, place) = first_gpu();
    let (theirs, data) = (place.non_blocking(), place.bytes(1, 64));
    let (_ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let scope = LaunchScope::on(&StreamHandle::NothingPending);
    scope.write::<i16, 1>(&mut array).unwrap();
    assert_eq!(scope.stream::<StreamHandle>().unwrap(), theirs.handle());
}

/// An array that was refused does not decide on which device a default stream is.
#[test]
fn a_refused_array_leaves_the_scope_as_it_was() {
    let turn = turn();
    let (here, there) = (Place::primary(0), Place::primary(1));
    let (other, data) = (here.bytes(1, 64), there.bytes(2, 64));
    let (_refused, array) = row::<Lease<i16>>(&other, here.non_blocking());
    let theirs = there.non_blocking();
    let (_ledger, import) = arrive_on(&data, Device::cuda(1), theirs);
    let mut target: Row<LeaseMut<i16>> = Row::from_import(import).unwrap();
    theirs.spin();
    theirs.fill(&data, 3);
    let scope = LaunchScope::on(&StreamHandle::LegacyDefault);
    turn.fail_next("cuStreamWaitEvent", 2);
    assert_eq!(scope.read::<i16, 1>(&array).unwrap_err().kind(), ErrorKind::Driver);
    scope.write::<i16, 1>(&mut target).unwrap();
    there.legacy().fill(&data, 4);
    scope.finish().unwrap();
    drop(target);
    assert_eq!(theirs.reads(&data), 4);
}

#[test]
fn two_devices_need_leave() {
    let _turn = turn();
    let (here, there) = (Place::primary(0), Place::primary(1));
    let (from, to) = (there.bytes(5, 64), here.bytes(1, 64));
    let (reader, writer) = (there.non_blocking(), here.non_blocking());
    let (one, import) = arrive_on(&from, Device::cuda(1), reader);
    let source: Row<Lease<i16>> = Row::from_import(import).unwrap();
    let (two, mut target) = row::<LeaseMut<i16>>(&to, writer);
    let foreign = Place::foreign(1);
    // A stream that is named is on its own device, whatever array comes first.
    for stream in [reader, foreign.non_blocking()] {
        let scope = LaunchScope::on(&stream);
        let refused = scope.read::<i16, 1>(&target).unwrap_err().to_string();
        assert!(refused.contains("allowed: CUDA (2), ordinal 1, where the scope is"), "{refused}");
        scope.read::<i16, 1>(&source).unwrap();
    }
    {
        let scope = LaunchScope::new();
        scope.write::<i16, 1>(&mut target).unwrap();
        let refused = scope.read::<i16, 1>(&source).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Device);
        assert!(refused.to_string().contains("across_devices"), "{refused}");
        // A scope that is asked for its stream first is on the first device.
        let scope = LaunchScope::new();
        assert_eq!(scope.stream::<StreamHandle>().unwrap(), StreamHandle::LegacyDefault);
        assert_eq!(scope.read::<i16, 1>(&source).unwrap_err().kind(), ErrorKind::Device);
    }
    reader.spin();
    reader.fill(&from, 6);
    {
        let scope = LaunchScope::new().across_devices();
        scope.write::<i16, 1>(&mut target).unwrap();
        scope.read::<i16, 1>(&source).unwrap();
        writer.copy(&to, &from);
    }
    drop((source, target));
    assert_eq!([one.released(), two.released()], [1, 1]);
    reader.fill(&from, 7);
    assert_eq!(writer.reads(&to), 6);
    foreign.destroy();
}

/// The default streams of two contexts have one handle and are two streams.
#[test]
fn default_streams_of_two_contexts_are_not_the_same() {
    let turn = turn();
    let (primary, own) = (Place::primary(0), Place::foreign(0));
    let (from, to) = (own.bytes(1, 64), primary.bytes(1, 64));
    copies_in_a_scope(&turn, (&to, primary.legacy()), (&from, own.legacy()));
    drop(from);
    assert_eq!(finish_releases(), 0);
    own.destroy();
}

/// The counterexample: without the scope the driver reports the race.
#[test]
fn without_the_scope_it_shows() {
    let (turn, theirs, own, data) = scene();
    theirs.fill(&data, 3);
    let (_ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    array.view_mut::<i16, 1>().unwrap().kernel_view_mut().unwrap();
    own.fill(&data, 4);
    drop(array);
    theirs.reads(&data);
    assert_eq!(finish_releases(), 0);
    assert!(turn.expect(Mistake::Race) > 0);
}
