//! The other process: this program once more, which does what it is told line by line.

use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use interop_core::Import;
use interop_ipc::{Parcel, leases, lend_import, open, open_on};
use rustix::process::{Pid, Signal, kill_process};

#[allow(clippy::wildcard_imports, reason = "the functions of the driver")]
use crate::driver::*;
use crate::memory::{Count, Gate, LONG, Pinned, array, handle};

/// `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// The argument that makes this program the other process.
pub(crate) const ARGUMENT: &str = "--other";

/// The processes that run.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Kills all other processes of this one, at its end.
pub(crate) fn kill_all() {
    for number in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        let process = Pid::from_raw(number).expect("a process");
        // It may have ended.
        let _ = kill_process(process, Signal::KILL);
    }
}

/// A process that opens and offers arrays.
pub(crate) struct Other {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the path of the program"));
        let mut process = command
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let number = i32::try_from(process.id()).expect("a process");
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, orders, answers }
    }

    /// Gives an order, and does not wait for the answer.
    #[track_caller]
    pub(crate) fn begin(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).expect("the process runs");
    }

    /// Gives an order, and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.begin(order);
        let mut line = String::new();
        assert_ne!(self.answers.read_line(&mut line).expect("text"), 0, "the process ended at `{order}`");
        line.trim().to_owned()
    }

    /// Gives an order that has no result.
    #[track_caller]
    pub(crate) fn tell(&mut self, order: &str) {
        assert_eq!(self.ask(order), "ok", "{order}");
    }

    /// Has it open an array, and do something with it.
    #[track_caller]
    pub(crate) fn open(&mut self, how: &str, parcel: &Parcel<Import>) -> String {
        self.ask(&format!("{how} {}", hex(parcel.bytes())))
    }

    pub(crate) fn number(&self) -> i32 {
        i32::try_from(self.process.id()).expect("a process")
    }

    /// The reports of the simulated driver about both processes.
    pub(crate) fn reports(&mut self) -> usize {
        self.ask("reports").parse::<usize>().expect("a number") + reports()
    }

    pub(crate) fn kill(&mut self) {
        let number = self.number();
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != number);
        self.process.kill().expect("the process runs");
        self.process.wait().expect("a child");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have been killed before: that is no error, and kills no other one.
        self.kill();
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len() / 2).map(|index| byte(2 * index)).collect()
}

struct State {
    stream: usize,
    /// A stream that waits for nobody.
    free: usize,
    gate: Gate,
    target: Pinned,
    open: Vec<Import>,
    /// What is open throughout, so that its block stays open.
    kept: Option<Import>,
    memory: u64,
    offered: Vec<Parcel<Import>>,
}

const TARGET: usize = 4096;

impl State {
    fn new() -> Self {
        start();
        Self {
            stream: stream(),
            free: stream(),
            gate: Gate::new(),
            target: Pinned::new(TARGET),
            open: Vec::new(),
            kept: None,
            memory: 0,
            offered: Vec::new(),
        }
    }

    fn open(&mut self, text: &str) -> Result<(), String> {
        let import = open_on(&unhex(text), handle(self.stream))
            .map_err(|error| format!("{:?}: {error}", error.kind()))?;
        self.open.push(import);
        Ok(())
    }

    /// Queues a copy of the first bytes of the last array.
    fn copy_on(&self, stream: usize) {
        let import = self.open.last().expect("an open array");
        let bytes = import.info().nbytes().min(TARGET);
        ok(cuMemcpyAsync(self.target.address(), import.info().address() as u64, bytes, stream));
    }

    fn try_follow(&mut self, order: &str) -> Result<String, String> {
        let words: Vec<_> = order.split_whitespace().collect();
        match *words {
            ["keep", text] => {
                self.open(text)?;
                self.kept = self.open.pop();
            }
            ["open", text] => self.open(text)?,
            // How long it takes, in nanoseconds, and how long the bare call.
            ["time", text] => {
                let start = Instant::now();
                self.open(text)?;
                return Ok(start.elapsed().as_nanos().to_string());
            }
            ["time-bare", text] => {
                let handle = MemoryHandle(unhex(text).try_into().expect("64 bytes"));
                let start = Instant::now();
                let opened = get(|out| cuIpcOpenMemHandle_v2(out, handle, 1));
                let time = start.elapsed().as_nanos();
                ok(cuIpcCloseMemHandle(opened));
                return Ok(time.to_string());
            }
            // On a stream of the library.
            ["import", text] => {
                let import = open(&unhex(text)).map_err(|error| error.to_string())?;
                self.open.push(import.with_stream(handle(self.stream)).map_err(|error| error.to_string())?);
                self.copy_on(self.stream);
            }
            ["copy", text] => {
                self.open(text)?;
                self.copy_on(self.stream);
            }
            ["unordered", text] => {
                self.open(text)?;
                self.copy_on(self.free);
                ok(cuStreamSynchronize(self.free));
            }
            // Behind the gate, and dropped at once.
            ["late", text] => {
                self.open(text)?;
                self.gate.close(self.stream);
                self.copy_on(self.stream);
                self.open.clear();
            }
            ["trip", text] => {
                self.open(text)?;
                let import = self.open.last().expect("an open array");
                ok(cuMemcpyAsync(self.target.address(), import.info().address() as u64, 4, self.stream));
                self.open.clear();
            }
            ["rights"] => {
                let rights = |import: &Import| if import.info().is_read_only() { "r" } else { "w" };
                return Ok(self.open.iter().map(rights).collect());
            }
            ["write", value] => {
                let import = self.open.last().expect("an open array");
                let (address, bytes) = (import.info().address() as u64, import.info().nbytes());
                ok(cuMemsetD8Async(address, value.parse().expect("a byte"), bytes, self.stream));
            }
            ["drop-first"] => drop(self.open.remove(0)),
            ["gate"] => {
                sleep(Duration::from_micros(200));
                self.gate.open();
            }
            ["check", value] => {
                ok(cuStreamSynchronize(self.stream));
                return Ok(self.target.is_all(value.parse().expect("a byte")).to_string());
            }
            // The bytes that a round trip copies.
            ["first", value] => {
                ok(cuStreamSynchronize(self.stream));
                return Ok(self.target.starts_with(4, value.parse().expect("a byte")).to_string());
            }
            ["again"] => self.copy_on(self.stream),
            ["calls", function] => return Ok(calls(function).to_string()),
            ["seen", value] => return Ok(self.target.is_all(value.parse().expect("a byte")).to_string()),
            // The process is idle from then on: nothing polls.
            ["drop"] => self.open.clear(),
            ["fail", function] => fail(function, NOT_SUPPORTED),
            // On a thread without a context.
            ["thread", text] => {
                let (bytes, stream) = (unhex(text), self.stream);
                let opened = std::thread::spawn(move || open_on(&bytes, handle(stream)));
                let import = opened.join().expect("no panic").map_err(|error| error.to_string())?;
                self.open.push(import);
                self.copy_on(self.stream);
            }
            // On a stream of a context of its own.
            ["foreign", text] => {
                let _context = get(|out| cuCtxCreate_v2(out, 0, 0));
                let foreign = stream();
                let import = open_on(&unhex(text), handle(foreign)).map_err(|error| error.to_string())?;
                self.open.push(import);
                self.copy_on(foreign);
                ok(cuStreamSynchronize(foreign));
                start();
            }
            ["forget"] => drop(self.kept.take()),
            ["hand", text] => return Ok(self.by_hand(text)),
            ["capture", text] => return Ok(self.captured(text)),
            ["pending"] => return Ok(self.offer(true)),
            ["offer"] => return Ok(self.offer(false)),
            ["reports"] => return Ok(reports().to_string()),
            _ => panic!("an unknown order: {order}"),
        }
        Ok("ok".to_owned())
    }

    /// Opens a block by its handle alone, as a program that loses the offset, and returns whether its first bytes have a value.
    fn by_hand(&self, text: &str) -> String {
        let handle = MemoryHandle(unhex(text).try_into().expect("64 bytes"));
        let opened = get(|out| cuIpcOpenMemHandle_v2(out, handle, 1));
        ok(cuMemcpyAsync(self.target.address(), opened, TARGET, self.stream));
        ok(cuStreamSynchronize(self.stream));
        ok(cuIpcCloseMemHandle(opened));
        "ok".to_owned()
    }

    /// Opens an array on a stream that captures a graph.
    fn captured(&mut self, text: &str) -> String {
        ok(cuStreamBeginCapture_v2(self.stream, 1));
        let refused = self.open(text).err().unwrap_or_default();
        let mut graph = 0;
        let code = cuStreamEndCapture(self.stream, &mut graph);
        if code == 0 {
            ok(cuGraphDestroy(graph));
        }
        format!("{code} {refused}")
    }

    /// Offers an array. Its work may be late: then it never starts. Its block stays mapped for a while.
    fn offer(&mut self, is_late: bool) -> String {
        if self.memory == 0 {
            self.memory = get(|out| cuMemAlloc_v2(out, 1 << 21));
        }
        if is_late {
            self.gate.close(self.stream);
        }
        ok(cuMemsetD8Async(self.memory, 7, TARGET, self.stream));
        let import = array(self.memory, TARGET, Some(self.stream), &Count::default());
        let parcel = lend_import(import, true, 1, LONG).expect("memory that can be shared");
        let text = hex(parcel.bytes());
        self.offered.push(parcel);
        text
    }
}

/// The free bytes of the device.
pub(crate) fn get_free() -> usize {
    let (mut free, mut total) = (0, 0);
    ok(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

/// Follows orders until there are no more.
pub(crate) fn follow_orders() {
    let mut state = State::new();
    for order in stdin().lines() {
        let answer = state.try_follow(&order.expect("text")).unwrap_or_else(|error| error);
        println!("{answer}");
    }
}

/// Whether a process has nothing of this one open, soon.
pub(crate) fn has_nothing(process: i32) -> bool {
    let is_over = || leases().expect("an office").iter().all(|lease| lease.process != process);
    let start = Instant::now();
    while !is_over() {
        if start.elapsed() > LONG {
            return false;
        }
        sleep(Duration::from_micros(200));
    }
    true
}
