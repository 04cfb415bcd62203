"""Code of callers for the type checker: each line that it must refuse is marked, and an unused mark is an error."""

from typing import Any

import interop_ipc
import numpy as np

frame = np.from_dlpack(interop_ipc.empty((2, 3), np.uint8))
parcel = interop_ipc.share(frame, opens=2, seconds=5)
message: bytes = bytes(parcel) + bytes(memoryview(parcel))
view = np.from_dlpack(interop_ipc.open(parcel))
again = interop_ipc.open(message)[0, ...]
back: np.ndarray[Any, Any] = parcel.take_back(seconds=1)
with interop_ipc.share(frame, copy=True) as lent:
    length: int = len(lent)
oldest: float = max(lease.seconds for lease in interop_ipc.leases())
interop_ipc.listen_at("/run/robot/camera")
on_stream = interop_ipc.open(message, stream=1)
taken: np.ndarray[Any, Any] = parcel.take_back(stream=2)
runs: bool = interop_ipc.is_alive(parcel)

interop_ipc.open("text")  # type: ignore[arg-type]
interop_ipc.share("text")  # type: ignore[type-var]
interop_ipc.open(message, stream="1")  # type: ignore[arg-type]
interop_ipc.share(frame, 2)  # type: ignore[call-arg]
