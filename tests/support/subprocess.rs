//! Runs a test in its own process.

use std::env;
use std::process::Command;

/// Runs `test` in its own process, where nothing else has used the driver or changes the counters of the crate. The
/// test with this name starts its own binary again and selects only itself by that name. Miri starts no processes and
/// runs one test at a time.
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
