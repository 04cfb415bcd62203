//! The Python tests: which of them run together, and on which driver.

use std::process::Command;

use crate::failure::Failure;
use crate::python::{Environment, Requirements};
use crate::test_counts::Counts;
use crate::test_runs::pytest;
use crate::{extension, sim};

/// The tests for the simulated driver. They run in a separate process, because other libraries would take the driver
/// for a GPU.
pub(crate) const ON_SIMULATION: [&str; 12] = [
    "tests/python/test_cuda_arrays.py",
    "tests/python/test_cuda_negotiation.py",
    "tests/python/test_cuda_calls.py",
    "tests/python/test_cuda_copies.py",
    "tests/python/test_cuda_exports.py",
    "tests/python/test_cuda_interfaces.py",
    "tests/python/test_cuda_relabeled.py",
    "tests/python/test_cuda_results.py",
    "tests/python/test_cuda_rules.py",
    "tests/python/test_cuda_simulated.py",
    "tests/python/test_cuda_streams.py",
    "tests/python/test_cuda_without_gil.py",
];

/// The GPU tests that need no partner library, for the faults in other libraries that motivated this crate.
///
/// The fault in JAX is left out, because its test needs JAX. They run here too, because GPUs are rarely available and
/// some of these cases are tested nowhere else.
const FAULTS: [&str; 11] = [
    "tests/gpu/dali_stream_none.py::test_every_stream_comes_in",
    "tests/gpu/dali_stream_none.py::test_zero_is_no_stream",
    "tests/gpu/dali_stream_none.py::test_nothing_pending_is_no_key",
    "tests/gpu/warp_missing_strides.py::test_strides_come_in",
    "tests/gpu/warp_missing_strides.py::test_ours_has_the_key",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[device-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[pinned-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[managed-ours]",
    "tests/gpu/pinned_kernel_argument.py::test_one_call_for_every_kind[pool-ours]",
    "tests/gpu/nanobind_device.py",
    "tests/gpu/as_array.py",
];

/// Builds the extension and runs pytest on it.
pub(crate) fn python(counts: &mut Counts) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    let modules = extension::for_tests(&environment)?;
    if cfg!(target_os = "linux") {
        sim::build()?;
    }
    let python = || {
        let mut python = environment.python();
        python.env("PYTHONPATH", &modules);
        let options = LONG.iter().map(|file| format!("--ignore={file}"));
        python.env("PYTEST_ADDOPTS", in_two_processes(options));
        python
    };
    let twice = pytest_twice(python, counts);
    if !cfg!(target_os = "linux") {
        return twice;
    }
    twice.and(pytest(sim::hidden(&mut python()), &["interop-ipc/python/tests"], counts))
}

/// Returns the value of `PYTEST_ADDOPTS` that runs the tests in two processes. With more, the imports of the libraries cost more
/// than they save.
pub(crate) fn in_two_processes(options: impl IntoIterator<Item = String>) -> String {
    options.into_iter().chain(["--numprocesses=2".to_owned()]).collect::<Vec<_>>().join(" ")
}

/// The Python tests that take a quarter of the time of all.
const LONG: [&str; 4] = [
    "tests/python/test_fuzz_negotiation.py",
    "tests/python/test_soak.py",
    "tests/python/test_stubs.py",
    "interop-ipc/python/tests/test_stubs_of_interop_ipc.py",
];

/// Runs the Python tests that the everyday suite leaves out.
pub(crate) fn python_long(counts: &mut Counts) -> Result<(), Failure> {
    let environment = Environment::prepare(Requirements::Tests)?;
    let modules = extension::for_tests(&environment)?;
    let mut python = environment.python();
    python.env("PYTHONPATH", modules).env("PYTEST_ADDOPTS", in_two_processes([]));
    pytest(sim::hidden(&mut python), &LONG, counts)
}

/// Runs pytest on all tests without a driver, then on the tests for the simulated driver.
pub(crate) fn pytest_twice(python: impl Fn() -> Command, counts: &mut Counts) -> Result<(), Failure> {
    let ignored = ON_SIMULATION.iter().flat_map(|file| ["--ignore", *file]);
    let ignoring: Vec<&str> = ["tests/python"].into_iter().chain(ignored).collect();
    let everything = pytest(sim::hidden(&mut python()), &ignoring, counts);
    if !cfg!(target_os = "linux") {
        return everything;
    }
    let simulated = [&ON_SIMULATION[..], &FAULTS].concat();
    everything.and(pytest(sim::on_path(&mut python()), &simulated, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files, workspace};

    /// Without the driver some of these files would skip all their tests.
    #[test]
    fn what_is_for_the_simulated_driver_runs_on_it() {
        let present = files::entries(&workspace::root().join("tests/python")).expect("the Python tests");
        let names = present.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
        let present =
            names.filter(|name| name.starts_with("test_cuda_")).map(|name| format!("tests/python/{name}"));
        let (mut present, mut listed) = (present.collect::<Vec<_>>(), ON_SIMULATION.to_vec());
        present.sort();
        listed.sort_unstable();
        assert_eq!(listed, present);
    }
}
