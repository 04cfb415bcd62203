//! A default stream that is named is that of the context in which it was named, whatever context is current later: the
//! default streams of two contexts have one handle.

use interop_core::protocols::dlpack::Versioned;
use interop_core::{CudaArray, Device, FromArray, Import, LaunchScope, LaunchSize, LeaseMut, StreamHandle};

use crate::counted_imports::{Row, arrive, arrive_on};
use crate::cuda_program::{Bytes, Place, Stream, set_current};
use crate::exclusive_driver::{Turn, first_gpu};
use crate::uses_now::{KERNELS, LEN, count};

/// Two contexts of one device.
struct Scene {
    turn: Turn,
    primary: Place,
    foreign: Place,
}

impl Scene {
    fn new() -> Self {
        let (turn, primary) = first_gpu();
        turn.register::<count>();
        Self { turn, primary, foreign: Place::foreign(0) }
    }

    /// The contexts that can be current: at first, and later.
    fn turns(&self) -> [[Option<Place>; 2]; 6] {
        let (primary, foreign) = (Some(self.primary), Some(self.foreign));
        [
            [primary, foreign],
            [foreign, primary],
            [primary, None],
            [foreign, None],
            [None, primary],
            [None, foreign],
        ]
    }

    /// Memory of each kind that two contexts can use, of the primary one.
    fn memory(&self) -> [(Device, Bytes); 4] {
        let place = self.primary;
        [
            (Device::cuda(0), place.bytes(0, 2 * LEN)),
            (Device::cuda(0), place.pool(0, 2 * LEN)),
            (Device::CUDA_MANAGED, place.managed(0, 2 * LEN)),
            (Device::CUDA_HOST, place.pinned(0, 2 * LEN)),
        ]
    }

    /// Runs `act` for all memory and all turns of the contexts, and leaves none current.
    #[track_caller]
    fn each(self, act: impl Fn(&Self, Device, &Bytes, [Option<Place>; 2])) {
        for turns in self.turns() {
            for (device, data) in self.memory() {
                println!("{device} {turns:?} of {:?} and {:?}", self.primary, self.foreign);
                act(&self, device, &data, turns);
                set_current(None);
                self.turn.run_all();
                interop_core::cuda::finish_releases();
                self.turn.assert_no_reports();
            }
        }
        self.foreign.destroy();
    }
}

/// Queues a kernel that adds one to all bytes.
fn queue<'a>(scope: &LaunchScope<'a>, array: &'a mut impl CudaArray) {
    let view = scope.write(array).unwrap();
    scope.launch(&KERNELS, LaunchSize::for_units(LEN), count::with(view)).unwrap();
}

/// The work of a scope, and then a copy on the stream of its array.
#[track_caller]
fn scope_and_copy(import: Import, own: Stream, data: &Bytes, on: Option<StreamHandle>, later: Option<Place>) {
    let mut row = Row::<LeaseMut<i16>>::from_import(import).unwrap();
    {
        let scope = on.as_ref().map_or_else(LaunchScope::new, LaunchScope::on);
        queue(&scope, &mut row);
        set_current(later);
        scope.finish().unwrap();
    }
    assert_eq!(own.reads(data), 1, "the stream of the array waits for the scope");
}

/// The scope waits on the stream that it has when it begins, launches there, and the stream of its array waits for that one.
#[test]
fn a_scope_ends_on_the_default_stream_on_which_it_began() {
    Scene::new().each(|scene, device, data, [first, later]| {
        for named in [StreamHandle::LegacyDefault, StreamHandle::PerThreadDefault] {
            let own = scene.primary.non_blocking();
            own.fill(data, 0);
            set_current(first);
            let import = arrive_on(data, device, own).1;
            scope_and_copy(import, own, data, Some(named), later);
            own.finish();
            own.destroy();
        }
    });
}

/// An array that was put on a default stream stays on it: a scope on another stream waits for it, and it for the scope.
#[test]
fn an_array_on_a_named_default_stream_stays_there() {
    Scene::new().each(|scene, device, data, [first, later]| {
        // Without a context, memory of no device is on the default streams of every context in use, the primary ones.
        let place = first.unwrap_or(scene.primary);
        let other = scene.primary.non_blocking();
        place.legacy().fill(data, 0);
        set_current(first);
        let import = arrive(data, device).1.with_stream(StreamHandle::LegacyDefault).unwrap();
        place.legacy().fill(data, 4);
        set_current(later);
        let mut row = Row::<LeaseMut<i16>>::from_import(import).unwrap();
        {
            let on = other.handle();
            let scope = LaunchScope::on(&on);
            queue(&scope, &mut row);
            set_current(None);
            scope.finish().unwrap();
        }
        assert_eq!(place.legacy().reads(data), 5);
        drop(row);
        other.finish();
        other.destroy();
    });
}

/// A tensor is ready on the default stream for which it was exported.
#[test]
fn a_tensor_is_ready_on_the_default_stream_of_its_export() {
    Scene::new().each(|scene, device, data, [first, later]| {
        if device != Device::cuda(0) {
            // The host has waited for memory of no device when it was imported, and nothing is pending.
            return;
        }
        let own = scene.primary.non_blocking();
        own.fill(data, 0);
        set_current(first);
        let import = arrive_on(data, device, own).1;
        let row = Row::<LeaseMut<i16>>::from_import(import).unwrap();
        own.fill(data, 6);
        let tensor = row.into_dlpack_as::<Versioned>(StreamHandle::LegacyDefault).unwrap();
        set_current(later);
        let row = Row::<LeaseMut<i16>>::from_dlpack(tensor).unwrap();
        assert!(row.to_vec::<i16>().unwrap() == [0x0606; LEN]);
        drop(row);
        own.finish();
        own.destroy();
    });
}

/// An array without a stream of its own moves to the default stream that orders the blocking streams of its library.
#[test]
fn an_array_moves_to_the_default_stream_beside_its_own_stream() {
    Scene::new().each(|scene, device, data, [first, _]| {
        let own = scene.primary.blocking();
        own.fill(data, 0);
        set_current(first);
        let import = arrive(data, device).1.with_stream(own.handle()).unwrap();
        let mut row = Row::<LeaseMut<i16>>::from_import(import).unwrap();
        {
            let scope = LaunchScope::new();
            queue(&scope, &mut row);
            scope.finish().unwrap();
        }
        assert_eq!(own.reads(data), 1);
        drop(row);
        own.finish();
        own.destroy();
    });
}
