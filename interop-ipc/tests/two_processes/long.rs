//! What takes a minute: `cargo xtask test processes`.

use crate::hostile_office::open_changed_messages;
use crate::{ends, kills};

#[test]
#[ignore = "takes a minute"]
fn three_million_changed_messages() {
    open_changed_messages(3_000_000);
}

#[test]
#[ignore = "takes a minute"]
fn a_thousand_processes_killed_at_each_step() {
    for _ in 0..125 {
        ends::a_consumer_is_killed_at_each_step();
        ends::a_producer_is_killed_and_what_is_open_stays();
        ends::a_producer_with_a_child_is_killed();
        ends::a_producer_that_ends_well_leaves_its_arrays_open();
    }
}

#[test]
#[ignore = "takes a minute, or as long as `KILL_SECONDS` says"]
fn processes_killed_at_random() {
    let seconds = std::env::var("KILL_SECONDS").map_or(60, |seconds| seconds.parse().expect("a number"));
    println!("{}", kills::kill_in_a_process(seconds));
}
