//! Arrays in memory of a GPU between two processes: one table, on a GPU or on the simulated driver.
//!
//! Each line ends in `holds` or `MISSED`. Without a GPU the driver is the simulated one, which also reports unordered work.

#![expect(unsafe_code, reason = "calls the driver, and reads what it has written")]
#![cfg(target_os = "linux")]

mod driver;
mod kills;
mod known_faults;
mod memory;
mod other;
mod rest;
mod rows;
mod ways;

/// Prints a line of the table.
fn row(name: &str, is_met: bool, found: &str) {
    println!("{name:<44} {found:<60} {}", if is_met { "holds" } else { "MISSED" });
}

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
    let numbers = std::env::args().skip_while(|argument| argument != "--kills").skip(1);
    let numbers: Vec<u64> = numbers.map(|number| number.parse().expect("a number")).collect();
    if let [seconds, seed] = numbers[..] {
        let is_met = rows::run_one("random kills", |_| kills::at_random(seconds, seed), 1);
        std::process::exit(i32::from(!is_met));
    }
    let is_met = if driver::is_simulated() { rows::in_each_schedule() } else { rows::all(1000) };
    std::process::exit(i32::from(!is_met));
}
