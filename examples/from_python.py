"""Shares arrays between a Rust extension, PyTorch, CuPy and JAX without copies.

It needs a GPU and these libraries: `cargo xtask python`, then `target/venv/bin/python examples/from_python.py`.
"""

import sys


def main():
    import interop_demo
    import torch

    if not torch.cuda.is_available():
        print("skipped: needs a GPU")
        return 0
    import cupy
    import jax.numpy as jnp

    # From the libraries to Rust: our kernel works in their memory, on the stream that they use.
    tensor = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    interop_demo.scale_(tensor, 2.0)
    print("torch after our kernel: sum", tensor.sum().item())
    array = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    interop_demo.scale_(array[:, ::2], 10.0)
    print("cupy, every other column: sum", float(array.sum()))
    print("jax, summed where it lies:", interop_demo.checksum(jnp.arange(12.0)))

    # From Rust to the libraries, in place.
    ours = interop_demo.Array.full((3, 4), 1.0, "<f4", device="cuda", ordinal=0)
    address = interop_demo.describe(ours)["data"]
    in_torch, in_cupy = torch.from_dlpack(ours), cupy.from_dlpack(ours)
    in_torch += 1
    torch.cuda.synchronize()
    in_cupy *= 3
    cupy.cuda.get_current_stream().synchronize()
    print("ours after torch and cupy:", interop_demo.checksum(ours), "of 72")
    print("the same memory:", in_torch.data_ptr() == in_cupy.data.ptr == address)
    print("and in jax:", float(jnp.from_dlpack(ours).sum()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
