//! Arrays in memory of a GPU between two processes: one table, on a GPU or on the simulated driver.
//!
//! Each line ends in `holds` or `MISSED`. An argument that is part of names of rows chooses these. Without a GPU the driver is the simulated one, which also reports unordered work.

#![expect(unsafe_code, reason = "calls the driver, and reads what it has written")]
#![cfg(target_os = "linux")]

mod driver;
mod kills;
mod known_faults;
mod memory;
mod other;
mod rest;
mod rows;
mod table;
mod ways;

use std::time::Duration;

fn main() {
    if std::env::args().any(|argument| argument == other::ARGUMENT) {
        return other::follow_orders();
    }
    // As tests are listed and chosen: this program is one.
    if std::env::args().any(|argument| argument == "--list") {
        return println!("0 tests, 0 benchmarks");
    }
    driver::start();
    // `--kills SECONDS SEED` kills processes at random, and does nothing else.
    let kills = numbers_after("--kills");
    let from = numbers_after(table::FROM);
    let are_met = match (&kills[..], &from[..]) {
        // After a row that hangs.
        (_, [from]) => {
            table::run(&names(), usize::try_from(*from).expect("a number of a row"));
            false
        }
        ([seconds, seed], _) => {
            let limit = Duration::from_secs(seconds + 20);
            table::run_one("random kills", || kills::at_random(*seconds, *seed), limit, usize::MAX)
        }
        _ => table::run(&names(), 0),
    };
    std::process::exit(i32::from(!are_met));
}

/// The numbers behind an argument.
fn numbers_after(wanted: &str) -> Vec<u64> {
    let behind = std::env::args().skip_while(|argument| argument != wanted).skip(1);
    behind.map_while(|number| number.parse().ok()).collect()
}

/// The arguments that are parts of names of rows.
fn names() -> Vec<String> {
    let is_name = |argument: &String| !argument.starts_with('-') && argument.parse::<u64>().is_err();
    std::env::args().skip(1).filter(is_name).collect()
}
