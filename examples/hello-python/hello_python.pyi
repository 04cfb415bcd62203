"""
Arrays from Rust.
"""

from interop_core import AnyArray, ExportedArray
from typing import Any, Final, SupportsIndex, final

__all__ = ["Samples", "double", "double_", "halved"]

@final
class Samples:
    """
    A class of one's own whose instances are arrays.
    """
    __dlpack_c_exchange_api__: Final[Any]
    @property
    def __array__(self, /) -> Any:
        """
        The method that converts to an array of NumPy, where the buffer protocol cannot express this one.
        """
    @property
    def __cuda_array_interface__(self, /) -> dict[str, Any]:
        """
        The CUDA Array Interface, version 3; absent for memory that CUDA cannot reach, and for element types that
        it has no code for.
        """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: Any | None = None, dl_device: Any | None = None, copy: Any | None = None) -> Any:
        """
        A DLPack capsule of the array; see the array API standard.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        The device type and the ordinal.
        """
    @property
    def __jax_array__(self, /) -> Any:
        """
        The method that converts to an array of JAX, in place if the memory is writable.
        """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, len: SupportsIndex, rate: SupportsIndex) -> Samples: ...
    @property
    def rate(self, /) -> int: ...

def double(row: AnyArray) -> ExportedArray:
    """
    A new array with every element doubled.
    """

def double_(row: AnyArray) -> None:
    """
    Doubles every element of the caller's array, in place.
    """

def halved(row: AnyArray) -> Any:
    """
    Every element halved, as a new array of the caller's library: NumPy in, NumPy out.
    """
