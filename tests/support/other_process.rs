//! Another process for a test: the test program once more, which follows orders line by line.

use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What precedes the answers, between lines of the test harness.
const ANSWER: &str = "answer: ";

/// A process that runs one ignored test, which calls [`follow_orders`].
pub(crate) struct OtherProcess {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl OtherProcess {
    /// Starts a process for the test with this path. `prepare` changes the command.
    pub(crate) fn start(test: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let program = std::env::current_exe().expect("the path of the test program");
        let mut command = Command::new(program);
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut process = command.spawn().expect("the program starts");
        let orders = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, orders, answers }
    }

    /// Gives an order, and does not wait for the answer.
    #[track_caller]
    pub(crate) fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the process runs");
    }

    /// Gives an order, and returns the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.begin(order);
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.answers.read_line(&mut line).expect("text");
            assert_ne!(count, 0, "the process ended at `{order}`");
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

    pub(crate) fn number(&self) -> u32 {
        self.process.id()
    }

    /// Ends the process by a signal, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("the process runs");
        self.process.wait().expect("a child");
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other process: answers each line of the input.
pub(crate) fn follow_orders(mut follow: impl FnMut(&str) -> String) {
    for order in stdin().lines() {
        println!("{ANSWER}{}", follow(&order.expect("text")));
    }
}

/// Bytes as a word of an order.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The bytes of such a word.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len() / 2).map(|index| byte(2 * index)).collect()
}
