//! `LaunchScope`: kernels that are launched by hand come after the work on their arrays, and before what follows.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, pending_releases};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Kept, LaunchScope, Lease, LeaseMut, StreamHandle,
};
use simulated_cuda::Mistake;

use crate::counted_imports::{Row, arrive_on, drained, row};
use crate::cuda_program::{Place, Stream};
use crate::exclusive_driver::turn;
use crate::support::arrays::Array;

const GPU: Device = Device::cuda(0);

/// The stream on which a test launches: that of the scope.
fn stream_of(scope: &LaunchScope<'_>, known: &[Stream]) -> Stream {
    let handle: StreamHandle = scope.stream().unwrap();
    *known.iter().find(|stream| stream.handle() == handle).expect("a known stream")
}

#[test]
fn one_array_needs_no_call() {
    let turn = turn();
    let place = Place::primary(0);
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

/// Each array is on a stream of its own library: a kernel waits for all of them, and what comes next on each for the
/// kernel.
#[test]
fn arrays_of_several_libraries_are_ordered_with_one_kernel() {
    let turn = turn();
    let place = Place::primary(0);
    let streams = [place.non_blocking(), place.non_blocking(), place.blocking(), place.legacy()];
    for first in 0..streams.len() {
        let (from, to) = (place.bytes(1, 64), place.bytes(1, 64));
        let (writer, reader) = (streams[first], streams[(first + 1) % streams.len()]);
        writer.spin();
        writer.fill(&to, 3);
        reader.spin();
        reader.fill(&from, 5);
        let (one, mut target) = row::<LeaseMut<i16>>(&to, writer);
        let (two, source) = row::<Lease<i16>>(&from, reader);
        {
            let scope = LaunchScope::new();
            scope.write::<i16, 1>(&mut target).unwrap();
            scope.read::<i16, 1>(&source).unwrap();
            assert_eq!(stream_of(&scope, &streams).handle(), writer.handle());
            writer.copy(&to, &from);
        }
        drop((target, source));
        assert_eq!([one.released(), two.released(), pending_releases()], [1, 1, 0]);
        // The library of the array that was read may write it now, after the kernel.
        reader.fill(&from, 6);
        assert_eq!((writer.reads(&to), reader.reads(&from)), (5, 6));
        turn.assert_no_reports();
    }
}

#[test]
fn a_stream_of_ones_own_waits_and_is_waited_for() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    theirs.spin();
    theirs.fill(&data, 3);
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let handle = own.handle();
    turn.reset_calls();
    let scope = LaunchScope::on(&handle);
    scope.write::<i16, 1>(&mut array).unwrap();
    turn.assert_no_host_wait();
    own.fill(&data, 4);
    scope.finish().unwrap();
    drop(array);
    assert_eq!((ledger.released(), theirs.reads(&data)), (1, 4));
    turn.assert_no_reports();
}

/// A capture is forked into the scope's stream and joined back.
#[test]
fn a_stream_of_ones_own_takes_part_in_a_capture() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    theirs.begin();
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let handle = own.handle();
    let scope = LaunchScope::on(&handle);
    scope.write::<i16, 1>(&mut array).unwrap();
    own.fill(&data, 4);
    scope.finish().unwrap();
    drop(array);
    assert_eq!(ledger.released(), 1);
    assert!(theirs.end(), "the scope's stream has joined");
    turn.assert_no_reports();
}

/// An array on a stream outside cannot be read in a captured scope: the error comes before the launch.
#[test]
fn an_array_outside_of_the_capture_is_refused() {
    let _turn = turn();
    let place = Place::primary(0);
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
    let turn = turn();
    let place = Place::primary(0);
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
    turn.assert_no_reports();
}

/// Errors and panics after the launch leave the scope, too.
#[test]
fn every_way_out_joins() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    let handle = own.handle();
    let launch = |array: &mut Row<LeaseMut<i16>>, panics: bool| -> Result<(), &'static str> {
        let scope = LaunchScope::on(&handle);
        scope.write::<i16, 1>(array).unwrap();
        own.spin();
        own.fill(&data, 4);
        assert!(!panics, "after the launch");
        Err("after the launch")
    };
    for panics in [false, true] {
        theirs.fill(&data, 3);
        let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
        let outcome = catch_unwind(AssertUnwindSafe(|| launch(&mut array, panics)));
        assert_eq!(outcome.is_err(), panics);
        drop(array);
        assert_eq!((ledger.released(), theirs.reads(&data)), (1, 4));
    }
    turn.assert_no_reports();
}

#[test]
fn a_forgotten_scope_leaves_the_array_used() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let handle = own.handle();
    let scope = LaunchScope::on(&handle);
    scope.write::<i16, 1>(&mut array).unwrap();
    let spin = own.spin();
    std::mem::forget(scope);
    drop(array);
    assert_eq!((drained(), ledger.released()), (1, 0));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// An array that was used outside of the scope before stays used.
#[test]
fn a_scope_makes_nothing_clean_that_was_used_before() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, data) = (place.non_blocking(), place.bytes(1, 64));
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    array.view::<i16, 1>().unwrap().kernel_view().unwrap();
    let spin = place.non_blocking().spin();
    let scope = LaunchScope::new();
    scope.write::<i16, 1>(&mut array).unwrap();
    scope.finish().unwrap();
    drop(array);
    assert_eq!((drained(), ledger.released()), (1, 0));
    turn.release(spin);
    assert_eq!((drained(), ledger.released()), (0, 1));
}

/// If a stream cannot be made to wait, the host waits.
#[test]
fn a_join_that_fails_makes_the_host_wait() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    for name in ["cuEventRecord", "cuStreamWaitEvent"] {
        let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
        let handle = own.handle();
        let scope = LaunchScope::on(&handle);
        scope.write::<i16, 1>(&mut array).unwrap();
        own.spin();
        own.fill(&data, 4);
        turn.fail_next(name, 2);
        scope.finish().unwrap();
        drop(array);
        assert_eq!((ledger.released(), theirs.reads(&data)), (1, 4), "{name}");
    }
    turn.assert_no_reports();
}

#[test]
fn a_wait_that_fails_is_an_error_before_the_launch() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    let (ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    let handle = own.handle();
    let scope = LaunchScope::on(&handle);
    turn.fail_next("cuStreamWaitEvent", 2);
    assert_eq!(scope.write::<i16, 1>(&mut array).unwrap_err().kind(), ErrorKind::Driver);
    drop(scope);
    drop(array);
    assert_eq!((ledger.released(), pending_releases()), (1, 0));
}

/// Nobody knows on which stream the memory was written, so the kernel comes after all work.
#[test]
fn an_unknown_stream_is_all_streams() {
    let turn = turn();
    let place = Place::primary(0);
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
    turn.assert_no_reports();
}

/// What states that nothing is pending has to be true after the kernel.
#[test]
fn an_array_without_pending_work_makes_the_host_wait() {
    let turn = turn();
    let place = Place::primary(0);
    let buffer = CudaBuffer::zeroed(MemoryKind::Device, 0, DType::I16, 32).unwrap();
    let mut array = Array::new(buffer, &[32]);
    let own = place.non_blocking();
    let data = own.bytes_at(array.info().unwrap().address(), 64);
    let handle = own.handle();
    let scope = LaunchScope::on(&handle);
    scope.write::<i16, 1>(&mut array).unwrap();
    own.spin();
    own.fill(&data, 4);
    scope.finish().unwrap();
    assert_eq!((data.value(), array.stream), (4, StreamHandle::NothingPending));
    turn.assert_no_reports();
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
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
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
    turn.assert_no_reports();
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
        let handle = own.handle();
        let scope = LaunchScope::on(&handle).across_devices();
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
    let _turn = turn();
    let place = Place::primary(0);
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
    turn.assert_no_reports();
}

#[test]
fn two_devices_need_leave() {
    let turn = turn();
    let (here, there) = (Place::primary(0), Place::primary(1));
    let (from, to) = (there.bytes(5, 64), here.bytes(1, 64));
    let (reader, writer) = (there.non_blocking(), here.non_blocking());
    let (one, import) = arrive_on(&from, Device::cuda(1), reader);
    let source: Row<Lease<i16>> = Row::from_import(import).unwrap();
    let (two, mut target) = row::<LeaseMut<i16>>(&to, writer);
    let foreign = Place::foreign(1);
    // A stream that is named is on its own device, whatever array comes first.
    for stream in [reader, foreign.non_blocking()] {
        let handle = stream.handle();
        let scope = LaunchScope::on(&handle);
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
    turn.assert_no_reports();
}

/// The default streams of two contexts have one handle and are two streams.
#[test]
fn default_streams_of_two_contexts_are_not_the_same() {
    let turn = turn();
    let (primary, own) = (Place::primary(0), Place::foreign(0));
    let (from, to) = (own.bytes(1, 64), primary.bytes(1, 64));
    own.legacy().spin();
    own.legacy().fill(&from, 5);
    let (one, source) = row::<Lease<i16>>(&from, own.legacy());
    let (two, mut target) = row::<LeaseMut<i16>>(&to, primary.legacy());
    {
        let scope = LaunchScope::new();
        scope.write::<i16, 1>(&mut target).unwrap();
        scope.read::<i16, 1>(&source).unwrap();
        primary.legacy().copy(&to, &from);
    }
    drop((source, target));
    assert_eq!([one.released(), two.released()], [1, 1]);
    own.legacy().fill(&from, 6);
    assert_eq!(primary.legacy().reads(&to), 5);
    turn.assert_no_reports();
    drop(from);
    assert_eq!(finish_releases(), 0);
    own.destroy();
}

/// The counterexample: without the scope the driver reports the race.
#[test]
fn without_the_scope_it_shows() {
    let turn = turn();
    let place = Place::primary(0);
    let (theirs, own, data) = (place.non_blocking(), place.non_blocking(), place.bytes(1, 64));
    theirs.fill(&data, 3);
    let (_ledger, mut array) = row::<LeaseMut<i16>>(&data, theirs);
    array.view_mut::<i16, 1>().unwrap().kernel_view_mut().unwrap();
    own.fill(&data, 4);
    drop(array);
    theirs.reads(&data);
    assert_eq!(finish_releases(), 0);
    assert!(turn.expect(Mistake::Race) > 0);
}
