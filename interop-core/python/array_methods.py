"""Methods of array classes that NumPy computes on the host. `interop_core` executes this text once."""

import operator


class Attribute:
    """A read-only attribute of arrays."""

    def __init__(self, value, doc):
        self.value, self.__doc__ = value, doc

    def __get__(self, array, owner=None):
        return self if array is None else self.value(array)

    def __set__(self, array, value):
        raise AttributeError("an array's attributes cannot be set")

    def __delete__(self, array):
        raise AttributeError("an array's attributes cannot be deleted")


def binary(function):
    def forward(self, other):
        return function(self.__array__(), other)

    def reflected(self, other):
        return function(other, self.__array__())

    def in_place(self, other):
        function(self.__array__(), other)
        return self

    return forward, reflected, in_place


def unary(function):
    return lambda self: function(self.__array__())


def delegated(name):
    def method(self, *args, **kwargs):
        return getattr(self.__array__(), name)(*args, **kwargs)

    return method


def array_ufunc(self, ufunc, method, *inputs, out=None, **kwargs):
    """Calls a NumPy ufunc on the host. It works in place if `out` is an array of such a class."""

    def known(value):
        return value.__array__() if hasattr(type(value), "__interop_core__") else value

    if out is not None:
        kwargs["out"] = tuple(known(value) for value in out)
    made = getattr(ufunc, method)(*map(known, inputs), **kwargs)
    return made if out is None or len(out) != 1 else out[0]


def array_interface(self):
    try:
        array = self.__array__()
    except (BufferError, ImportError) as error:
        raise AttributeError(f"__array_interface__: {error}") from error
    # For a dtype that another package registered in NumPy, the interface contains only the item size.
    if array.dtype.isbuiltin == 2:
        raise AttributeError(f"__array_interface__: it has no name for {array.dtype}")
    return array.__array_interface__


def set_item(self, key, value):
    self.__array__()[key] = value


def contains(self, value):
    return value in self.__array__()


def formatted(self, spec):
    return format(self.__array__(), spec) if spec else str(self)


def power(self, other, modulus=None):
    if modulus is not None:
        return NotImplemented
    return operator.pow(self.__array__(), other)


METHODS = {
    "__array_ufunc__": array_ufunc,
    "__array_interface__": Attribute(array_interface, "NumPy's array interface, of memory that the host can reach."),
    "__setitem__": set_item,
    "__contains__": contains,
    "__format__": formatted,
    "T": Attribute(lambda self: self.transpose(), "The array with its axes reversed, a view."),
    "itemsize": Attribute(lambda self: self.nbytes // self.size if self.size else self.__array__().itemsize, "The bytes of one element."),
}

for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    METHODS[f"__{name}__"] = binary(getattr(operator, name))[0]
for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor"):
    plain = getattr(operator, f"__{name}__")
    METHODS[f"__{name}__"], METHODS[f"__r{name}__"], _ = binary(plain)
    METHODS[f"__i{name}__"] = binary(getattr(operator, f"__i{name}__"))[2]
METHODS["__pow__"] = power
METHODS["__divmod__"], METHODS["__rdivmod__"], _ = binary(divmod)
for name in ("neg", "pos", "abs", "invert"):
    METHODS[f"__{name}__"] = unary(getattr(operator, f"__{name}__"))
for name in """all any argmax argmin argsort astype clip conj cumprod cumsum diagonal dot flatten item max mean min nonzero
               prod ravel repeat round squeeze std sum swapaxes take tobytes tolist trace var""".split():
    METHODS[name] = delegated(name)
for name, value in METHODS.items():
    if callable(value):
        value.__name__, value.__qualname__ = name, f"array.{name}"
# Arrays are mutable, and `==` compares elements.
METHODS["__hash__"] = None
