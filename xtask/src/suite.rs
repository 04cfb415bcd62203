//! A list of test suites or checks, and how a command runs them.

use crate::failure::Failure;
use crate::report::Report;
use crate::test_counts::Counts;

/// A test suite.
#[derive(Clone, Copy)]
pub(crate) struct Suite {
    /// The word that selects it on the command line.
    pub(crate) word: &'static str,
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// Its purpose.
    pub(crate) why: &'static str,
    /// Runs it and counts its tests.
    pub(crate) run: fn(&mut Counts) -> Result<(), Failure>,
}

/// Runs the suites of `suites` that are named in `arguments`, or all.
pub(crate) fn choose(suites: &[Suite], arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|word| suites.iter().all(|suite| suite.word != **word)) {
        let words = suites.iter().map(|suite| suite.word).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("there is no `{unknown}`; there are: {words}")));
    }
    let mut report = Report::default();
    let wanted = |suite: &&Suite| arguments.is_empty() || arguments.iter().any(|word| word == suite.word);
    run_into(&mut report, suites.iter().filter(wanted));
    report.close()
}

/// Runs suites into a report.
pub(crate) fn run_into<'a>(report: &mut Report, suites: impl IntoIterator<Item = &'a Suite>) {
    for suite in suites {
        report.suite(suite.name, suite.why, suite.run);
    }
}
