//! Loops that do not wait: memory of the pool that only this crate has used waits for nobody, and what others have used is
//! bounded.
#![expect(unsafe_code, reason = "imports a tensor on a stream")]

use std::time::{Duration, Instant};

use interop_core::cuda::{
    CudaBuffer, MemoryKind, finish_releases, pending_releases, poll_releases, set_release_limit,
};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, Import, LaunchScope, Result, live_allocations,
};
use simulated_cuda::Live;

use crate::counted_imports::claim;
use crate::cuda_program::{Place, Stream};
use crate::exclusive_driver::{first_gpu, turn};
use crate::support::arrays::Array;

/// Large enough for an event of its own.
const LARGE: usize = 2 << 20;

#[derive(Debug, CudaArray)]
#[cuda_array(shape = [len], export)]
struct Row {
    #[cuda_array(data)]
    data: CudaBuffer,
    len: usize,
}

impl Row {
    fn new(stream: Stream) -> Self {
        Self { data: CudaBuffer::zeroed_on(stream.handle(), 0, DType::U8, LARGE).unwrap(), len: LARGE }
    }

    /// Writes the elements in a scope on a stream.
    fn write(&mut self, stream: Stream) -> Result<()> {
        let scope = LaunchScope::on(&stream);
        let view = scope.write::<u8, 1>(self)?;
        stream.fill(&stream.bytes_at(usize::try_from(view.address()).unwrap(), LARGE), 3);
        scope.finish()
    }

    /// Somebody else uses the memory from now on.
    fn give_away(self) -> Self {
        assert_ne!(self.info().unwrap().address(), 0);
        self
    }
}

/// One turn makes two events for the memory and one for the work, and asks the host for nothing. The free is queued although
/// the stream, and another one, are busy.
#[test]
fn what_only_we_have_used_waits_for_nobody() {
    let (turn, place) = first_gpu();
    turn.set_reuse(true);
    let before = turn.live(Live::Allocations);
    let (other, streams) = (place.non_blocking(), [place.non_blocking(), place.blocking(), place.legacy()]);
    for stream in streams {
        Row::new(stream).write(stream).unwrap();
    }
    place.with(|| streams.map(Stream::finish));
    let busy = other.spin();
    for stream in streams.into_iter().cycle().take(30) {
        turn.reset_calls();
        let mut row = Row::new(stream);
        row.write(stream).unwrap();
        drop(row);
        assert_eq!((pending_releases(), live_allocations()), (0, 0));
        turn.assert_no_host_wait();
        let counted = ["cuCtxRecordEvent", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuEventQuery"];
        assert_eq!(turn.calls_of(counted), [0, 1, 1, 0]);
    }
    for stream in streams {
        stream.finish();
    }
    turn.assert_no_reports();
    turn.run_all();
    assert!(!turn.is_pending(busy));
    assert_eq!(turn.live(Live::Allocations), before);
}

/// A stream that waits for what another writes after its loop must hold up nothing.
#[test]
fn the_streams_of_two_consumers_know_nothing_of_each_other() {
    let (turn, place) = first_gpu();
    let (stuck, runs) = (place.non_blocking(), place.non_blocking());
    let busy = stuck.spin();
    drop(Row::new(stuck));
    for _ in 0..10 {
        Row::new(runs).write(runs).unwrap();
    }
    runs.finish();
    assert!(turn.is_pending(busy), "the other stream is still stuck");
    assert_eq!(pending_releases(), 0);
}

/// The release of everything else waits for all work, as ever.
#[test]
fn all_other_uses_are_released_after_all_work() {
    let (turn, place) = first_gpu();
    let (own, other, busy) = (place.non_blocking(), place.non_blocking(), place.non_blocking());
    let on_another_stream = || {
        let mut row = Row::new(own);
        row.write(other).unwrap();
        row
    };
    let in_a_capture = || {
        let mut row = Row::new(own);
        own.begin();
        row.write(own).unwrap();
        assert!(own.end(), "the capture is as it was");
        row
    };
    let forgotten_scope = || {
        let mut row = Row::new(own);
        let scope = LaunchScope::new();
        scope.write::<u8, 1>(&mut row).unwrap();
        std::mem::forget(scope);
        row
    };
    let exported = || {
        let row = std::sync::Arc::new(Row::new(own));
        drop(row.share_dlpack().unwrap());
        std::sync::Arc::into_inner(row).expect("the only one")
    };
    let uses: [(&str, &dyn Fn() -> Row); 5] = [
        ("another stream", &on_another_stream),
        ("a capture", &in_a_capture),
        ("a forgotten scope", &forgotten_scope),
        ("the address", &|| Row::new(own).give_away()),
        ("an export", &exported),
    ];
    for (what, make) in uses {
        let row = make();
        let spin = busy.spin();
        drop(row);
        assert_eq!((pending_releases(), turn.is_pending(spin)), (1, true), "{what}");
        turn.release(spin);
        turn.run_all();
        assert_eq!(poll_releases(), 0, "{what}");
    }
}

/// Beyond sixteen busy streams the memory is released as all other.
#[test]
fn many_streams_share_what_is_left() {
    let turn = turn();
    let place = Place::foreign(0);
    place.with(|| {
        let streams: Vec<Stream> = (0..20).map(|_| place.non_blocking()).collect();
        let before = turn.live(Live::Streams);
        for stream in &streams {
            Row::new(*stream).write(*stream).unwrap();
        }
        assert!(turn.live(Live::Streams) - before <= 17);
        assert_ne!(pending_releases(), 0);
        turn.run_all();
        assert_eq!(poll_releases(), 0);
        for stream in &streams {
            Row::new(*stream).write(*stream).unwrap();
            turn.run_all();
            assert_eq!(pending_releases(), 0, "a stream that has nothing to do is free for another consumer");
        }
        turn.assert_no_reports();
        streams.into_iter().for_each(Stream::destroy);
    });
    assert_eq!(finish_releases(), 0);
    place.destroy();
}

#[test]
fn a_reset_takes_the_streams_with_it() {
    let mut turn = turn();
    let stream = Place::primary(0).non_blocking();
    let mut row = Row::new(stream);
    row.write(stream).unwrap();
    stream.finish();
    drop(row);
    Place::reset_primary(0);
    turn.expect_what_is_live_now();
    let stream = Place::primary(0).non_blocking();
    let mut row = Row::new(stream);
    row.write(stream).unwrap();
    drop(row);
    stream.finish();
}

/// Another consumer must not get the stream of one that waits at the limit: its memory is ordered on that stream.
#[test]
fn a_stream_that_is_idle_is_not_taken_from_an_allocation_that_waits() {
    let turn = turn();
    turn.set_reuse(true);
    let place = Place::primary(0);
    let own = place.non_blocking();
    drop(Row::new(own));
    own.finish();
    for _ in 0..14 {
        drop(Row::new(place.non_blocking()));
    }
    turn.run_all();
    let (further, busy) = (place.non_blocking(), place.non_blocking());
    let limit = Limit::of(2 * LARGE);
    let spin = busy.spin();
    for _ in 0..2 {
        let row = Row::new(own).give_away();
        own.finish();
        drop(row);
    }
    assert_eq!(pending_releases(), 2);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let row = Row::new(own);
            own.finish();
            row
        });
        std::thread::sleep(Duration::from_millis(6));
        drop(limit);
        let mut row = Row::new(further);
        let held = further.spin();
        row.write(further).unwrap();
        drop(row);
        drop(waits.join().unwrap());
        turn.release(held);
    });
    turn.release(spin);
    turn.run_all();
    finish_releases();
}

/// The parts that were queued before the failure still read the source and write the memory.
#[test]
fn an_import_that_fails_half_way_is_over_when_it_returns() {
    const NO_KERNELS: i32 = 218;
    let (turn, place) = first_gpu();
    let stream = place.non_blocking();
    drop(Row::new(stream));
    stream.finish();
    let data = place.bytes(1, 64);
    let mut claims = claim(data.at(), 32, Device::cuda(0));
    (claims.shape, claims.strides) = (Some(vec![3, 2]), Some(vec![4, 1]));
    let (_ledger, tensor) = claims.send::<Versioned>();
    // SAFETY: the stream lives as long as the program.
    let import = unsafe { Import::from_dlpack(tensor).unwrap().with_callers_stream(stream.handle()) };
    let busy = stream.spin();
    turn.fail_next("cuModuleLoadData", NO_KERNELS);
    for code in [0, 0, 2] {
        turn.fail_next("cuMemcpyAsync", code);
    }
    assert!(Array::<CudaBuffer>::from_import(import).is_err());
    turn.clear_faults();
    assert!(!turn.is_pending(busy), "the host has waited");
    turn.run_all();
}

#[test]
fn a_stream_that_captures_gets_no_memory() {
    let (_turn, place) = first_gpu();
    let stream = place.non_blocking();
    place.with(|| {
        stream.begin();
        let refused = CudaBuffer::zeroed_on(stream.handle(), 0, DType::U8, LARGE).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StreamCapture, "{refused}");
        assert!(stream.end(), "the capture is as it was");
    });
}

/// The setting for one test.
struct Limit;

impl Limit {
    fn of(bytes: usize) -> Self {
        set_release_limit(Some(bytes)).unwrap();
        Self
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        set_release_limit(None).unwrap();
    }
}

/// The number of queries of an allocation that does not wait: at most one for each pending release.
const FEW: u64 = 6;

/// What another stream holds up is waited for once, for 20 ms, and then more memory is taken.
#[test]
fn an_allocation_at_the_limit_waits_once_for_each_event() {
    let turn = turn();
    let _limit = Limit::of(2 * LARGE);
    let place = Place::primary(0);
    let (stream, busy) = (place.non_blocking(), place.non_blocking());
    let spin = busy.spin();
    let queries = |allocate: &dyn Fn()| {
        turn.reset_calls();
        allocate();
        turn.calls("cuEventQuery")
    };
    let row = || drop(Row::new(stream).give_away());
    let below = [queries(&row), queries(&row)];
    let start = Instant::now();
    row();
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    // One that waits asks some hundred times.
    let later = [queries(&row), queries(&row), queries(&row)];
    assert!(below.iter().chain(&later).all(|queries| *queries <= FEW), "{below:?} {later:?}");
    assert_eq!((pending_releases(), turn.is_pending(spin)), (6, true));
    // Another device is not concerned.
    let other = queries(&|| drop(CudaBuffer::zeroed(MemoryKind::Device, 1, DType::U8, LARGE).unwrap()));
    assert!(other <= FEW, "{other}");
    turn.release(spin);
    turn.run_all();
    drop(Row::new(stream));
    assert_eq!(pending_releases(), 0, "the next allocation has released what was due");
}

/// Without an event there is nothing to wait for: the loop goes on with more memory.
#[test]
fn a_hold_at_the_limit_takes_more_memory() {
    let turn = turn();
    let _limit = Limit::of(LARGE);
    let place = Place::primary(0);
    let stream = place.non_blocking();
    let spin = place.non_blocking().spin();
    {
        let _held = interop_core::cuda::HoldReleases::new();
        turn.reset_calls();
        for _ in 0..4 {
            drop(Row::new(stream).give_away());
        }
        assert_eq!(pending_releases(), 4);
        assert!(turn.calls("cuEventQuery") <= FEW, "{}", turn.calls("cuEventQuery"));
    }
    turn.release(spin);
    assert_eq!(finish_releases(), 0);
}

/// Memory that is used up is an error after one more attempt, and nothing is lost.
#[test]
fn no_memory_is_an_error_after_what_is_deferred_was_released() {
    const OUT_OF_MEMORY: i32 = 2;
    const ALLOCATE: &str = "cuMemAllocFromPoolAsync";
    let (turn, place) = first_gpu();
    let stream = place.non_blocking();
    let spin = place.non_blocking().spin();
    drop(Row::new(stream).give_away());
    turn.release(spin);
    turn.run_all();
    turn.reset_calls();
    turn.fail_next(ALLOCATE, OUT_OF_MEMORY);
    drop(Row::new(stream));
    assert_eq!(turn.calls_of([ALLOCATE, "cuMemPoolTrimTo"]), [2, 2], "both devices have pools");
    assert_eq!(pending_releases(), 0);
    turn.fail_all(OUT_OF_MEMORY);
    let refused = CudaBuffer::zeroed_on(stream.handle(), 0, DType::U8, LARGE);
    turn.clear_faults();
    assert!(refused.is_err());
    assert_eq!(live_allocations(), 0);
}
