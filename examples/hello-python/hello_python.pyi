"""
Arrays from Rust.
"""

from collections.abc import Callable
from interop_core import AnyArray, ExportedArray
from typing import Any, Final, SupportsIndex, final

__all__ = ["Samples", "double", "double_", "halved"]

@final
class Samples:
    """
    A class of one's own whose instances are arrays.
    """
    T: Final[Any]
    __abs__: Final[Callable[..., Any]]
    __add__: Final[Callable[..., Any]]
    __and__: Final[Callable[..., Any]]
    __array__: Final[Callable[..., Any]]
    __array_interface__: Final[Any]
    __array_ufunc__: Final[Callable[..., Any]]
    __bool__: Final[Callable[..., Any]]
    __complex__: Final[Callable[..., Any]]
    __contains__: Final[Callable[..., Any]]
    __copy__: Final[Callable[..., Any]]
    __cuda_array_interface__: Final[Any]
    __deepcopy__: Final[Callable[..., Any]]
    __divmod__: Final[Callable[..., Any]]
    __dlpack__: Final[Callable[..., Any]]
    __dlpack_device__: Final[Callable[..., Any]]
    __float__: Final[Callable[..., Any]]
    __floordiv__: Final[Callable[..., Any]]
    __ge__: Final[Callable[..., Any]]
    __getitem__: Final[Callable[..., Any]]
    __gt__: Final[Callable[..., Any]]
    __iadd__: Final[Callable[..., Any]]
    __iand__: Final[Callable[..., Any]]
    __ifloordiv__: Final[Callable[..., Any]]
    __ilshift__: Final[Callable[..., Any]]
    __imatmul__: Final[Callable[..., Any]]
    __imod__: Final[Callable[..., Any]]
    __imul__: Final[Callable[..., Any]]
    __int__: Final[Callable[..., Any]]
    __interop_core__: Final[str]
    __invert__: Final[Callable[..., Any]]
    __ior__: Final[Callable[..., Any]]
    __ipow__: Final[Callable[..., Any]]
    __irshift__: Final[Callable[..., Any]]
    __isub__: Final[Callable[..., Any]]
    __iter__: Final[Callable[..., Any]]
    __itruediv__: Final[Callable[..., Any]]
    __ixor__: Final[Callable[..., Any]]
    __le__: Final[Callable[..., Any]]
    __len__: Final[Callable[..., Any]]
    __lshift__: Final[Callable[..., Any]]
    __lt__: Final[Callable[..., Any]]
    __matmul__: Final[Callable[..., Any]]
    __mod__: Final[Callable[..., Any]]
    __mul__: Final[Callable[..., Any]]
    __neg__: Final[Callable[..., Any]]
    __or__: Final[Callable[..., Any]]
    __pos__: Final[Callable[..., Any]]
    __pow__: Final[Callable[..., Any]]
    __radd__: Final[Callable[..., Any]]
    __rand__: Final[Callable[..., Any]]
    __rdivmod__: Final[Callable[..., Any]]
    __rfloordiv__: Final[Callable[..., Any]]
    __rlshift__: Final[Callable[..., Any]]
    __rmatmul__: Final[Callable[..., Any]]
    __rmod__: Final[Callable[..., Any]]
    __rmul__: Final[Callable[..., Any]]
    __ror__: Final[Callable[..., Any]]
    __rpow__: Final[Callable[..., Any]]
    __rrshift__: Final[Callable[..., Any]]
    __rshift__: Final[Callable[..., Any]]
    __rsub__: Final[Callable[..., Any]]
    __rtruediv__: Final[Callable[..., Any]]
    __rxor__: Final[Callable[..., Any]]
    __setitem__: Final[Callable[..., Any]]
    __sub__: Final[Callable[..., Any]]
    __truediv__: Final[Callable[..., Any]]
    __xor__: Final[Callable[..., Any]]
    all: Final[Callable[..., Any]]
    any: Final[Callable[..., Any]]
    argmax: Final[Callable[..., Any]]
    argmin: Final[Callable[..., Any]]
    argsort: Final[Callable[..., Any]]
    astype: Final[Callable[..., Any]]
    clip: Final[Callable[..., Any]]
    conj: Final[Callable[..., Any]]
    cumprod: Final[Callable[..., Any]]
    cumsum: Final[Callable[..., Any]]
    device: Final[str]
    diagonal: Final[Callable[..., Any]]
    dot: Final[Callable[..., Any]]
    dtype: Final[Any]
    flatten: Final[Callable[..., Any]]
    item: Final[Callable[..., Any]]
    itemsize: Final[Any]
    max: Final[Callable[..., Any]]
    mean: Final[Callable[..., Any]]
    min: Final[Callable[..., Any]]
    nbytes: Final[int]
    ndim: Final[int]
    nonzero: Final[Callable[..., Any]]
    prod: Final[Callable[..., Any]]
    ravel: Final[Callable[..., Any]]
    relabel_as_device: Final[Callable[..., Any]]
    relabel_as_host: Final[Callable[..., Any]]
    repeat: Final[Callable[..., Any]]
    reshape: Final[Callable[..., Any]]
    round: Final[Callable[..., Any]]
    shape: Final[tuple[int, ...]]
    size: Final[int]
    squeeze: Final[Callable[..., Any]]
    std: Final[Callable[..., Any]]
    strides: Final[Any]
    sum: Final[Callable[..., Any]]
    swapaxes: Final[Callable[..., Any]]
    take: Final[Callable[..., Any]]
    tobytes: Final[Callable[..., Any]]
    tolist: Final[Callable[..., Any]]
    trace: Final[Callable[..., Any]]
    transpose: Final[Callable[..., Any]]
    var: Final[Callable[..., Any]]
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
