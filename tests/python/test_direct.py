"""Methods of immutable classes, which are called without an attribute lookup."""

import interop_demo
import native
import numpy as np
from capsules import Tensor

describe = interop_demo.describe


def test_what_only_looks_like_a_method_is_looked_up_each_time():
    """Only a method declared in C is the same function for all objects of a class."""
    pretender = native.required("pretender")
    asked = []

    def answer(which):
        asked.append(which)
        return Tensor().capsule()

    for which in (0, 1, 0):
        assert describe(pretender.Array(answer, which))["protocol"] == "dlpack_versioned"
    assert asked == [1, 2, 1]
    assert describe(np.ones(3))["shape"] == (3,)
