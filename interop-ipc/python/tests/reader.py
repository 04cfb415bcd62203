"""The other process of the tests: follows orders, one a line, each with a message as hexadecimal digits."""

import sys

import interop_ipc
import numpy as np

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
        elif order == "drop":
            kept.clear()
            answer = "ok"
        elif order == "share":
            array = np.asarray(interop_ipc.empty(3, "f8"))
            array[:] = [1, 2, 3]
            answer = bytes(interop_ipc.share(array)).hex()
    except Exception as error:  # the answer shows it
        answer = f"{type(error).__name__}: {error}"
    print(answer, flush=True)
