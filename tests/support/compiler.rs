//! The C or C++ compiler of this machine.

use std::env;
use std::ffi::OsString;
use std::process::Command;

/// Returns the compiler in the environment variable `variable`, else the first of `names` that runs. Without a
/// compiler the test fails in CI and prints elsewhere what is not tested.
pub(crate) fn find(variable: &str, names: &[&str], not_tested: &str) -> Option<Command> {
    let runs =
        |name: &OsString| Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success());
    let found = env::var_os(variable).or_else(|| names.iter().map(OsString::from).find(runs));
    if found.is_none() {
        let told = format!("no compiler: install {}, or name one with {variable}=<path>", names.join(" or "));
        assert!(env::var_os("CI").is_none_or(|it| it.is_empty() || it == "false"), "{told}");
        println!("not tested {not_tested}: {told}");
    }
    found.map(Command::new)
}

/// Runs the compiler, which must succeed without any output.
#[track_caller]
pub(crate) fn run(compiler: &mut Command) {
    let output = compiler.output().expect("the compiler starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{compiler:?}\n{said}");
}
