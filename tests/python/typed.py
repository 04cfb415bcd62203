"""Code of callers for the type checker: each line that it must refuse is marked, and an unused mark is an error."""

import interop_demo
import numpy as np

array = interop_demo.asarray(np.zeros((2, 3), np.float32))
view: interop_demo.Array = array[0, ..., ::2]
back = np.from_dlpack(array)
total: float = interop_demo.checksum(back) + interop_demo.checksum(array.__dlpack__(max_version=(1, 0)))
first: float = memoryview(array).cast("B")[0] + bytes(array)[0]
extent: int = interop_demo.describe(array, stream=1)["shape"][0] + len(interop_demo.edges(array)) + array.shape[0]

rows: list[interop_demo.Array] = [array[row] for row in range(len(array))]

interop_demo.checksum("text")  # type: ignore[arg-type]
interop_demo.describe(array, 1)  # type: ignore[call-arg]
array.shape = (1,)  # type: ignore[misc]
array["axis"]  # type: ignore[index]

try:
    interop_demo.scale_(array, 2)
except interop_demo.ArrayError as error:
    refused: BufferError | ValueError = error
