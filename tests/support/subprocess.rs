//! A test in a process of its own.

use std::env;
use std::process::Command;

/// Runs `test` in a process of its own, where nothing else has used the driver or changes the counters of the crate: the
/// test of this name starts its own binary again, with the name as the only one to run. Miri starts no processes and runs
/// one test at a time.
pub(crate) fn run_alone(name: &str, test: impl FnOnce()) {
    const INSIDE: &str = "INTEROP_RUNTIME_ALONE";
    if cfg!(miri) || env::var_os(INSIDE).is_some() {
        return test();
    }
    let binary = env::current_exe().expect("the path of the test binary");
    let arguments = [name, "--exact", "--test-threads=1"];
    let output = Command::new(binary).args(arguments).env(INSIDE, "1").output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "no test is called {name}: {said}");
}
