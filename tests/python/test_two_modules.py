"""Two extension modules that contain this crate and share host memory."""

import importlib.util
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import interop_demo
import pytest


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The same module again: a file with another name is another library with its own variables."""
    built = Path(interop_demo.__file__)
    file = shutil.copy(built, tmp_path_factory.mktemp("second") / built.name)
    spec = importlib.util.spec_from_file_location("interop_demo", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Array is not interop_demo.Array
    return module


@pytest.mark.parametrize("first", [True, False], ids=["the-first-writes", "the-second-writes"])
def test_a_writer_in_one_and_a_reader_in_the_other(other, first):
    """They were not synchronized: each knew only its own readers and writers."""
    writing, reading = (interop_demo, other) if first else (other, interop_demo)
    for module in (writing, reading):
        image = module.Array.full((500, 500, 3), 1.0)
        refusals, at_work = [], True

        def blur():
            while at_work:
                writing.blur_(image, 1)

        thread = threading.Thread(target=blur)
        thread.start()
        end = time.monotonic() + 20
        while not refusals and time.monotonic() < end:
            try:
                reading.checksum(image)
            except reading.ArrayError as error:
                refusals.append(str(error))
        at_work = False
        thread.join()
        assert refusals and "a writer of 0x" in refusals[0], "the writer is never met"
        # A borrow that has ended is forgotten.
        assert reading.checksum(image) == writing.checksum(image)
        writing.scale_(image, 2)


def test_a_module_with_another_version_of_the_table_is_refused():
    """Neither would know what the other one reads and writes."""
    program = """
        import ctypes
        api = ctypes.pythonapi
        api.PyInterpreterState_Get.restype = ctypes.c_void_p
        api.PyInterpreterState_GetDict.restype = ctypes.py_object
        shared = api.PyInterpreterState_GetDict(ctypes.c_void_p(api.PyInterpreterState_Get()))
        shared["interop_core.access_table_v4"] = None
        try:
            import interop_demo
        except Exception as error:
            # A class is made first, so it is the cause of an error about the class.
            while error.__cause__:
                error = error.__cause__
            assert isinstance(error, ImportError) and "access_table_v4" in str(error), error
        else:
            raise AssertionError("it is imported")
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
