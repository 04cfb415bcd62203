"""Arrays between processes without a copy: a message of plain bytes over any channel."""

from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Protocol, Self, SupportsIndex, TypeVar, final

from interop_core import AnyArray, ExportedArray
from typing_extensions import Buffer

__all__ = ["ArrayError", "Lease", "Parcel", "empty", "is_alive", "leases", "listen_at", "open", "share"]

_Array = TypeVar("_Array", bound=AnyArray)

class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class ArrayError(BufferError, ValueError):
    """An array that cannot be shared or opened, and why."""

@final
class Parcel(Generic[_Array]):
    """The message about an offered array, as plain bytes, and the offer itself. Its pickle is the bytes alone."""

    def withdraw(self) -> None:
        """Ends the offer: nobody can open the array from now on. Who has it open keeps it."""
    def take_back(self, seconds: float | None = None, *, stream: SupportsIndex | _HasStream | None = None) -> _Array:
        """Ends the offer, waits until nobody has the array open, and returns it. A `stream` waits for the work of their GPUs."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, exception: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Lease:
    """An array of this process that another one has open."""

    @property
    def process(self) -> int:
        """The other process; 0 if it is in a container that hides its number."""
    @property
    def seconds(self) -> float:
        """How long it has had the array open."""

def share(
    array: _Array, *, opens: SupportsIndex = 1, seconds: float = 60.0, copy: bool = False, writable: bool = False
) -> Parcel[_Array]:
    """Offers an array to other processes, and returns the message for them."""

def open(message: Buffer, *, stream: SupportsIndex | _HasStream | None = None) -> ExportedArray:
    """Opens an array of another process, by the message of its parcel. A `stream` waits for its work."""

def is_alive(message: Buffer) -> bool:
    """Whether the process that has offered an array still runs."""

def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: Any = None) -> ExportedArray:
    """Allocates an array that other processes can open. Its elements are zero."""

def leases() -> list[Lease]:
    """Lists the arrays of this process that others have open."""

def listen_at(path: str | PathLike[str]) -> None:
    """Also listens at a path, which the messages of this process name from now on."""
