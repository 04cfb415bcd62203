//! Counts of passed, failed and skipped tests, parsed from the last lines of the test runners.

use std::fmt;
use std::ops::AddAssign;

/// The counts of a test run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    /// Whether any test was executed. A skipped test does not count.
    pub(crate) fn ran(self) -> bool {
        self.passed + self.failed > 0
    }

    /// Counts tests that cannot run here, and prints the reason.
    pub(crate) fn skip(&mut self, tests: usize, why: impl fmt::Display) {
        println!("    skipped: {why}");
        self.skipped += tests as u64;
    }

    /// Parses the last line of `cargo test`:
    /// `test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.05s`.
    pub(crate) fn from_libtest(line: &str) -> Option<Self> {
        let (_, tallies) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for tally in tallies.split("; ") {
            match split_tally(tally) {
                Some((number, "passed")) => counts.passed = number,
                Some((number, "failed")) => counts.failed = number,
                Some((number, "ignored")) => counts.skipped = number,
                // Measured and filtered tests were not requested; the remaining field is the time.
                _ => {}
            }
        }
        Some(counts)
    }

    /// Parses the last line of pytest, with or without its frame: `== 1 failed, 12 passed, 2 warnings in 0.12s ==`.
    pub(crate) fn from_pytest(line: &str) -> Option<Self> {
        let (tallies, time) = line.trim_matches(|c| c == '=' || c == ' ').rsplit_once(" in ")?;
        if !time.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let mut counts = Self::default();
        if tallies == "no tests ran" {
            return Some(counts);
        }
        for tally in tallies.split(", ") {
            let (number, word) = split_tally(tally)?;
            match word {
                "passed" | "xpassed" => counts.passed += number,
                // An error is a test whose setup or teardown failed.
                "failed" | "error" | "errors" => counts.failed += number,
                "skipped" | "xfailed" => counts.skipped += number,
                "deselected" | "warning" | "warnings" => {}
                _ => return None,
            }
        }
        Some(counts)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Splits `12 passed` into the number and the word.
fn split_tally(tally: &str) -> Option<(u64, &str)> {
    let (number, word) = tally.split_once(' ')?;
    Some((number.parse().ok()?, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn libtest_lines_are_read() {
        let line =
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 7 filtered out; finished in 0.05s";
        assert_eq!(Counts::from_libtest(line), Some(counts(12, 0, 3)));
        let line = "test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        assert_eq!(Counts::from_libtest(line), Some(counts(0, 2, 0)));
    }

    #[test]
    fn other_lines_of_cargo_are_not_results() {
        for line in [
            "",
            "running 3 tests",
            "test reads ... ok",
            "test result",
            "  test result: ok. 1 passed; 0 failed",
        ] {
            assert_eq!(Counts::from_libtest(line), None, "{line:?}");
        }
    }

    #[test]
    fn pytest_lines_are_read() {
        let cases = [
            ("========= 12 passed in 0.12s =========", counts(12, 0, 0)),
            ("12 passed in 75.10s (0:01:15)", counts(12, 0, 0)),
            ("= 1 failed, 2 passed, 1 skipped, 2 warnings in 3.45s =", counts(2, 1, 1)),
            ("= 2 passed, 3 deselected, 1 xfailed, 1 xpassed, 2 errors in 0.01s =", counts(3, 2, 1)),
            ("= 1 error in 0.30s =", counts(0, 1, 0)),
            ("= no tests ran in 0.00s =", counts(0, 0, 0)),
        ];
        for (line, expected) in cases {
            assert_eq!(Counts::from_pytest(line), Some(expected), "{line:?}");
        }
    }

    #[test]
    fn other_lines_of_pytest_are_not_results() {
        for line in [
            "",
            "collected 3 items",
            "tests/python/test_cai_dict.py ... [100%]",
            "2 apples in 3 baskets",
            "1 in 10",
        ] {
            assert_eq!(Counts::from_pytest(line), None, "{line:?}");
        }
    }

    #[test]
    fn skipped_tests_are_not_counted_as_run() {
        assert!(!counts(0, 0, 4).ran());
        assert!(counts(0, 1, 0).ran());
    }

    #[test]
    fn the_closing_line_names_skipped_tests_only_when_there_are_some() {
        assert_eq!(counts(3, 0, 0).to_string(), "3 passed, 0 failed");
        assert_eq!(counts(3, 1, 2).to_string(), "3 passed, 1 failed, 2 skipped");
    }
}
