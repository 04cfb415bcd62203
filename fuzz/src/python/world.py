"""The Python half of the target: classes of every kind that producers have, whose methods ask Rust what to answer."""


class Own(Exception):
    """An error of a producer's own."""


class OwnBuffer(BufferError):
    """The same, of a class that the standards name."""


class OwnType(TypeError):
    """The same."""


class OwnKeyword(TypeError):
    """The same, as if the call had an argument too many."""


class OwnAttribute(AttributeError):
    """The same, as if there were no such attribute."""


class OwnInterrupt(BaseException):
    """No error, but an end."""


OWN = (Own, OwnBuffer, OwnType, OwnKeyword, OwnAttribute, OwnInterrupt)


def raised(which):
    """An error of its own."""
    return OWN[which]("unexpected keyword argument" if OWN[which] is OwnKeyword else "the producer's own")


class Foreign:
    """A value that fits nowhere."""


class Index:
    """A number in all but type, or none."""

    def __init__(self, answer):
        self.answer = answer

    def __index__(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Stream:
    """A stream of another library, as far as the answer goes."""

    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Dict(dict):
    """A dict with methods of its own."""

    def __contains__(self, key):
        return super().__contains__(key)


TENSOR, DEVICE, INTERFACE = range(3)
RAISING = property(lambda self: answer(TENSOR))  # noqa: F821
# The ways to take arguments, in the order of `Takes`.
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
    """An object of a class with these members, where `None` and `False` are none."""
    key = (takes, raising, device, interface, host_only, table)
    kind = CLASSES.get(key) if remembered else None
    if kind is None:
        kind = CLASSES[key] = made(*key)
    return kind()


def made(takes, raising, device, interface, host_only, table):
    """A new class."""
    members = {}
    if raising:
        members["__dlpack__"] = RAISING
    elif takes is not None:
        # What cannot be called, and what says that there is none.
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
