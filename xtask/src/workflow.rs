//! Runs the commands of a project's GitHub workflow, as the service would on its Linux.

#[cfg(unix)]
use std::os::unix::fs::symlink;
#[cfg(windows)]
use std::os::windows::fs::symlink_dir as symlink;
use std::path::Path;
use std::process::Command;
use std::{env, iter};

use crate::failure::Failure;
use crate::python::Library;
use crate::test_counts::Counts;
use crate::{command_step, files};

/// Runs the commands of a project's workflow with the Python of an environment, and sums up the tests that they run. Builds go to
/// the folder `build`.
pub(crate) fn run(
    folder: &Path,
    environment: &Path,
    build: &Path,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let workflow = files::read(&folder.join(".github/workflows/ci.yml"))?;
    // Commands also name files in `target`.
    symlink(build, folder.join("target")).map_err(files::at(folder))?;
    let library = Library::find()?;
    let mut results = Counts::default();
    for command in commands(&workflow) {
        let mut bash = Command::new("bash");
        bash.args(["-ec", &command]).current_dir(folder).env("VIRTUAL_ENV", environment);
        let path = env::var_os("PATH").unwrap_or_default();
        let path = iter::once(environment.join("bin")).chain(env::split_paths(&path));
        bash.env("PATH", env::join_paths(path).unwrap_or_default());
        bash.env("CARGO_TARGET_DIR", build).env_remove("PYTHONPATH").env_remove("CONDA_PREFIX");
        // The service's Python is a shared library, which programs find.
        library.beside(&mut bash);
        command_step::follow(&mut bash, |line| {
            if let Some(result) = Counts::from_libtest(line).or_else(|| Counts::from_pytest(line)) {
                results += result;
            }
        })?;
    }
    if !results.ran() {
        return Err(Failure::new(format!("the workflow of {} ran no test", folder.display())));
    }
    *counts += results;
    Ok(())
}

/// Returns the commands of a workflow, with the options that its matrix has for the first system.
fn commands(workflow: &str) -> Vec<String> {
    let value = |key: &'static str| workflow.lines().filter_map(move |line| line.trim().strip_prefix(key));
    let options = value("options: ").next().unwrap_or_default();
    value("- run: ").map(|command| command.replace("${{ matrix.options }}", options)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_command_of_the_templates_is_found() {
        for (template, number) in [("hello-python", 4), ("hello-cuda", 7), ("hello-functions", 12)] {
            let file = workspace::root().join("examples").join(template).join(".github/workflows/ci.yml");
            let commands = commands(&files::read(&file).expect("a workflow"));
            assert_eq!(commands.len(), number, "{commands:?}");
            assert!(
                commands.iter().all(|command| !command.contains("${{") && command != "|"),
                "{commands:?}"
            );
        }
    }
}
