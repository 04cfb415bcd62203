"""Types of arguments and results of `interop_core` extensions, for type checkers: no such module exists at run time."""

from enum import Enum
from types import EllipsisType
from typing import Any, ClassVar, Protocol, SupportsIndex, TypeAlias, type_check_only

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer, CapsuleType

@type_check_only
class SupportsDLPack(Protocol):
    """An array of a library that supports DLPack: NumPy, PyTorch, JAX, CuPy and others."""

    @property
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

@type_check_only
class SupportsCAI(Protocol):
    """An array of a library that supports the CUDA Array Interface."""

    @property
    def __cuda_array_interface__(self) -> Any: ...

# The type of an argument. NumPy's arrays are listed because their `__dlpack__` is typed for arrays of numbers only.
AnyArray: TypeAlias = SupportsDLPack | SupportsCAI | Buffer | np.ndarray[Any, Any]

# The type of an argument that NumPy may convert, such as a list of numbers.
AnyArrayLike: TypeAlias = AnyArray | npt.ArrayLike

@type_check_only
class ArrayError(BufferError, ValueError):
    """An array that cannot be imported or exported."""

@type_check_only
class StreamError(ArrayError, RuntimeError):
    """A stream that `__dlpack__` cannot use."""

_Index: TypeAlias = SupportsIndex | slice | EllipsisType | None
_Key: TypeAlias = _Index | tuple[_Index, ...]

@type_check_only
class ExportedArray:
    """An array that a function returned, or a view of one."""

    __dlpack_c_exchange_api__: ClassVar[CapsuleType]
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int | Enum, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray[Any, Any]: ...
    def __jax_array__(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: _Key, /) -> ExportedArray: ...
    def __copy__(self) -> ExportedArray: ...
    def __deepcopy__(self, memo: Any, /) -> ExportedArray: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...] | None: ...
    @property
    def dtype(self) -> np.dtype[Any] | str: ...
    @property
    def device(self) -> str: ...
