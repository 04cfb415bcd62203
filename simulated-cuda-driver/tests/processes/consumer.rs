//! The other process: uses memory of this one as it is told.

use simulated_cuda::{Policy, sim};

use crate::driver::*;
use crate::fixture::{NON_BLOCKING, Pinned};
use crate::other_process::{OtherProcess, follow_orders};
use crate::page::Page;
use crate::ways::{DESCRIPTOR, Opened, PIECE, file, handle, map, number_of};

/// Starts a process that uses memory of this one.
pub(crate) fn start(policy: Policy, seed: u64) -> OtherProcess {
    OtherProcess::start("consumer::follows_orders", |command| {
        command.env("SIMULATED_CUDA_SEED", seed.to_string()).env("SIMULATED_CUDA_REPORTS", "off");
        command.env("SIMULATED_CUDA_POLICY", format!("{policy:?}").to_lowercase());
        command.stderr(std::process::Stdio::null());
    })
}

struct State {
    stream: u64,
    memory: Opened,
    target: Pinned,
    page: Option<Page>,
}

impl State {
    fn number(&self, index: &str) -> u64 {
        self.page.as_ref().expect("a page").number(index.parse().expect("a number"))
    }

    fn read(&self, offset: &str, stream: u64) {
        let offset: u64 = offset.parse().expect("a number");
        ok(cuMemcpyDtoHAsync_v2(self.target.0, self.memory.address + offset, 1, stream));
    }

    /// Maps memory for reading, and returns the answers to a write before and after it is mapped for writes.
    fn write_read_only(path: &str) -> String {
        let file = file(path);
        let memory = get(|out| cuMemImportFromShareableHandle(out, number_of(&file), DESCRIPTOR));
        let first = map(&[memory], 1);
        let refused = cuMemsetD8_v2(first, 1, 1);
        ok(cuMemSetAccess(first, PIECE, [1, 0, 3].as_ptr(), 1));
        format!("{refused} {}", cuMemsetD8_v2(first, 1, 1))
    }

    /// Follows one order, and returns the answer.
    fn follow(&mut self, order: &str) -> String {
        let words: Vec<_> = order.split_whitespace().collect();
        match *words {
            ["page", path] => self.page = Some(Page::open(path)),
            ["open", ref how @ ..] => self.memory = Opened::new(how),
            ["try", text] => {
                return cuIpcOpenMemHandle_v2(&mut 0, handle(text), 1).to_string();
            }
            // The answers to the import of a file as a pool, and of a pointer, which may be changed, from that pool.
            ["try", path, text] => {
                let (file, mut pool) = (file(path), 0);
                let imported = cuMemPoolImportFromShareableHandle(&mut pool, number_of(&file), DESCRIPTOR, 0);
                return format!("{imported} {}", cuMemPoolImportPointer(&mut 0, pool, &handle(text)));
            }
            ["read-only", path] => return Self::write_read_only(path),
            ["allocate"] => {
                let pool = get(|out| cuPointerGetAttribute(out, 17, self.memory.address));
                return cuMemAllocFromPoolAsync(&mut 0, 64, pool, self.stream).to_string();
            }
            ["export"] => {
                return cuMemPoolExportPointer(&mut MemoryHandle::default(), self.memory.address).to_string();
            }
            ["types"] => {
                return get(|out| cuPointerGetAttribute(out, 14, self.memory.address)).to_string();
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
            ["read", offset] => self.read(offset, self.stream),
            // On another stream, for which the host waits.
            ["read-aside", offset] => {
                let aside = get(|out| cuStreamCreate(out, NON_BLOCKING));
                self.read(offset, aside);
                ok(cuStreamSynchronize(aside));
            }
            ["synchronize"] => {
                ok(cuStreamSynchronize(self.stream));
                return self.target.first().to_string();
            }
            ["close"] => self.memory.close(),
            ["free"] => return cuMemFree_v2(self.memory.address).to_string(),
            ["free-async"] => {
                let freed = cuMemFreeAsync(self.memory.address, self.stream);
                ok(cuStreamSynchronize(self.stream));
                return freed.to_string();
            }
            ["address"] => return self.memory.address.to_string(),
            ["range"] => {
                let mut size = 0;
                let first = get(|out| cuMemGetAddressRange_v2(out, &mut size, self.memory.address + 7));
                return format!("{} {size}", first == self.memory.address);
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
    let memory = Opened::none();
    let mut state = State { stream, memory, target, page: None };
    follow_orders(|order| state.follow(order));
}
