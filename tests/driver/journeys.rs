//! The journeys of an array, as the driver calls that order them. ARCHITECTURE.md has the table: a test is a row of it, and
//! a line is a cell.

use std::sync::Arc;

use interop_core::cuda::{CudaBuffer, finish_releases};
use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, DType, Device, FromArray, Kept, LaunchScope, Lease, LeaseMut, StreamHandle};

use crate::counted_imports::{ReadyOn, Row, arrive, arrive_on, row};
use crate::cuda_program::{Bytes, LARGE, Stream};
use crate::exclusive_driver::{Turn, first_gpu};
use crate::support::arrays::Array;
use crate::support::counted_owners::elsewhere;

/// The calls that order, wait, allocate and free, by their letters in the table.
const CALLS: [(char, &str); 9] = [
    ('P', "cuPointerGetAttributes"),
    ('R', "cuEventRecord"),
    ('W', "cuStreamWaitEvent"),
    ('C', "cuCtxRecordEvent"),
    ('X', "cuCtxWaitEvent"),
    ('H', "cuEventSynchronize"),
    ('Q', "cuEventQuery"),
    ('A', "cuMemAllocFromPoolAsync"),
    ('F', "cuMemFreeAsync"),
];

/// A driver, and three streams: that of the array, that of a consumer, and another one.
struct Scene {
    own: Stream,
    to: Stream,
    other: Stream,
    data: Bytes,
    more: Bytes,
    // The last: at its end nothing is left.
    turn: Turn,
}

impl Scene {
    fn new() -> Self {
        Self::of(64)
    }

    fn of(bytes: usize) -> Self {
        let (turn, place) = first_gpu();
        let [own, to, other] = [(); 3].map(|()| place.non_blocking());
        Self { turn, own, to, other, data: place.bytes(0, bytes), more: place.bytes(0, bytes) }
    }

    /// Checks the calls that `journey` makes on what `start` makes. The first time makes events and streams, so the second
    /// one counts.
    #[track_caller]
    fn cell<A, R>(
        &self,
        what: &str,
        calls: &str,
        start: impl Fn(&Self) -> A,
        journey: impl Fn(&Self, A) -> R,
    ) {
        for is_second in [false, true] {
            let started = start(self);
            self.turn.reset_calls();
            let left = journey(self, started);
            let count = |(letter, name): (char, &str)| {
                letter.to_string().repeat(self.turn.calls(name).try_into().unwrap())
            };
            let made: String = CALLS.into_iter().map(count).collect();
            if is_second {
                assert_eq!(made, calls, "{what}");
            }
            drop(left);
            self.turn.run_all();
            finish_releases();
        }
    }

    fn known(&self) -> Row<LeaseMut<i16>> {
        row(&self.data, self.own).1
    }

    /// An array that states that no work is pending.
    fn idle(&self) -> Array<LeaseMut<i16>> {
        let import = arrive(&self.data, Device::cuda(0)).1.ready_on(StreamHandle::NothingPending);
        Array::from_import(import).unwrap()
    }

    /// Used beyond the stream of its library.
    fn unknown(&self) -> Row<LeaseMut<i16>> {
        let array = self.known();
        assert_ne!(array.info().unwrap().address(), 0);
        array
    }

    fn kept(&self) -> Arc<Row<Lease<i16>>> {
        let (_ledger, import) = arrive_on(&self.data, Device::cuda(0), self.own);
        Arc::new(Kept::<Row<Lease<i16>>>::from_import(import).unwrap().0)
    }

    /// Kept, and then put on a stream by its user: its library works on others, too.
    fn kept_on_a_stream(&self) -> Row<Lease<i16>> {
        let (_ledger, mut import) = arrive_on(&self.data, Device::cuda(0), self.own);
        import.settle().unwrap();
        Row::from_import(import.with_stream(self.own.handle()).unwrap()).unwrap()
    }

    fn block(&self) -> Row<CudaBuffer> {
        Row { data: CudaBuffer::zeroed_on(self.own.handle(), 0, DType::I16, 32).unwrap(), len: 32 }
    }
}

fn export<A: CudaArray + Send + std::fmt::Debug + 'static>(array: A, to: StreamHandle) -> impl Sized {
    array.into_dlpack_as::<Versioned>(to).unwrap()
}

#[test]
fn import() {
    let scene = Scene::new();
    scene.cell("as an argument, stream learned", "P", |_| (), |scene, ()| scene.known());
    scene.cell(
        "stream assumed",
        "P",
        |_| (),
        |scene, ()| Row::<Lease<i16>>::from_import(arrive(&scene.data, Device::cuda(0)).1).unwrap(),
    );
}

#[test]
fn keep() {
    let scene = Scene::new();
    let import = |scene: &Scene| arrive_on(&scene.data, Device::cuda(0), scene.own).1;
    scene.cell("settle", "", import, |_, import| Kept::<Row<Lease<i16>>>::from_import(import).unwrap());
}

#[test]
fn export_to_a_stream() {
    let scene = Scene::new();
    let (to, own, none) = (scene.to.handle(), scene.own.handle(), StreamHandle::NothingPending);
    scene.cell("known, to another stream", "RW", Scene::known, |_, array| export(array, to));
    scene.cell("known, to its own stream", "", Scene::known, |_, array| export(array, own));
    scene.cell("known, the host waits", "RH", Scene::known, |_, array| export(array, none));
    scene.cell("hidden, to another stream", "PWC", Scene::kept, |_, array| {
        array.share_dlpack_as::<Versioned>(to).unwrap()
    });
    scene.cell("hidden, the host waits", "PCH", Scene::kept, |_, array| {
        array.share_dlpack_as::<Versioned>(none).unwrap()
    });
    scene.cell("hidden, on a named stream", "PWC", Scene::kept_on_a_stream, |_, array| export(array, to));
    scene.cell("block, to another stream", "W", Scene::block, |_, array| export(array, to));
    scene.cell("block, to its own stream", "W", Scene::block, |_, array| export(array, own));
    scene.cell("block, the host waits", "H", Scene::block, |_, array| export(array, none));
}

#[test]
fn work_of_a_consumer_comes_back() {
    let scene = Scene::new();
    let to = scene.to.handle();
    scene.cell("known", "RW", Scene::known, |_, array| (array.wait_for_stream(to).unwrap(), array));
    let hidden = Scene::kept_on_a_stream;
    scene.cell("hidden: all later work waits", "PRRWX", hidden, |_, array| {
        (array.wait_for_stream(to).unwrap(), array)
    });
}

#[test]
fn export_as_a_dict() {
    let scene = Scene::new();
    scene.cell("known: names the stream", "", Scene::known, |_, array| (array.to_cai().unwrap(), array));
    scene.cell("hidden: a stream of this crate", "PPWC", Scene::kept, |_, array| {
        (array.to_cai().unwrap(), array)
    });
    scene.cell("block", "PPWC", Scene::block, |_, array| (array.to_cai().unwrap(), array));
}

#[test]
fn to_the_host() {
    let scene = Scene::new();
    let read = |_: &Scene, array: Row<LeaseMut<i16>>| (array.to_vec::<i16>().unwrap(), array);
    scene.cell("known", "PRH", Scene::known, read);
    scene.cell("used elsewhere, on its own stream", "PRH", Scene::unknown, read);
    scene.cell("hidden", "PPCH", Scene::kept, |_, array| (array.to_vec::<i16>().unwrap(), array));
    scene.cell("block", "PH", Scene::block, |_, array| (array.to_vec::<i16>().unwrap(), array));
}

/// A scope on the stream of its first array, or on a stream that is named.
#[test]
fn scope_begins_and_ends() {
    let scene = Scene::new();
    scene.cell("own stream", "", Scene::known, |_, mut array| {
        let scope = LaunchScope::new();
        scope.write_any(&mut array).unwrap();
        scope.finish().unwrap();
        array
    });
    let named = |stream: fn(&Scene) -> Stream| {
        move |scene: &Scene, mut array: Row<LeaseMut<i16>>| {
            let handle = stream(scene).handle();
            let scope = LaunchScope::on(&handle);
            scope.write_any(&mut array).unwrap();
            scope.finish().unwrap();
            array
        }
    };
    scene.cell("named, its own stream", "", Scene::known, named(|scene| scene.own));
    scene.cell("named, another stream", "RRWW", Scene::known, named(|scene| scene.to));
    let two = |scene: &Scene| (scene.known(), row::<Lease<i16>>(&scene.more, scene.other).1);
    scene.cell("two streams", "RRWW", two, |_, (mut one, two)| {
        {
            let scope = LaunchScope::new();
            scope.write_any(&mut one).unwrap();
            scope.read_any(&two).unwrap();
        }
        (one, two)
    });
    scene.cell("hidden", "PPRWCX", Scene::kept, |scene, array| {
        {
            let handle = scene.to.handle();
            let scope = LaunchScope::on(&handle);
            scope.read_any(&*array).unwrap();
        }
        array
    });
    scene.cell("block, on its stream", "RWW", Scene::block, |scene, mut array| {
        {
            let handle = scene.own.handle();
            let scope = LaunchScope::on(&handle);
            scope.write_any(&mut array).unwrap();
        }
        array
    });
    scene.cell("nothing pending", "RH", Scene::idle, |scene, mut array| {
        {
            let handle = scene.to.handle();
            let scope = LaunchScope::on(&handle);
            scope.write_any(&mut array).unwrap();
        }
        array
    });
}

/// An array that is released on the thread that imported it, on another thread, and one that was used elsewhere.
#[test]
fn drop_of_an_import() {
    for (bytes, unknown) in [(64, ""), (2 * LARGE, "CQ")] {
        let scene = Scene::of(bytes);
        scene.cell("known, here", "", Scene::known, |_, array| drop(array));
        scene.cell("known, elsewhere", unknown, Scene::known, |_, array| elsewhere(move || drop(array)).0);
        scene.cell("unknown", unknown, Scene::unknown, |_, array| drop(array));
        scene.cell("hidden", unknown, Scene::kept, |_, array| drop(array));
    }
}

#[test]
fn allocation_and_drop_of_a_block() {
    let scene = Scene::new();
    scene.cell("allocate and zero", "PRRWA", |_| (), |scene, ()| scene.block());
    scene.cell("drop, known", "PWF", Scene::block, |_, array| drop(array));
    let used = |scene: &Scene| {
        let array = scene.block();
        assert_ne!(array.info().unwrap().address(), 0);
        array
    };
    scene.cell("drop, unknown", "", used, |_, array| drop(array));
}
