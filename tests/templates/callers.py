"""Code of callers of `examples/hello-python` for the type checker: each line that it must refuse is marked."""

import hello_python
import numpy as np

row = np.arange(3, dtype=np.float32)
hello_python.double_(row)
doubled = hello_python.double(row)
hello_python.double_(doubled)
total: float = float(np.asarray(doubled).sum())
shape: tuple[int, ...] = doubled.shape
half: np.ndarray[tuple[int], np.dtype[np.float32]] = hello_python.halved(row)

samples = hello_python.Samples(3, rate=44_100)
hello_python.double_(samples)
extent: int = len(samples) + samples.rate + hello_python.double(samples)[1:].ndim

hello_python.double_("nonsense")  # type: ignore[arg-type]
hello_python.double_(3)  # type: ignore[arg-type]
hello_python.halved("nonsense")  # type: ignore[arg-type]
hello_python.double()  # type: ignore[call-arg]
hello_python.Samples("nonsense", 1)  # type: ignore[arg-type]
samples.rate = 4  # type: ignore[misc]
