from types import EllipsisType
from typing import Any, ClassVar, NoReturn, Protocol, SupportsIndex, TypeAlias, TypedDict, final, type_check_only

import numpy as np
from typing_extensions import CapsuleType

__all__ = [
    "Array",
    "ArrayError",
    "HoldReleases",
    "asarray",
    "blur_",
    "checksum",
    "describe",
    "drain_releases",
    "edges",
    "finish_releases",
    "interface_nbytes",
    "is_square",
    "live_allocations",
    "live_exports",
    "order",
    "parse_cai",
    "pending_releases",
    "scale_",
    "set_release_policy",
    "set_unstated_stream",
]

@type_check_only
class _SpeaksDLPack(Protocol):
    @property
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

@type_check_only
class _SpeaksCAI(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

@type_check_only
class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

# Every array library's arrays; the functions whose argument is `_Array | CapsuleType` take raw DLPack capsules too.
_Array: TypeAlias = _SpeaksDLPack | _SpeaksCAI
_Stream: TypeAlias = int | _HasStream | None

@type_check_only
class _Facts(TypedDict):
    protocol: str
    device: tuple[int, int] | None
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    data: int
    nbytes: int
    stream: int | None

class ArrayError(BufferError, ValueError): ...

@type_check_only
class _ArrayObject:
    """What every object of a derived struct has."""

    __dlpack_c_exchange_api__: ClassVar[CapsuleType]
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray[Any, Any]: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> NoReturn: ...
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

@final
class Array(_ArrayObject):
    @staticmethod
    def full(
        shape: SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex],
        value: float,
        dtype: str = "<f4",
        *,
        device: str = "cpu",
        ordinal: int = 0,
        order: str = "C",
        readonly: bool = False,
    ) -> Array: ...
    def __getitem__(
        self, key: SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...], /
    ) -> Array: ...

@final
class HoldReleases:
    def __new__(cls) -> HoldReleases: ...
    def __enter__(self) -> HoldReleases: ...
    def __exit__(self, _class: object, _error: object, _traceback: object) -> None: ...

def asarray(obj: _Array | CapsuleType, *, stream: _Stream = None) -> Array: ...
def describe(obj: _Array | CapsuleType, *, stream: _Stream = None) -> _Facts: ...
def parse_cai(d: Any) -> _Facts: ...
def blur_(obj: _Array, radius: int) -> None: ...
def edges(obj: _Array) -> _ArrayObject: ...
def checksum(obj: _Array | CapsuleType, *, stream: _Stream = None) -> float: ...
def scale_(obj: _Array | CapsuleType, factor: float, *, stream: _Stream = None) -> None: ...
def is_square(obj: _Array) -> bool: ...
def interface_nbytes(obj: _SpeaksCAI) -> int: ...
def live_allocations() -> int: ...
def live_exports() -> int: ...
def pending_releases() -> int: ...
def drain_releases() -> int: ...
def finish_releases() -> int: ...
def order(array: Array, stream: int | _HasStream) -> None: ...
def set_release_policy(name: str) -> str: ...
def set_unstated_stream(name: str) -> str: ...
