//! A process that forks while a thread holds one of our locks, has deferred releases, or polls: the child waits for
//! nothing and leaves the GPU to its parent.

use interop_core::cuda::{
    CudaBuffer, HoldReleases, MemoryKind, finish_releases, is_available, pending_releases,
    pointer_attributes, poll_releases, start_release_thread, stream_wait,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use interop_core::protocols::cai::CudaArrayInterface;
use interop_core::protocols::dlpack::Versioned;
use interop_core::{
    CudaArray, DType, Device, ErrorKind, FromArray, HostVec, Import, LaunchScope, LeaseMut, SharedBuffer,
    StreamHandle, live_exports,
};
use simulated_cuda::{Spin, sim};

use crate::children::{Child, Ended, child_does, end, end_the_thread, in_a_child};
use crate::counted_imports::{Row, arrive, await_release, tell};
use crate::cuda_program::{Bytes, Place, Stream};
use crate::exclusive_driver::started;
use crate::order_settings::Releases;
use crate::support::allocator::stopped_at;
use crate::support::arrays::Array;
use crate::support::foreign_tensors::{Claims, Ledger};
use crate::support::run_alone;

const GPU: Device = Device::cuda(0);

/// A busy GPU and imported arrays of it.
struct Scene {
    data: Bytes,
    stream: Stream,
    spin: Spin,
    ledgers: Vec<Ledger>,
    imports: Vec<Import>,
}

impl Scene {
    fn new(policy: Releases) -> Self {
        started();
        policy.set();
        let place = Place::primary(0);
        let (data, stream) = (place.bytes(0, 64), place.non_blocking());
        let (ledgers, imports) = (0..3).map(|_| arrive(&data, GPU)).unzip();
        Self { data, stream, spin: stream.spin(), ledgers, imports }
    }

    /// Checks what a child finds and what it can do with it.
    fn in_the_child(&mut self) {
        let calls = sim().all_calls();
        self.imports.clear();
        drop(HoldReleases::new());
        assert_eq!((poll_releases(), finish_releases(), pending_releases()), (0, 0, 0));
        let refused = stream_wait(StreamHandle::LegacyDefault, self.stream.handle(), GPU).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Driver);
        start_release_thread().unwrap();
        assert_eq!(sim().all_calls(), calls, "the child calls the driver");
    }

    /// Checks that the parent is not affected.
    fn in_the_parent(mut self) {
        self.imports.clear();
        sim().release(self.spin);
        sim().run_all();
        while finish_releases() != 0 {}
        assert!(self.ledgers.iter().all(|ledger| ledger.released() == 1));
    }
}

/// Stops `work` at its first allocation, at its second, and so on; some of them happen under a lock. A child is
/// forked each time. `before` and `after` run in the parent.
fn wherever_a_thread_stops<S>(
    before: impl Fn() -> S,
    work: impl Fn(&mut S) -> Box<dyn FnOnce() + Send>,
    child: impl Fn(&mut S),
    after: impl Fn(S),
) {
    const STOPPED: u8 = 1;
    let mut stops = 0;
    // Each attempt runs in its own process, because a collection that has grown once allocates no more.
    let attempt = |stop| {
        in_a_child(|| {
            let mut state = before();
            let work = work(&mut state);
            let stopped = stopped_at(stop, work, || child_does(|| child(&mut state)));
            after(state);
            stopped.map_or(0, |()| STOPPED)
        })
    };
    loop {
        match attempt(stops) {
            Ended::Returned(STOPPED) => stops += 1,
            Ended::Returned(0) => break,
            ended => panic!("{ended:?} where the thread stops at allocation {stops}"),
        }
    }
    assert!(stops > 0, "it allocates nothing, and so never stops");
}

/// The locks of the list of deferred releases, and of the recordings that a `HoldReleases` guard waits for.
#[test]
fn while_a_thread_parks_a_release() {
    run_alone("forks::while_a_thread_parks_a_release", || {
        let drops = |scene: &mut Scene| -> Box<dyn FnOnce() + Send> {
            let import = scene.imports.pop();
            Box::new(|| drop(import))
        };
        for policy in [Releases::AfterContext, Releases::AfterAllContexts] {
            let scene = || Scene::new(policy);
            wherever_a_thread_stops(scene, drops, Scene::in_the_child, Scene::in_the_parent);
        }
    });
}

/// The locks of the list of deferred releases, and of the event pool, which receives the finished events.
#[test]
fn while_a_thread_releases_what_is_due() {
    run_alone("forks::while_a_thread_releases_what_is_due", || {
        let due = || {
            let mut scene = Scene::new(Releases::AfterContext);
            drop((scene.imports.pop(), scene.imports.pop()));
            sim().release(scene.spin);
            // The forking thread has an event, which goes into the pool when the thread ends.
            stream_wait(StreamHandle::LegacyDefault, scene.stream.handle(), GPU).unwrap();
            scene
        };
        let child = |scene: &mut Scene| {
            scene.in_the_child();
            end_the_thread();
        };
        let finishes =
            |_: &mut Scene| -> Box<dyn FnOnce() + Send> { Box::new(|| assert!(finish_releases() < 4)) };
        wherever_a_thread_stops(due, finishes, child, Scene::in_the_parent);
    });
}

#[test]
fn while_a_thread_opens_the_driver() {
    run_alone("forks::while_a_thread_opens_the_driver", || {
        let opens = |(): &mut ()| -> Box<dyn FnOnce() + Send> { Box::new(|| assert!(is_available())) };
        let child = |(): &mut ()| {
            let told = pointer_attributes(64).err().map(|error| error.kind());
            assert_eq!((told, is_available()), (Some(ErrorKind::Driver), false));
        };
        wherever_a_thread_stops(
            || assert_eq!(sim().all_calls(), 0),
            opens,
            child,
            |()| assert!(is_available()),
        );
    });
}

#[test]
fn while_a_thread_starts_the_one_that_looks() {
    run_alone("forks::while_a_thread_starts_the_one_that_looks", || {
        let starts =
            |(): &mut ()| -> Box<dyn FnOnce() + Send> { Box::new(|| start_release_thread().unwrap()) };
        let child = |(): &mut ()| start_release_thread().unwrap();
        wherever_a_thread_stops(|| (), starts, child, |()| start_release_thread().unwrap());
    });
}

/// The lock of the borrow records of host memory.
#[test]
fn while_a_thread_begins_to_read() {
    run_alone("forks::while_a_thread_begins_to_read", || {
        let array = || Array::new(HostVec::from([1_i16, 2, 3]), &[3]);
        let reads = |(): &mut ()| -> Box<dyn FnOnce() + Send> {
            let array = array();
            Box::new(move || assert_eq!(array.to_vec::<i16>().unwrap(), [1, 2, 3]))
        };
        let again = || assert_eq!(array().to_vec::<i16>().unwrap(), [1, 2, 3]);
        wherever_a_thread_stops(|| (), reads, |()| again(), |()| again());
    });
}

/// If the parent has not used the driver, the child may use it, with its own background thread.
#[test]
fn a_child_has_its_own_driver_and_its_own_thread_that_looks() {
    run_alone("forks::a_child_has_its_own_driver_and_its_own_thread_that_looks", || {
        start_release_thread().unwrap();
        child_does(|| {
            let mut scene = Scene::new(Releases::AfterContext);
            start_release_thread().unwrap();
            drop(scene.imports.pop());
            sim().release(scene.spin);
            await_release(&scene.ledgers[2]);
            child_does(|| scene.in_the_child());
        });
    });
}

/// The GPU resources of a child belong to its parent: the child calls neither the driver nor a deleter for them.
#[test]
fn a_child_releases_memory_of_the_host_and_nothing_of_the_gpu() {
    run_alone("forks::a_child_releases_memory_of_the_host_and_nothing_of_the_gpu", || {
        for policy in [Releases::AfterContext, Releases::Unordered] {
            let mut scene = Scene::new(policy);
            let exported = Array::<LeaseMut<i16>>::from_import(scene.imports.pop().unwrap()).unwrap();
            let mut exported = Some(exported.into_dlpack().unwrap());
            let kinds = [MemoryKind::Device, MemoryKind::Pool, MemoryKind::Pinned, MemoryKind::Managed];
            let buffer = |kind| Some(CudaBuffer::zeroed(kind, 0, DType::U8, 8).unwrap());
            let mut buffers = kinds.map(buffer);
            let mut parked = Some(arrive(&scene.data, GPU).1);
            drop(parked.take());
            let (host, tensor) = Claims::new(&[4]).send::<Versioned>();
            let mut import = Some(Import::from_dlpack(tensor).unwrap());
            child_does(|| {
                let calls = sim().all_calls();
                drop((exported.take(), import.take(), buffers.each_mut().map(Option::take)));
                scene.in_the_child();
                let (_, tensor) = tell(&scene.data, GPU);
                let refused = Import::from_dlpack(tensor).unwrap_err().error;
                assert_eq!(refused.kind(), ErrorKind::Driver, "{refused}");
                let says = refused.to_string();
                assert!(says.contains("CUDA_ERROR_NOT_INITIALIZED") && says.contains("spawn"), "{says}");
                let device: usize = scene.ledgers.iter().map(Ledger::released).sum();
                assert_eq!((host.released(), device, sim().all_calls()), (1, 0, calls));
            });
            assert_eq!(host.released(), 0);
            drop((exported.take(), import.take(), buffers));
            scene.in_the_parent();
            assert_eq!((host.released(), live_exports(), pending_releases()), (1, 0, 0));
        }
    });
}

/// An owner that forks when it is dropped.
struct Forks(Arc<Mutex<Side>>);

/// Which of the two processes this is.
#[derive(Debug, Default)]
enum Side {
    #[default]
    Before,
    Parent(Child),
    Child,
}

impl Drop for Forks {
    fn drop(&mut self) {
        *self.0.lock().expect("nobody panics with the lock") = Child::new().map_or(Side::Child, Side::Parent);
    }
}

/// The poll continues in both processes. The GPU resources of the child are the parent's to release.
#[test]
#[expect(unsafe_code, reason = "creates imports of memory whose lifetime the caller promises")]
fn a_drop_that_forks() {
    run_alone("forks::a_drop_that_forks", || {
        for policy in [Releases::AfterContext, Releases::AfterAllContexts] {
            let (mut scene, side) = (Scene::new(policy), Arc::default());
            let dict = CudaArrayInterface {
                shape: vec![8],
                typestr: "|u1".into(),
                data: (scene.data.at(), false),
                version: 3,
                ..CudaArrayInterface::default()
            };
            // SAFETY: the memory outlives the import.
            let import = unsafe {
                Import::from_cai_for_stream(&dict, StreamHandle::NothingPending, Forks(Arc::clone(&side)))
            };
            drop((import.unwrap(), scene.imports.pop(), scene.imports.pop()));
            sim().release(scene.spin);
            finish_releases();
            match std::mem::take(&mut *side.lock().unwrap()) {
                Side::Before => panic!("it is not released"),
                Side::Parent(child) => assert_eq!(child.ended(), Ended::Returned(0)),
                Side::Child => end(|| {
                    scene.in_the_child();
                    u8::from(scene.ledgers.iter().any(|ledger| ledger.released() != 0))
                }),
            }
            scene.in_the_parent();
        }
    });
}

/// The lock of the record of a block, under which a thread waits for its event again and again.
#[test]
fn while_a_thread_waits_for_a_block() {
    run_alone("forks::while_a_thread_waits_for_a_block", || {
        started();
        let [own, to] = [(); 2].map(|()| Place::primary(0).non_blocking().handle());
        let data = CudaBuffer::zeroed_on(own, 0, DType::I16, 32).unwrap();
        let (array, is_over) = (Row { data, len: 32 }, AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    array.make_stream_wait(to).unwrap();
                }
            });
            let uses = || {
                let refused = [
                    array.make_stream_wait(to),
                    array.to_vec::<i16>().map(drop),
                    LaunchScope::on(&to).read_any(&array).map(drop),
                ];
                let is_driver =
                    |refused: interop_core::Result<()>| refused.unwrap_err().kind() == ErrorKind::Driver;
                refused.into_iter().all(is_driver).into()
            };
            let fails = (0..40).map(|_| in_a_child(uses)).find(|ended| *ended != Ended::Returned(1));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(fails, None, "14 is the alarm: it waits for ever");
        });
        drop(array);
        while finish_releases() != 0 {}
    });
}

/// The child has the open scopes of the thread that forked, over memory of the host and of the GPU.
#[test]
fn while_a_scope_is_open() {
    run_alone("forks::while_a_scope_is_open", || {
        started();
        let on = Place::primary(0).non_blocking().handle();
        let data = Arc::new(CudaBuffer::zeroed(MemoryKind::Managed, 0, DType::I16, 32).unwrap());
        let [mut one, two] = [Row { data: Arc::clone(&data), len: 32 }, Row { data, len: 32 }];
        let data = SharedBuffer::new(LeaseMut::from_owner(vec![0_i16; 32]));
        let [mut own, other] = [Row { data: data.clone(), len: 32 }, Row { data, len: 32 }];
        let on_host = LaunchScope::new();
        let scope = LaunchScope::on(&on);
        scope.write_any(&mut one).unwrap();
        on_host.write_any(&mut own).unwrap();
        let mut scopes = Some((scope, on_host));
        let found =
            || [two.to_vec::<i16>(), other.to_vec::<i16>()].map(|found| found.map_err(|error| error.kind()));
        let refused = [Err(ErrorKind::AlreadyBorrowed), Err(ErrorKind::AlreadyBorrowed)];
        child_does(|| {
            assert_eq!(found(), refused);
            drop(scopes.take());
            assert_eq!(found(), [Err(ErrorKind::Driver), Ok(vec![0; 32])]);
        });
        assert_eq!(found(), refused);
        let (scope, on_host) = scopes.take().unwrap();
        scope.finish().and_then(|()| on_host.finish()).unwrap();
        assert_eq!(found(), [Ok(vec![0; 32]), Ok(vec![0; 32])]);
    });
}
