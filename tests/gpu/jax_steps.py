"""Measures the steps of an import from JAX on a GPU.

    PYTHONPATH=tests/gpu:tests/python python tests/gpu/jax_steps.py

Each figure is the median of interleaved rounds, in nanoseconds. Each step adds one thing: `floor` is the bare method
with a stream; `version` also passes a version, as we do; the rest is our code. On the simulated driver such an import
makes two driver calls, and runs as many of our instructions as an import from CuPy. The import of our own array shows
what the same instructions cost after JAX's method, which leaves the caches of the processor full of its own code.
"""

import statistics
import sys

import driver
import interop_demo
import native
import numpy as np

ROUNDS, TURNS = 41, 2000


def counted(jax, array):
    """The number of calls for the device and for the capsule in one import, after the class has been cached."""
    kind, asked = type(array), []
    before = {name: getattr(kind, name) for name in ("__dlpack__", "__dlpack_device__")}

    def noting(name):
        def method(self, *arguments, **wishes):
            asked.append((name, *sorted(wishes)))
            return before[name](self, *arguments, **wishes)

        return method

    for name in before:
        setattr(kind, name, noting(name))
    try:
        interop_demo.is_square(array)
        asked.clear()
        interop_demo.is_square(array)
    finally:
        for name, method in before.items():
            setattr(kind, name, method)
    return asked


def main():
    if why := native.missing():
        sys.exit(f"the floor is compiled where it is measured: {why}")
    import jax

    floor = native.load("gpu_floor")
    interop_demo.Array.full((1,), 0.0, device="cuda")
    array = jax.numpy.asarray(np.ones((4, 4), np.float32)).block_until_ready()
    version = (1, 3)
    own = interop_demo.Array.full((4, 4), 0.0, device="cuda")

    def after_jax(_):
        array.__dlpack__(stream=1, max_version=version)
        interop_demo.is_square(own)

    steps = {
        "floor: the method, with a stream": lambda: floor.methods(array, "__dlpack__", TURNS, ("stream",), 1),
        "a call of Python's that does nothing": lambda: floor.calls(lambda array: None, array, TURNS),
        "the method from Python": lambda: floor.calls(lambda array: array.__dlpack__(stream=1), array, TURNS),
        "the same, with a version": lambda: floor.calls(
            lambda array: array.__dlpack__(stream=1, max_version=version), array, TURNS
        ),
        "the same, for no stream": lambda: floor.calls(lambda array: array.__dlpack__(max_version=version), array, TURNS),
        "the device": lambda: floor.calls(lambda array: array.__dlpack_device__(), array, TURNS),
        "an import of our own array": lambda: floor.calls(interop_demo.is_square, own, TURNS),
        "the method with a version, then that import": lambda: floor.calls(after_jax, own, TURNS),
        "ours, believed": lambda: floor.calls(interop_demo.is_square_trusted, array, TURNS),
        "ours": lambda: floor.calls(interop_demo.is_square, array, TURNS),
    }
    for label, releases in {"unordered": True, "default": False}.items():
        interop_demo.set_unordered(releases=releases)
        rounds = {name: [] for name in steps}
        for _ in range(ROUNDS):
            for name, run in steps.items():
                rounds[name].append(run())
            interop_demo.finish_releases()
            driver.synchronize()
        print(f"\nreleases: {label}")
        for name, times in rounds.items():
            print(f"{name:<46}{statistics.median(times):>8.0f}")
    try:
        print("\nasked by one import:", counted(jax, array))
    except (AttributeError, TypeError) as error:  # a class may not let its methods be replaced
        print("\nwhat an import asks cannot be seen:", error)


if __name__ == "__main__":
    main()
