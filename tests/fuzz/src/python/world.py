"""The Python half of the target: producer classes of every kind, whose methods ask Rust for their results."""


class Own(Exception):
    """A producer's own error."""


class OwnBuffer(BufferError):
    """The same, derived from a class that the standards name."""


class OwnType(TypeError):
    """The same."""


class OwnKeyword(TypeError):
    """The same, with the message of a call with an unknown keyword."""


class OwnAttribute(AttributeError):
    """The same, for a missing attribute."""


class OwnInterrupt(BaseException):
    """An interrupt instead of an error."""


OWN = (Own, OwnBuffer, OwnType, OwnKeyword, OwnAttribute, OwnInterrupt)


def raised(which):
    """Returns one of the producer's own errors."""
    return OWN[which]("unexpected keyword argument" if OWN[which] is OwnKeyword else "the producer's own")


class Foreign:
    """A value that no argument accepts."""


class Index:
    """An object with `__index__` that is not an int. Its answer may be invalid."""

    def __init__(self, answer):
        self.answer = answer

    def __index__(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Stream:
    """A stream object of another library, defined only by its answer."""

    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Dict(dict):
    """A dict subclass with its own methods."""

    def __contains__(self, key):
        return super().__contains__(key)


TENSOR, DEVICE, INTERFACE = range(3)
RAISING = property(lambda self: answer(TENSOR))  # noqa: F821
# The ways to accept arguments, in the order of `Takes`.
TAKES = (
    lambda self, *, stream=None, max_version=None, dl_device=None, copy=None: answer(TENSOR),  # noqa: F821
    lambda self, *, max_version=None: answer(TENSOR),  # noqa: F821
    lambda self, stream=None: answer(TENSOR),  # noqa: F821
    lambda self: answer(TENSOR),  # noqa: F821
    lambda self, **_: answer(TENSOR),  # noqa: F821
    lambda self, stream=None, /: answer(TENSOR),  # noqa: F821
)
CLASSES = {}


def producer(takes, raising, device, interface, host_only, table, remembered):
    """Returns an object of a class with these members; `None` and `False` omit a member."""
    key = (takes, raising, device, interface, host_only, table)
    kind = CLASSES.get(key) if remembered else None
    if kind is None:
        kind = CLASSES[key] = made(*key)
    return kind()


def made(takes, raising, device, interface, host_only, table):
    """Creates a new class."""
    members = {}
    if raising:
        members["__dlpack__"] = RAISING
    elif takes is not None:
        # The last two are not callable, and state that there is no method.
        members["__dlpack__"] = (*TAKES, 3, None)[takes]
    if device:
        members["__dlpack_device__"] = lambda self: answer(DEVICE)  # noqa: F821
    if interface:
        members["__cuda_array_interface__"] = property(lambda self: answer(INTERFACE))  # noqa: F821
    if host_only:
        members["__array_interface__"] = {}
    if table is not None:
        members["__dlpack_c_exchange_api__"] = TABLES[table]  # noqa: F821
    return type("Producer", (), members)
