"""The other process of the tests: follows orders, one a line, each with a message as hexadecimal digits."""

import ctypes
import os
import sys

import interop_ipc
import numpy as np

USED = b"used_dltensor_versioned"
pointer_of, set_name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
pointer_of.argtypes = set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
pointer_of.restype = ctypes.c_void_p


def release_unlocked(array):
    """Releases an array as PyTorch does: by its deleter, without the interpreter's lock."""
    capsule = array.__dlpack__(max_version=(1, 0))
    tensor = pointer_of(capsule, b"dltensor_versioned")
    set_name(capsule, USED)
    # The deleter follows the version and the context.
    deleter = ctypes.c_void_p.from_address(tensor + 16).value
    del array, capsule
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(tensor)


kept = []
for line in sys.stdin:
    order, _, message = line.rstrip("\n").partition(" ")
    try:
        if order == "open":
            kept.append(np.from_dlpack(interop_ipc.open(bytes.fromhex(message))))
            answer = f"{kept[-1].dtype} {kept[-1].tolist()}"
        elif order == "add":
            np.from_dlpack(interop_ipc.open(bytes.fromhex(message)))[...] += 1
            answer = "ok"
        elif order == "release":
            release_unlocked(interop_ipc.open(bytes.fromhex(message)))
            answer = "ok"
        elif order == "drop":
            kept.clear()
            answer = "ok"
        elif order == "listen":
            interop_ipc.listen_at(os.fsdecode(bytes.fromhex(message)))
            answer = "ok"
        elif order == "share":
            array = np.asarray(interop_ipc.empty(3, "f8"))
            array[:] = [1, 2, 3]
            answer = bytes(interop_ipc.share(array)).hex()
    except Exception as error:  # the answer shows it
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
