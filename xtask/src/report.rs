//! The report of checks and test suites: all of them run, a table shows the results, and the last line sums them up.

use std::time::{Duration, Instant};

use crate::command_step;
use crate::failure::Failure;
use crate::test_counts::Counts;

/// The results so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

/// The result of one check or suite.
struct Row {
    name: &'static str,
    counts: Counts,
    time: Duration,
    /// The reason of a failure, if the counts do not explain it.
    failure: Option<Failure>,
}

impl Report {
    /// Runs a check that counts as one test.
    pub(crate) fn check(
        &mut self,
        name: &'static str,
        why: &str,
        work: impl FnOnce() -> Result<(), Failure>,
    ) {
        self.suite(name, why, |counts| {
            work()?;
            counts.passed = 1;
            Ok(())
        });
    }

    /// Runs a test suite that counts its own tests.
    ///
    /// A suite that fails counts at least one failure. A suite that neither ran nor skipped a test fails too, because
    /// otherwise nobody would notice that it tests nothing.
    pub(crate) fn suite(
        &mut self,
        name: &'static str,
        why: &str,
        work: impl FnOnce(&mut Counts) -> Result<(), Failure>,
    ) {
        command_step::announce(name, why);
        let start = Instant::now();
        let mut counts = Counts::default();
        let outcome = match work(&mut counts) {
            Ok(()) if !counts.ran() && counts.skipped == 0 => {
                Err(Failure::new("it ended well but ran no test"))
            }
            outcome => outcome,
        };
        if outcome.is_err() {
            counts.failed = counts.failed.max(1);
        }
        let row = Row { name, counts, time: start.elapsed(), failure: outcome.err() };
        match &row.failure {
            None => println!("    {} ({:.1} s)", row.counts, row.time.as_secs_f64()),
            Some(failure) => println!("    FAILED after {:.1} s: {failure}", row.time.as_secs_f64()),
        }
        self.rows.push(row);
    }

    /// Prints the table and, as the last line, the sum of all counts.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let mut sum = Counts::default();
        println!("\n{:<30}{:>8}{:>8}{:>9}{:>10}", "", "passed", "failed", "skipped", "time");
        for Row { name, counts, time, .. } in &self.rows {
            let Counts { passed, failed, skipped } = counts;
            println!("{name:<30}{passed:>8}{failed:>8}{skipped:>9}{:>8.1} s", time.as_secs_f64());
            sum += *counts;
        }
        for Row { name, failure, .. } in &self.rows {
            if let Some(failure) = failure {
                println!("\n{name} failed: {failure}");
            }
        }
        println!("\n{sum}");
        if sum.failed == 0 && sum.ran() { Ok(()) } else { Err(Failure::reported()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of the only row.
    fn counts(report: &Report) -> Counts {
        let [row] = report.rows.as_slice() else { panic!("one row was expected") };
        row.counts
    }

    #[test]
    fn a_check_counts_as_one_test() {
        let mut report = Report::default();
        report.check("check", "", || Ok(()));
        assert_eq!(counts(&report), Counts { passed: 1, ..Counts::default() });
        assert!(report.close().is_ok());
    }

    #[test]
    fn a_suite_that_ran_nothing_fails() {
        let mut report = Report::default();
        report.suite("suite", "", |_| Ok(()));
        assert_eq!(counts(&report), Counts { failed: 1, ..Counts::default() });
        assert!(report.close().is_err());
    }

    #[test]
    fn a_suite_that_broke_counts_as_a_failure_beside_what_it_passed() {
        let mut report = Report::default();
        report.suite("suite", "", |counts| {
            counts.passed = 3;
            Err(Failure::new("it stopped"))
        });
        assert_eq!(counts(&report), Counts { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn failed_tests_are_not_counted_twice() {
        let mut report = Report::default();
        report.suite("suite", "", |counts| {
            counts.failed = 2;
            Err(Failure::new("two tests failed"))
        });
        assert_eq!(counts(&report), Counts { failed: 2, ..Counts::default() });
    }

    #[test]
    fn an_empty_report_is_a_failure() {
        assert!(Report::default().close().is_err());
    }
}
