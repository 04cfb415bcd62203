//! The other process: opens and offers arrays as it is told.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interop_core::{CudaArray, Lease, LeaseMut};
use interop_ipc::{FromParcel, Parcel, ShareParcel, open};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::arrays::{Count, Image, LONG, Rgba};
use crate::ends::open_many;
use crate::forks::fork;
use crate::kills::kill_at_random;
use crate::other_process::{OtherProcess, follow_orders, hex, unhex};

/// Starts a process that opens and offers arrays.
pub(crate) fn start() -> OtherProcess {
    OtherProcess::start("other::follows_orders", |_| {})
}

impl OtherProcess {
    /// Has it open an array, as one of the structs of [`State::open`].
    #[track_caller]
    pub(crate) fn open(&mut self, how: &str, bytes: &[u8]) -> String {
        self.ask(&format!("{how} {}", hex(bytes)))
    }

    /// Has it offer an image, and returns the message.
    #[track_caller]
    pub(crate) fn share(&mut self) -> Vec<u8> {
        unhex(&self.ask("share 1"))
    }

    /// As [`share`](Self::share), for any number of openings.
    #[track_caller]
    pub(crate) fn share_often(&mut self) -> Vec<u8> {
        unhex(&self.ask(&format!("share {}", u32::MAX)))
    }
}

#[derive(Default)]
struct State {
    read: Vec<Image<Lease<f32>>>,
    written: Option<Image<LeaseMut<f32>>>,
    offered: Vec<Parcel<Arc<Image>>>,
}

impl State {
    /// Opens an array as one of the structs, and returns its first elements.
    fn open(&mut self, how: &str, bytes: &[u8]) -> interop_core::Result<String> {
        let values = match how {
            "open" => {
                let image = Image::<Lease<f32>>::from_parcel(bytes)?;
                let values = image.to_vec::<f32>()?;
                self.read.push(image);
                values
            }
            "rgba" => Rgba::<Lease<f32>>::from_parcel(bytes)?.to_vec::<f32>()?,
            _ => {
                let mut image = Image::<LeaseMut<f32>>::from_parcel(bytes)?;
                image.map_inplace(|value: f32| value + 0.5)?;
                let values = image.to_vec::<f32>()?;
                self.written = Some(image);
                values
            }
        };
        Ok(format!("{} elements, {:?}", values.len(), &values[..3]))
    }

    /// Follows one order, and returns the answer.
    fn follow(&mut self, order: &str) -> String {
        let words: Vec<_> = order.split_whitespace().collect();
        match *words {
            ["share", opens] => {
                let (image, opens) = (Arc::new(Count::default().image()), opens.parse().expect("a number"));
                let parcel = image.share_parcel(opens, LONG).expect("an image in shared memory");
                let text = hex(parcel.bytes());
                self.offered.push(parcel);
                return text;
            }
            // Opens and drops until the process is killed.
            ["spin", text] => {
                let bytes = unhex(text);
                std::thread::spawn(move || while open(&bytes).is_ok() {});
            }
            ["drop"] => *self = Self { offered: std::mem::take(&mut self.offered), ..Self::default() },
            ["read"] => {
                let values = self.read[0].to_vec::<f32>().expect("an open image");
                return format!("{:?}", &values[..3]);
            }
            // A child that has all that this process has, and outlives it for a while.
            ["fork"] => fork(|| std::thread::sleep(LONG)),
            ["files", more] if more != "all" => {
                // Descriptors are numbers below the limit, and this is the first one that is free.
                let free = File::open("/dev/null").expect("a descriptor").as_raw_fd();
                let more: u64 = more.parse().expect("a number");
                limit_files(u64::try_from(free).expect("a descriptor") + more);
            }
            ["files", "all"] => limit_files(getrlimit(Resource::Nofile).maximum.unwrap_or(1024)),
            ["loop", times] => {
                return if open_many(times.parse().expect("a number")) {
                    "ok"
                } else {
                    "more is open than before"
                }
                .to_owned();
            }
            ["kills", seconds] => {
                return kill_at_random(Duration::from_secs(seconds.parse().expect("a number")));
            }
            ["listen", path] => interop_ipc::listen_at(Path::new(path)).expect("a free path"),
            [how, text] => {
                let opened = self.open(how, &unhex(text));
                return opened.unwrap_or_else(|error| format!("{:?}: {error}", error.kind()));
            }
            _ => panic!("an unknown order: {order}"),
        }
        "ok".to_owned()
    }
}

/// Sets how many descriptors the process may have.
fn limit_files(count: u64) {
    let known = getrlimit(Resource::Nofile);
    let limit = rustix::process::Rlimit { current: Some(count), ..known };
    setrlimit(Resource::Nofile, limit).expect("a limit below the greatest");
}

#[test]
#[ignore = "the other process of the tests"]
fn follows_orders() {
    let mut state = State::default();
    follow_orders(|order| state.follow(order));
}
