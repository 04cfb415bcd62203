from collections.abc import Iterator
from enum import Enum
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar, final, type_check_only

from interop_core import AnyArray, ExportedArray, SupportsCAI
from typing_extensions import CapsuleType

__all__ = [
    "Array",
    "ArrayError",
    "HoldReleases",
    "Recording",
    "StreamError",
    "asarray",
    "blur_",
    "checksum",
    "describe",
    "edges",
    "finish_releases",
    "interface_nbytes",
    "is_square",
    "is_square_trusted",
    "live_allocations",
    "live_exports",
    "order",
    "parse_cai",
    "pending_releases",
    "poll_releases",
    "scale_",
    "set_missing_stream_policy",
    "set_release_policy",
    "trace",
    "twice",
]

@type_check_only
class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

# The functions whose argument is `AnyArray | CapsuleType` take raw DLPack capsules too.
_Stream: TypeAlias = int | _HasStream | None
# A result of the kind that the caller brought.
_Kind = TypeVar("_Kind", bound=AnyArray)

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
class StreamError(ArrayError, RuntimeError): ...

@final
class Array(ExportedArray):
    @staticmethod
    def full(
        shape: SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex],
        value: complex,
        dtype: str = "<f4",
        *,
        device: str = "cpu",
        ordinal: int = 0,
        order: str = "C",
        readonly: bool = False,
    ) -> Array: ...
    # Lists, arrays and masks are refused.
    def __getitem__(  # type: ignore[override]
        self,
        key: SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType | None, ...] | None,
        /,
    ) -> Array: ...
    def __iter__(self) -> Iterator[Array]: ...

@final
class Recording:
    def __new__(cls, samples: AnyArray, rate: int) -> Recording: ...
    @property
    def rate(self) -> int: ...
    def __getitem__(self, index: int, /) -> float: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int | Enum, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class HoldReleases:
    def __new__(cls) -> HoldReleases: ...
    def __enter__(self) -> HoldReleases: ...
    def __exit__(self, _class: object, _error: object, _traceback: object) -> None: ...

def asarray(obj: AnyArray | CapsuleType, *, stream: _Stream = None) -> Array: ...
def describe(obj: AnyArray | CapsuleType, *, stream: _Stream = None) -> _Facts: ...
def parse_cai(d: Any) -> _Facts: ...
def blur_(obj: AnyArray, radius: int) -> None: ...
def edges(obj: AnyArray) -> ExportedArray: ...
def checksum(obj: AnyArray | CapsuleType, *, stream: _Stream = None) -> float: ...
def scale_(obj: AnyArray | CapsuleType, factor: float, *, stream: _Stream = None) -> None: ...
def is_square(obj: AnyArray) -> bool: ...
def is_square_trusted(obj: AnyArray) -> bool: ...
def trace(obj: AnyArray) -> float: ...
def twice(obj: _Kind) -> _Kind: ...
def interface_nbytes(obj: SupportsCAI) -> int: ...
def live_allocations() -> int: ...
def live_exports() -> int: ...
def pending_releases() -> int: ...
def poll_releases() -> int: ...
def finish_releases() -> int: ...
def order(array: Array, stream: int | _HasStream) -> None: ...
def set_release_policy(name: str) -> str: ...
def set_missing_stream_policy(name: str) -> str: ...
