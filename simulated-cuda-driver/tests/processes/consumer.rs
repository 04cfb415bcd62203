//! The other process: this program once more, which does what it is told line by line.

use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use simulated_cuda::{Policy, sim};

use crate::driver::*;
use crate::fixture::{NON_BLOCKING, Pinned};
use crate::page::Page;

/// What precedes the answers, between lines of the test harness.
const ANSWER: &str = "answer: ";

/// A process that uses memory of this one.
pub(crate) struct Consumer {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Consumer {
    pub(crate) fn start(policy: Policy, seed: u64) -> Self {
        let program = std::env::current_exe().expect("the path of the test program");
        let mut command = Command::new(program);
        command.args(["consumer::follows_orders", "--exact", "--ignored", "--nocapture"]);
        command.env("SIMULATED_CUDA_SEED", seed.to_string()).env("SIMULATED_CUDA_REPORTS", "off");
        command.env("SIMULATED_CUDA_POLICY", format!("{policy:?}").to_lowercase());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the program starts");
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, orders, answers }
    }

    /// Gives an order, and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("the consumer runs");
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.answers.read_line(&mut line).expect("text");
            assert_ne!(count, 0, "the consumer ended at `{order}`");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim().to_owned();
            }
        }
    }

    /// Gives an order that has no result.
    #[track_caller]
    pub(crate) fn tell(&mut self, order: &str) {
        assert_eq!(self.ask(order), "ok", "{order}");
    }

    /// Ends the process by a signal, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the consumer runs");
        self.process.wait().expect("the consumer is a child");
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn handle(text: &str) -> MemoryHandle {
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).expect("hexadecimal");
    MemoryHandle(std::array::from_fn(byte))
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
    for order in stdin().lines() {
        println!("{ANSWER}{}", state.follow(&order.expect("text")));
    }
}
