"""Compiles the C and C++ modules that stand beside ours in tests and benchmarks."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parent / "modules"
C, CPLUSPLUS = shlex.split(os.environ.get("CC", "cc")), shlex.split(os.environ.get("CXX", "c++"))
# Beside the packages of the environment, so that every Python has its own.
BUILT = Path(sys.prefix) / "native"


def missing():
    """What this computer lacks for compiling modules, or `None`."""
    for compiler in (C, CPLUSPLUS):
        if shutil.which(compiler[0]) is None:
            return f"no compiler `{compiler[0]}`"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no Python.h; Debian and Ubuntu have it in the package `python3-dev`"
    return None


def required(name):
    """As `load`, for tests, which are skipped where nothing can be compiled."""
    import pytest

    if why := missing():
        pytest.skip(f"modules cannot be compiled: {why}", allow_module_level=True)
    return load(name)


def load(name):
    """The module of this name, compiled if it is not, or if its source has changed since."""
    source = next(SOURCES.glob(f"{name}.c*"))
    module = BUILT / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    newest = max(file.stat().st_mtime for file in (source, *SOURCES.glob("*.h")))
    if not module.exists() or module.stat().st_mtime < newest:
        BUILT.mkdir(exist_ok=True)
        fresh = module.with_suffix(".new")
        subprocess.run([*compile_command(source), "-o", str(fresh)], check=True)
        fresh.rename(module)
    spec = importlib.util.spec_from_file_location(name, module)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def compile_command(source):
    """How a source is compiled, the way the authors of such modules do it."""
    options = ["-O3", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{sysconfig.get_path('include')}"]
    if sys.platform == "darwin":
        options += ["-undefined", "dynamic_lookup"]
    if source.suffix == ".c":
        return [*C, "-std=c11", *options, str(source)]
    import nanobind

    folder = Path(nanobind.source_dir())
    options += ["-std=c++17", "-fno-strict-aliasing", f"-I{nanobind.include_dir()}"]
    options.append(f"-I{folder.parent / 'ext/robin_map/include'}")
    return [*CPLUSPLUS, *options, str(folder / "nb_combined.cpp"), str(source)]
