//! The table: which rows run, and how long each may take.

use std::os::unix::process::CommandExt;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use simulated_cuda::{Policy, sim};

use crate::driver::{is_simulated, reports};
use crate::other;
use crate::rows::{ORDER, OTHERS, Row};

/// How long a row may take, unless it says so itself. Each takes a few seconds; its own waits end before.
const LIMIT: Duration = Duration::from_secs(20);

/// The argument before the number of the first row, after one that hangs.
pub(crate) const FROM: &str = "--from";

/// Runs the rows whose names contain one of these, or all, from a number on. Returns whether all are met.
///
/// On the simulated driver, those about order run when operations run late, at once, and at random times.
pub(crate) fn run(names: &[String], from: usize) -> bool {
    let (policies, rounds): (&[_], _) = if is_simulated() {
        (&[Policy::Eager, Policy::Random, Policy::Late], 20)
    } else {
        (&[Policy::Late], 1000)
    };
    let ordered = policies.iter().flat_map(|policy| ORDER.iter().map(move |row| (*policy, *row)));
    let rows: Vec<(Policy, Row)> = ordered.chain(OTHERS.iter().map(|row| (Policy::Late, *row))).collect();
    let is_wanted =
        |name: &str| names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str()));
    let (mut are_met, mut last) = (true, None);
    if !rows.iter().any(|(_, (name, _))| is_wanted(name)) {
        println!("no row is called {names:?}");
    }
    for (index, (policy, (name, run))) in rows.into_iter().enumerate().skip(from) {
        if !is_wanted(name) {
            continue;
        }
        if is_simulated() && last.replace(policy) != Some(policy) {
            println!("{policy:?}");
            sim().set_policy(policy);
            // SAFETY: no other thread of this program uses the environment. Other processes get it.
            unsafe { std::env::set_var("SIMULATED_CUDA_POLICY", format!("{policy:?}").to_lowercase()) };
        }
        are_met &= run_one(name, || run(rounds), LIMIT, index + 1);
    }
    are_met
}

/// Runs one row, and returns whether it holds. If it hangs, this program starts again with the row of the number `next`.
pub(crate) fn run_one(
    name: &'static str,
    run: impl Fn() -> Result<String, String> + RefUnwindSafe,
    limit: Duration,
    next: usize,
) -> bool {
    let start = Instant::now();
    let (end, ended) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            row(name, false, &format!("HANGS ({limit:?})"));
            start_again(next);
        }
    });
    let result = catch_unwind(&run).unwrap_or_else(|_| Err("panicked".to_owned()));
    drop(end);
    // If the time was over, this waits for the end of the program.
    watch.join().expect("no panic");
    let is_met = result.is_ok();
    let found = result.unwrap_or_else(|error| error);
    row(name, is_met, &format!("{found} ({:.1} s)", start.elapsed().as_secs_f32()));
    // Those of a row that does not ask.
    reports();
    is_met
}

/// Replaces the process, whose threads may wait in the driver for ever. The exit status of the new one tells of the row that hangs.
fn start_again(next: usize) -> ! {
    other::kill_all();
    let number = std::env::args().skip_while(|argument| argument != FROM).nth(1);
    let others =
        std::env::args().skip(1).filter(|argument| argument != FROM && Some(argument) != number.as_ref());
    let mut command = Command::new(std::env::current_exe().expect("the path of the program"));
    let error = command.args(others).args([FROM, &next.to_string()]).exec();
    panic!("the program does not start again: {error}");
}

/// Prints a line of the table.
fn row(name: &str, is_met: bool, found: &str) {
    println!("{name:<44} {found:<60} {}", if is_met { "holds" } else { "MISSED" });
}
