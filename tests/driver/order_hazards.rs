//! Orders that are easily lost: a default stream of a context that is not current, a wait that fails, a later thread with
//! the identifier of an earlier one, memory that its storage frees on a stream of its own, and several handles of one memory.
#![expect(unsafe_code, reason = "implements `Storage`, and frees memory as C code would")]

use std::cell::Cell;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use interop_core::cuda::{CudaBuffer, MemoryKind, finish_releases, pending_releases};
use interop_core::storage::{MemoryRegion, Mutability};
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, LaunchScope, Lease, LeaseMut, Result, SharedBuffer,
    Storage, StreamHandle,
};

use crate::counted_imports::{Row, arrive, arrive_on, row};
use crate::cuda_program::{Bytes, Place, Stream, cu, done};
use crate::exclusive_driver::{first_gpu, turn};
use crate::rust_kernels::{FEW, KERNELS, add};
use crate::support::arrays::Array;

/// Runs `work` on arrays that are on the legacy default stream of the primary context, while another context of the
/// device is current.
fn beside_another_context<R>(work: impl FnOnce() -> R) -> R {
    let foreign = Place::foreign(0);
    let result = foreign.with(work);
    foreign.destroy();
    result
}

/// A launch is never left out.
#[test]
fn a_launch_on_the_default_stream_of_another_context() {
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    let legacy = place.legacy();
    let (to, from) = (place.bytes(3, 64), place.bytes(5, 64));
    let (mut target, source) = (row::<LeaseMut<i16>>(&to, legacy).1, row::<Lease<i16>>(&from, legacy).1);
    turn.reset_calls();
    beside_another_context(|| {
        let scope = LaunchScope::new();
        let arguments = add::with(scope.write(&mut target).unwrap(), scope.read(&source).unwrap(), 0x0101);
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        scope.finish().unwrap();
    });
    turn.assert_no_host_wait();
    assert_eq!(turn.calls_of(["cuLaunchKernel"]), [1]);
    drop((target, source));
    assert_eq!(legacy.reads(&to), 9);
}

/// The number of that stream means another one here.
#[test]
fn the_stream_of_a_scope_that_no_handle_means() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(3, 64);
    let (_ledger, array) = row::<Lease<i16>>(&data, place.legacy());
    beside_another_context(|| {
        let scope = LaunchScope::new();
        scope.read_any(&array).unwrap();
        let error = scope.stream::<StreamHandle>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stream, "{error}");
        scope.finish().unwrap();
    });
    drop(array);
}

/// A consumer waits for all work then.
#[test]
fn a_getter_does_not_wait() {
    let (turn, place) = first_gpu();
    let data = place.bytes(1, 64);
    let spin = place.legacy().spin();
    place.legacy().fill(&data, 3);
    let (_ledger, array) = row::<Lease<i16>>(&data, place.legacy());
    beside_another_context(|| {
        turn.reset_calls();
        assert_eq!(array.info().unwrap().stream(), None);
        turn.assert_no_host_wait();
        assert!(turn.is_pending(spin));
        assert_eq!(array.to_vec::<i16>().unwrap(), [0x303; 32]);
    });
    assert_eq!(array.info().unwrap().stream(), Some(StreamHandle::LegacyDefault));
    drop(array);
}

#[test]
fn a_wait_that_fails_is_an_error() {
    let (turn, place) = first_gpu();
    let data = place.bytes(1, 64);
    let spin = place.legacy().spin();
    place.legacy().fill(&data, 3);
    let (_ledger, array) = row::<Lease<i16>>(&data, place.legacy());
    let answer = beside_another_context(|| {
        turn.fail_next("cuEventRecord", 2);
        let answer = array.make_stream_wait(StreamHandle::LegacyDefault);
        turn.clear_faults();
        answer
    });
    assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Driver), "nobody orders the consumer");
    turn.release(spin);
    turn.run_all();
    drop(array);
    turn.take_reports();
}

/// The system gives the identifier of a thread that has ended to a later one.
#[test]
fn a_later_thread_is_another_one() {
    unsafe extern "C" {
        safe fn pthread_self() -> usize;
    }
    let (turn, place) = first_gpu();
    let data = place.bytes(0, 64);
    let stream = place.non_blocking();
    let (at, count) = (data.at(), data.count);
    let import = move || row::<LeaseMut<i16>>(&stream.bytes_at(at, count), stream).1;
    let mut is_reused = false;
    for _ in 0..1000 {
        let (first, array) = thread::spawn(move || (pthread_self(), import())).join().unwrap();
        let spin = place.non_blocking().spin();
        let second = thread::spawn(move || (pthread_self(), drop(array)).0).join().unwrap();
        let pending = pending_releases();
        turn.release(spin);
        assert_eq!((pending, finish_releases()), (1, 0), "released as on the thread that imported");
        is_reused = first == second;
        if is_reused {
            break;
        }
    }
    assert!(is_reused, "no identifier came again");
}

/// Pool memory that its storage frees in the order of a stream.
struct FreedOn {
    address: u64,
    stream: Stream,
}

// SAFETY: 1 and 2: the memory lives until the drop. 3: it is memory of this device. 4: nothing returns references. 6: the
// drop frees in the order of the stream that is returned.
unsafe impl Storage for FreedOn {
    fn memory(&self) -> Result<MemoryRegion> {
        let address = usize::try_from(self.address).unwrap();
        Ok(MemoryRegion::new::<i16>(address, 32, Device::cuda(0), Mutability::Writable))
    }

    fn stream(&self) -> Option<StreamHandle> {
        Some(self.stream.handle())
    }
}

impl Drop for FreedOn {
    fn drop(&mut self) {
        let stream = u64::try_from(self.stream.number()).unwrap();
        Place::primary(0).with(|| done(cu!("cuMemFreeAsync", self.address => u64, stream => u64)));
    }
}

/// A struct with a `stream` field beside such memory.
#[derive(CudaArray)]
#[cuda_array(shape = [32], export)]
struct Beside {
    #[cuda_array(data)]
    data: FreedOn,
    #[cuda_array(stream)]
    stream: StreamHandle,
}

fn beside(frees_on: Stream, own: Stream) -> Beside {
    let memory = frees_on.scratch(64);
    frees_on.fill(&memory, 3);
    let data = FreedOn { address: memory.address, stream: frees_on };
    std::mem::forget(memory);
    Beside { data, stream: own.handle() }
}

#[test]
fn memory_is_freed_after_the_work_of_a_scope_on_the_field_s_stream() {
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    for frees_on in [place.legacy(), place.non_blocking()] {
        let (from, own) = (place.bytes(5, 64), place.non_blocking());
        let mut target = beside(frees_on, own);
        let source = row::<Lease<i16>>(&from, own).1;
        own.spin();
        let scope = LaunchScope::on(&own);
        let arguments = add::with(scope.write(&mut target).unwrap(), scope.read(&source).unwrap(), 0);
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        scope.finish().unwrap();
        drop(target);
        turn.run_all();
        drop(source);
        turn.assert_no_reports();
    }
}

/// The field states a stream. What is known of the memory is waited for, too.
#[test]
fn the_work_on_a_block_is_waited_for_beside_a_field() {
    #[derive(CudaArray)]
    #[cuda_array(shape = [32], export)]
    struct Zeroed {
        #[cuda_array(data)]
        data: CudaBuffer,
        #[cuda_array(stream)]
        stream: StreamHandle,
    }
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    for field in [place.non_blocking().handle(), StreamHandle::LegacyDefault, StreamHandle::NothingPending] {
        let zeroed = || {
            let busy = place.non_blocking();
            busy.spin();
            let data = CudaBuffer::zeroed_on(busy.handle(), 0, DType::I16, 32).unwrap();
            Zeroed { data, stream: field }
        };
        let consumer = place.non_blocking();
        let exported = zeroed();
        exported.make_stream_wait(consumer.handle()).unwrap();
        let bytes = consumer.bytes_at(exported.info().unwrap().address(), 64);
        assert_eq!(consumer.reads(&bytes), 0, "{field:?}");
        let mut array = zeroed();
        let from = place.bytes(5, 64);
        let source = row::<Lease<i16>>(&from, consumer).1;
        let scope = LaunchScope::new();
        let arguments = add::with(scope.write(&mut array).unwrap(), scope.read(&source).unwrap(), 0);
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        scope.finish().unwrap();
        assert_eq!(array.to_vec::<i16>().unwrap(), [0x505; 32], "{field:?}");
        drop((exported, array, source));
        turn.run_all();
        finish_releases();
        turn.assert_no_reports();
    }
}

/// The second scope cannot wait for work that the first one has not queued yet, so it is refused.
#[test]
fn two_handles_of_one_memory_in_two_open_scopes() {
    let (_turn, place) = first_gpu();
    let data = place.bytes(3, 64);
    let shared = row::<SharedBuffer>(&data, place.legacy()).1;
    let clones = || [(); 2].map(|()| Row { data: shared.data.clone(), len: 32 });
    refuses_a_second_scope(clones());
    let of_lease = SharedBuffer::new(row::<LeaseMut<i16>>(&data, place.legacy()).1.data);
    refuses_a_second_scope([(); 2].map(|()| Row { data: of_lease.clone(), len: 32 }));
    let handle = Arc::new(row::<LeaseMut<i16>>(&data, place.legacy()).1);
    refuses_a_second_scope([handle.clone(), handle]);
    let block = Arc::new(Row {
        data: CudaBuffer::zeroed_on(place.legacy().handle(), 0, DType::I16, 32).unwrap(),
        len: 32,
    });
    refuses_a_second_scope([block.clone(), block]);
    drop((shared, of_lease));
    finish_releases();
}

fn refuses_a_second_scope<A: CudaArray>([mut one, mut two]: [A; 2]) {
    let refused = Err(ErrorKind::AlreadyBorrowed);
    let other = Place::primary(0).non_blocking().handle();
    {
        let (first, second) = (LaunchScope::new(), LaunchScope::on(&other));
        first.write_any(&mut one).unwrap();
        assert_eq!(second.read_any(&two).map(drop).map_err(|error| error.kind()), refused);
    }
    {
        let (first, second) = (LaunchScope::new(), LaunchScope::new());
        first.read_any(&one).unwrap();
        second.read_any(&two).unwrap();
    }
    {
        let (first, second) = (LaunchScope::new(), LaunchScope::on(&other));
        first.read_any(&one).unwrap();
        assert_eq!(second.write_any(&mut two).map(drop).map_err(|error| error.kind()), refused);
    }
    // One after the other.
    for array in [&mut one, &mut two] {
        let scope = LaunchScope::new();
        scope.write_any(array).unwrap();
        scope.finish().unwrap();
    }
}

/// Each import of one memory is an array of its own, so the scope compares their elements.
#[test]
fn one_launch_reads_and_writes_no_element_under_two_names() {
    #[derive(CudaArray)]
    #[cuda_array(export)]
    struct Strided {
        #[cuda_array(data)]
        data: LeaseMut<i16>,
        #[cuda_array(shape)]
        shape: [usize; 1],
        #[cuda_array(strides)]
        strides: [isize; 1],
    }
    let (_turn, place) = first_gpu();
    let (data, stream) = (place.bytes(3, 64), place.legacy());
    let import = |extent: usize, stride: isize, first: usize| {
        let part = stream.bytes_at(data.at() + first, 64 - first);
        let (_ledger, import) = arrive_on(&part, Device::cuda(0), stream);
        let data = Row::<LeaseMut<i16>>::from_import(import).unwrap().data;
        Strided { data, shape: [extent], strides: [stride] }
    };
    let overlap = |one: &mut Strided, two: &Strided| {
        let scope = LaunchScope::new();
        scope.write_any(one).unwrap();
        scope.read_any(two).map(drop).map_err(|error| error.kind())
    };
    let refused = Err(ErrorKind::AlreadyBorrowed);
    assert_eq!(overlap(&mut import(32, 1, 0), &import(32, 1, 0)), refused);
    assert_eq!(overlap(&mut import(8, 1, 0), &import(8, 1, 14)), refused);
    assert_eq!(overlap(&mut import(8, 1, 0), &import(8, 1, 16)), Ok(()));
    // Two columns of four, and a column with a row across it.
    assert_eq!(overlap(&mut import(8, 4, 0), &import(7, 4, 2)), Ok(()));
    assert_eq!(overlap(&mut import(8, 4, 0), &import(4, 1, 8)), refused);
    // A column with one element beside it, and rows of two in turns.
    assert_eq!(overlap(&mut import(8, 4, 0), &import(1, 1, 10)), Ok(()));
    assert_eq!(overlap(&mut import(2, 1, 10), &import(8, 4, 0)), Ok(()));
    assert_eq!(overlap(&mut import(3, 1, 10), &import(8, 4, 0)), Ok(()));
    assert_eq!(overlap(&mut import(4, 1, 10), &import(8, 4, 0)), refused);
    finish_releases();
}

/// Managed memory is read by the host while no kernel writes it.
#[test]
fn a_host_view_and_a_scope_exclude_each_other() {
    let _turn = turn();
    for kind in [MemoryKind::Managed, MemoryKind::Pinned] {
        let data = CudaBuffer::zeroed(kind, 0, DType::I16, 32).unwrap();
        let array = Arc::new(Row { data, len: 32 });
        let (mut written, reader) = (array.clone(), array.clone());
        {
            let scope = LaunchScope::new();
            scope.write_any(&mut written).unwrap();
            let error = array.view::<i16, 1>().unwrap().host_view().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyBorrowed, "{kind:?}");
        }
        let view = array.view::<i16, 1>().unwrap().host_view().unwrap();
        let scope = LaunchScope::new();
        scope.read_any(&reader).unwrap();
        let error = scope.write_any(&mut written).unwrap_err();
        assert_eq!((error.kind(), view.read([0]).unwrap()), (ErrorKind::AlreadyBorrowed, 0), "{kind:?}");
    }
}

/// An import is put on a stream by safe code. The stream waits for what is known.
#[test]
fn a_stream_that_is_named_waits_for_what_is_known() {
    let (turn, place) = first_gpu();
    let data = place.bytes(1, 64);
    for to in [place.non_blocking().handle(), StreamHandle::NothingPending] {
        let (_ledger, import) = arrive(&data, Device::cuda(0));
        place.legacy().spin();
        place.legacy().fill(&data, 3);
        let array = Row::<Lease<i16>>::from_import(import.with_stream(to).unwrap()).unwrap();
        assert_eq!(array.to_vec::<i16>().unwrap(), [0x303; 32], "{to:?}");
        place.legacy().fill(&data, 1);
        drop(array);
    }
    finish_releases();
    let captures = place.non_blocking();
    let (ledger, import) = arrive(&data, Device::cuda(0));
    place.legacy().spin();
    captures.begin();
    let refused = import.with_stream(captures.handle()).unwrap_err();
    assert_eq!((refused.error.kind(), ledger.released()), (ErrorKind::StreamCapture, 0));
    assert!(captures.end());
    drop(refused);
    turn.run_all();
    finish_releases();
}

/// Device memory of a crate that keeps a record of its own.
struct Recorded<'t> {
    data: &'t Bytes,
    stream: Option<StreamHandle>,
    asked: &'t Cell<u32>,
    note: fn() -> bool,
}

// SAFETY: 1, 2, 6: the test keeps the memory, and frees it when nothing uses it. 3: it is memory of this device. 4: nothing
// returns references.
unsafe impl Storage for Recorded<'_> {
    fn memory(&self) -> Result<MemoryRegion> {
        Ok(MemoryRegion::new::<i16>(self.data.at(), 32, Device::cuda(0), Mutability::Writable))
    }

    fn stream(&self) -> Option<StreamHandle> {
        self.stream
    }

    fn note_read(&self, _: StreamHandle) -> bool {
        self.asked.set(self.asked.get() + 1);
        (self.note)()
    }

    fn note_write(&mut self, stream: StreamHandle) -> bool {
        self.note_read(stream)
    }
}

/// The arrays after it are ordered all the same, and the host waits for its own.
#[test]
fn a_record_that_panics_leaves_no_array_unordered() {
    let turn = turn();
    turn.register::<add>();
    let place = Place::primary(0);
    let (data, from, own, asked) =
        (place.bytes(3, 64), place.bytes(5, 64), place.non_blocking(), Cell::new(0));
    let mut target = Row {
        data: Recorded { data: &data, stream: None, asked: &asked, note: || panic!("the record") },
        len: 32,
    };
    let source = row::<Lease<i16>>(&from, place.non_blocking()).1;
    for is_dropped in [false, true] {
        let scope = LaunchScope::on(&own);
        let arguments = add::with(scope.write(&mut target).unwrap(), scope.read(&source).unwrap(), 0);
        scope.launch(&KERNELS, FEW, arguments).unwrap();
        let (ordered, waited) = (turn.calls("cuStreamWaitEvent"), turn.calls("cuEventSynchronize"));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if is_dropped {
                let _scope = scope;
                panic!("the program");
            }
            scope.finish()
        }));
        let says = if is_dropped { "the program" } else { "the record" };
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&says));
        let calls = (turn.calls("cuStreamWaitEvent"), turn.calls("cuEventSynchronize"));
        assert_eq!(calls, (ordered + 1, waited + 1));
    }
    drop((target, source));
    turn.run_all();
    finish_releases();
}

/// A host wait that is decided orders every record.
#[test]
fn no_record_is_asked_in_vain() {
    let (_turn, place) = first_gpu();
    let (data, own, asked) = (place.bytes(3, 64), place.non_blocking(), Cell::new(0));
    let recorded = |note: fn() -> bool| Row {
        data: Recorded { data: &data, stream: None, asked: &asked, note },
        len: 32,
    };
    let idle = place.bytes(5, 64);
    let idle = || {
        let import = arrive(&idle, Device::cuda(0)).1.with_stream(StreamHandle::NothingPending).unwrap();
        Array::from_import(import).unwrap()
    };
    let handle = own.handle();
    let reads = |arrays: [&Row<Recorded<'_>>; 2], idle: Option<&Array<Lease<i16>>>| {
        let before = asked.take();
        let scope = LaunchScope::on(&handle);
        let (recorded, idle) =
            (arrays.map(|array| scope.read_any(array)), idle.map(|array| scope.read_any(array)));
        assert!(recorded.iter().chain(&idle).all(Result::is_ok));
        scope.finish().unwrap();
        (before, asked.take()).1
    };
    let (keeps, lacks) = (recorded(|| true), recorded(|| false));
    assert_eq!(reads([&keeps, &keeps], None), 2);
    assert_eq!(reads([&lacks, &keeps], None), 1);
    assert_eq!(reads([&keeps, &keeps], Some(&idle())), 0);
    finish_releases();
}

/// The borrow lasts as long as the memory.
#[test]
fn a_forgotten_scope_keeps_its_arrays_borrowed() {
    let turn = turn();
    turn.set_reuse(true);
    let stream = Place::primary(0).non_blocking().handle();
    let block = || Arc::new(Row { data: CudaBuffer::zeroed_on(stream, 0, DType::I16, 32).unwrap(), len: 32 });
    let other_stream = Place::primary(0).non_blocking().handle();
    let writes = |array: &mut Arc<Row<CudaBuffer>>| {
        let scope = LaunchScope::on(&other_stream);
        scope.write_any(array).map(drop).map_err(|error| error.kind())
    };
    let mut other = block();
    let reader = other.clone();
    let address = other.info().unwrap().address();
    let forgotten = LaunchScope::on(&stream);
    forgotten.read_any(&reader).map(drop).unwrap();
    forget(forgotten);
    assert_eq!(writes(&mut other), Err(ErrorKind::AlreadyBorrowed));
    drop((other, reader));
    finish_releases();
    let mut later = block();
    assert_eq!(
        (later.info().unwrap().address(), writes(&mut later)),
        (address, Ok(())),
        "the memory is reused"
    );
    drop(later);
    finish_releases();
    turn.set_reuse(false);
}

/// The copy is on the default stream of the memory's context, which waits for the work, whatever context is current.
#[test]
fn a_copy_of_memory_of_another_context_waits_for_its_work() {
    let turn = turn();
    let place = Place::foreign(0);
    for settled in [false, true] {
        let data = place.bytes(3, 64);
        let stream = place.legacy();
        let (ledger, mut import) = arrive_on(&data, Device::cuda(0), stream);
        if settled {
            import.settle().unwrap();
        }
        let busy = place.non_blocking();
        let work = if settled { busy } else { stream };
        work.spin();
        work.fill(&data, 5);
        Place::primary(0).with(|| {
            let copy = Row::<CudaBuffer>::from_import(import).unwrap();
            assert_eq!(copy.to_vec::<i16>().unwrap()[0], 0x505, "{settled}");
            drop(copy);
        });
        turn.run_all();
        finish_releases();
        assert_eq!(ledger.released(), 1);
        turn.assert_no_reports();
    }
    place.destroy();
}

/// The same with a `stream` field: no handle means the stream here, so the host waits.
#[test]
fn a_stream_field_does_not_name_a_default_stream_of_another_context() {
    let turn = turn();
    let place = Place::foreign(0);
    let data = place.bytes(3, 64);
    let (_ledger, mut import) = arrive_on(&data, Device::cuda(0), place.legacy());
    import.settle().unwrap();
    let busy = place.non_blocking();
    busy.spin();
    busy.fill(&data, 5);
    Place::primary(0).with(|| {
        let array = Array::<LeaseMut<i16>>::from_import(import).unwrap();
        assert_eq!(array.stream, StreamHandle::NothingPending);
        assert_eq!(array.to_vec::<i16>().unwrap()[0], 0x505);
    });
    turn.run_all();
    finish_releases();
    turn.assert_no_reports();
    drop(data);
    place.destroy();
}
