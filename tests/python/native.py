"""Compiles the C and C++ modules that the tests and benchmarks compare with ours."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parent / "modules"
# The structs of DLPack: in the repository those of the crate, on a GPU machine a copy beside the sources.
HEADER = next(SOURCES.glob("interop_dlpack.h"), Path(__file__).parents[2] / "interop-core/include/interop_dlpack.h")
C, CPLUSPLUS = shlex.split(os.environ.get("CC", "cc")), shlex.split(os.environ.get("CXX", "c++"))
# In the environment's folder, so that each Python has its own copies.
BUILT = Path(sys.prefix) / "native"


def missing():
    """Returns what this machine lacks to compile modules, or `None`."""
    for compiler in (C, CPLUSPLUS):
        if shutil.which(compiler[0]) is None:
            return f"no compiler `{compiler[0]}`"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no Python.h; Debian and Ubuntu have it in the package `python3-dev`"
    return None


def required(name):
    """Like `load`, for tests: skips the test if nothing can be compiled."""
    import pytest

    if why := missing():
        pytest.skip(f"modules cannot be compiled: {why}", allow_module_level=True)
    return load(name)


def load(name):
    """Returns the module of this name. Compiles it first if it is missing or its source has changed."""
    source = next(SOURCES.glob(f"{name}.c*"))
    module = BUILT / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    newest = max(file.stat().st_mtime for file in (source, HEADER))
    if not module.exists() or module.stat().st_mtime < newest:
        BUILT.mkdir(exist_ok=True)
        # A name of its own, because several processes of pytest may compile the module at the same time.
        fresh = module.with_suffix(f".{os.getpid()}.new")
        subprocess.run([*compile_command(source), "-o", str(fresh)], check=True)
        fresh.replace(module)
    spec = importlib.util.spec_from_file_location(name, module)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def compile_command(source):
    """Returns the command that compiles a source, with the usual options for such modules."""
    options = ["-O3", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden"]
    options += [f"-I{sysconfig.get_path('include')}", f"-I{HEADER.parent}"]
    if sys.platform == "darwin":
        options += ["-undefined", "dynamic_lookup"]
    if source.suffix == ".c":
        return [*C, "-std=c11", *options, str(source)]
    import nanobind

    folder = Path(nanobind.source_dir())
    options += ["-std=c++17", "-fno-strict-aliasing", f"-I{nanobind.include_dir()}"]
    options.append(f"-I{folder.parent / 'ext/robin_map/include'}")
    return [*CPLUSPLUS, *options, str(folder / "nb_combined.cpp"), str(source)]
