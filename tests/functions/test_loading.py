"""How the operators of a library are registered: before PyTorch, by threads, twice, with an older PyTorch, and after a fork."""

import os
import shutil
import subprocess
import sys

import pytest

LIBRARY = os.environ["INTEROP_FUNCTIONS"]

HEAD = """
import ctypes, sys, threading, warnings
library = sys.argv[1]
def error(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def row(*values, **options):
    return torch.tensor(values or (1.0, 2.0), dtype=torch.float64, **options)
"""


def in_a_process(program, library=LIBRARY, **variables):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program, library], capture_output=True, text=True, check=False, env=os.environ | variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


USE = """
x = row(requires_grad=True)
torch.ops.interop_tests.product(x, x).sum().backward()
print(x.grad.tolist(), torch.ops.interop_tests.product(row(), row()).tolist())
"""
USED = "[2.0, 4.0] [1.0, 4.0]\n"


def test_before_pytorch():
    load = "loaded = ctypes.CDLL(library)\nimport torch\n"
    missing = "print(hasattr(torch.ops.interop_tests, 'product'))\n"
    call = "ctypes.PyDLL(library).interop_load_operators()\n" * 2
    assert in_a_process(load + missing + call + USE)[0] == "False\n" + USED


def test_without_pytorch():
    program = "ctypes.CDLL(library)\nprint(error(ctypes.PyDLL(library).interop_load_operators), 'torch' in sys.modules)"
    assert in_a_process(program)[0] == (
        "RuntimeError: operators: found no PyTorch in this process, allowed: PyTorch 2.10 or newer False\n"
    )


def test_in_a_thread():
    """The main thread waits, so it registers no gradient."""
    program = """
import time, torch
def work():
    time.sleep(0.2)
    torch.ops.load_library(library)
    x = row(requires_grad=True)
    print(torch.ops.interop_tests.product(row(), row()).tolist(), error(torch.ops.interop_tests.product, x, x))
    ctypes.PyDLL(library).interop_load_operators()
    torch.ops.interop_tests.product(x, x).sum().backward()
    print(x.grad.tolist())
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    out = in_a_process(program)[0].splitlines()
    assert out[0].startswith("[1.0, 4.0] RuntimeError: `product`: its gradient is not registered yet") and out[1] == "[2.0, 4.0]"


def test_in_a_thread_while_the_main_thread_registers():
    """The call in the thread waits until the main thread is done."""
    program = """
import torch
sys.setswitchinterval(1e-6)
def work():
    torch.ops.load_library(library)
    ctypes.PyDLL(library).interop_load_operators()
    x = row(requires_grad=True)
    torch.ops.interop_tests.product(x, x).sum().backward()
    print(x.grad.tolist())
thread = threading.Thread(target=work)
thread.start()
while thread.is_alive():
    pass
"""
    assert in_a_process(program)[0] == "[2.0, 4.0]\n"


def test_the_same_file_twice():
    load = "torch.ops.load_library(library)\nctypes.CDLL(library)\nctypes.PyDLL(library).interop_load_operators()\n"
    assert in_a_process("import torch\n" + 2 * load + USE) == (USED, "")


def test_two_copies(tmp_path):
    copy = shutil.copy(LIBRARY, tmp_path / "libcopy.so")
    program = f"""
import torch
torch.ops.load_library(library)
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    torch.ops.load_library({str(copy)!r})
print([str(warning.message)[:120] for warning in found])
print(error(ctypes.PyDLL({str(copy)!r}).interop_load_operators)[:95])
"""
    out, err = in_a_process(program + USE)
    out = out.splitlines()
    assert "a library with this name may be loaded already" in out[0] and err == ""
    assert out[1].startswith("RuntimeError: operators: `") and out[2] == USED.strip()


def test_a_library_stays_when_its_module_is_dropped():
    program = """
import gc, torch, tvm_ffi
module = tvm_ffi.load_module(library)
del module
gc.collect()
"""
    assert in_a_process(program + USE)[0] == USED


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork():
    program = """
import os, torch
torch.ops.load_library(library)
child = os.fork()
status = os.waitpid(child, 0)[1] if child else None
x = row(requires_grad=True)
torch.ops.interop_tests.product(x, x).sum().backward()
print(x.grad.tolist(), status, flush=True)
os._exit(0)
"""
    assert in_a_process(program)[0] == "[2.0, 4.0] None\n[2.0, 4.0] 0\n"


@pytest.fixture(scope="module")
def hide(tmp_path_factory):
    """Makes a library that hides functions with these names from `dlsym`."""

    def make(*names):
        folder = tmp_path_factory.mktemp("hidden")
        source, library = folder / "hide.c", folder / "libhide.so"
        listed = ", ".join(f'"{name}"' for name in names)
        source.write_text(
            f"""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdio.h>
            #include <string.h>
            void *dlsym(void *handle, const char *name) {{
                static void *(*real)(void *, const char *);
                static const char *hidden[] = {{{listed}}};
                if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
                for (int at = 0; at < {len(names)}; at++)
                    if (!strcmp(name, hidden[at])) return fprintf(stderr, "hidden %s\\n", name), NULL;
                return real(handle, name);
            }}
            """
        )
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        return str(library)

    return make


linux = pytest.mark.skipif(sys.platform != "linux", reason="hides symbols of glibc")


@linux
def test_an_older_pytorch(hide):
    program = """
import torch
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    ctypes.CDLL(library)
print([str(warning.message) for warning in found], error(ctypes.PyDLL(library).interop_load_operators))
"""
    text = "operators: found an older PyTorch, allowed: PyTorch 2.10 or newer"
    out, err = in_a_process(program, LD_PRELOAD=hide("torch_library_impl"))
    assert out == f"['{text}'] RuntimeError: {text}\n" and "hidden torch_library_impl" in err


@linux
def test_without_functions_of_cpp(hide):
    """What they tell is asked of the dispatcher."""
    names = "_ZNK3c1010TensorImpl13requires_gradEv", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", "_ZdlPv"
    program = """
import torch
torch.ops.load_library(library)
operators = torch.ops.interop_tests
x = row()
operators.shift_(x, 1.0)
operators.shift_(x[:1], 1.0)
print(x.tolist(), x._version, operators.sum_all([x], [1.0], x, 1.0))
parameter = torch.nn.Parameter(row())
print([error(operators.shift_, tensor, 1.0)[:80] for tensor in (parameter, parameter * 1)])
with torch.no_grad():
    operators.shift_(parameter, 1.0)
print(parameter.tolist(), parameter._version)
with torch.inference_mode():
    inferred = row()
print(error(operators.shift_, inferred, 1.0))
"""
    out, err = in_a_process(program + USE, LD_PRELOAD=hide(*names))
    lines = out.splitlines()
    assert lines[0] == "[3.0, 3.0] 2 13.0"
    assert lines[1].count("`array`: found a tensor that requires a gradient") == 2
    assert lines[2] == "[2.0, 3.0] 1" and "made in inference mode" in lines[3] and lines[4] == USED.strip()
    assert err.count("hidden") >= 2
