//! The other process: uses memory of this one as it is told.

use simulated_cuda::{Policy, sim};

use crate::driver::*;
use crate::fixture::{NON_BLOCKING, Pinned};
use crate::other_process::{OtherProcess, follow_orders, unhex};
use crate::page::Page;

/// Starts a process that uses memory of this one.
pub(crate) fn start(policy: Policy, seed: u64) -> OtherProcess {
    OtherProcess::start("consumer::follows_orders", |command| {
        command.env("SIMULATED_CUDA_SEED", seed.to_string()).env("SIMULATED_CUDA_REPORTS", "off");
        command.env("SIMULATED_CUDA_POLICY", format!("{policy:?}").to_lowercase());
        command.stderr(std::process::Stdio::null());
    })
}

fn handle(text: &str) -> MemoryHandle {
    MemoryHandle(unhex(text).try_into().expect("a handle"))
}

struct State {
    stream: u64,
    memory: u64,
    target: Pinned,
    page: Option<Page>,
}

impl State {
    fn number(&self, index: &str) -> u64 {
        self.page.as_ref().expect("a page").number(index.parse().expect("a number"))
    }

    /// Follows one order, and returns the answer.
    fn follow(&mut self, order: &str) -> String {
        let words: Vec<_> = order.split_whitespace().collect();
        match *words {
            ["page", path] => self.page = Some(Page::open(path)),
            ["open", text] => self.memory = get(|out| cuIpcOpenMemHandle_v2(out, handle(text), 1)),
            ["try", text] => {
                return cuIpcOpenMemHandle_v2(&mut 0, handle(text), 1).to_string();
            }
            ["wait", index, number] => {
                ok(cuStreamWaitValue64_v2(
                    self.stream,
                    self.number(index),
                    number.parse().expect("a number"),
                    0,
                ));
            }
            ["write", index, number] => {
                ok(cuStreamWriteValue64_v2(
                    self.stream,
                    self.number(index),
                    number.parse().expect("a number"),
                    0,
                ));
            }
            // A byte at an offset of the memory.
            ["read", offset] => {
                let offset: u64 = offset.parse().expect("a number");
                ok(cuMemcpyDtoHAsync_v2(self.target.0, self.memory + offset, 1, self.stream));
            }
            ["synchronize"] => {
                ok(cuStreamSynchronize(self.stream));
                return self.target.first().to_string();
            }
            ["close"] => ok(cuIpcCloseMemHandle(self.memory)),
            ["free"] => return cuMemFree_v2(self.memory).to_string(),
            ["address"] => return self.memory.to_string(),
            ["range"] => {
                let mut size = 0;
                let first = get(|out| cuMemGetAddressRange_v2(out, &mut size, self.memory + 7));
                return format!("{} {size}", first == self.memory);
            }
            ["reports"] => {
                let kinds: Vec<_> =
                    sim().take_reports().iter().map(|report| format!("{:?}", report.mistake)).collect();
                return kinds.join(" ");
            }
            _ => panic!("an unknown order: {order}"),
        }
        "ok".to_owned()
    }
}

#[test]
#[ignore = "the other process of the tests"]
fn follows_orders() {
    sim();
    ok(cuInit(0));
    let context = get(|out| cuDevicePrimaryCtxRetain(out, 0));
    ok(cuCtxSetCurrent(context));
    let stream = get(|out| cuStreamCreate(out, NON_BLOCKING));
    let target = Pinned(get(|out| cuMemHostAlloc(out, 1, 0)));
    let mut state = State { stream, memory: 0, target, page: None };
    follow_orders(|order| state.follow(order));
}
