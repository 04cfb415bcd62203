"""Tells PyTorch what only Python can tell: the shapes of results, and the gradients.

The library runs this with its `path`, a `namespace`, and the descriptions of the `operators` there (`mod.rs`).
"""

import ctypes

import torch
from torch.utils import checkpoint

note_error = ctypes.PyDLL(path).interop_note_error
note_error.argtypes, note_error.restype = [ctypes.c_char_p], ctypes.c_bool
# By an exception of its own a checkpoint ends its recomputation when the last tensor is saved.
RecomputationEnded = getattr(checkpoint, "_StopRecomputationError", ())
registered = torch.library.Library(namespace, "FRAGMENT")
names = {"_operators": getattr(torch.ops, namespace), "_library": torch, "_max": torch.sym_max, "_min": torch.sym_min}
# What is registered goes when this object goes, so the registered functions keep it.
names["_registered"] = registered


def function(parameters, text):
    return eval(f"lambda {', '.join(parameters)}: {text}", names)


class GradientKernels:
    """Registers kernels whose exceptions do not pass through the C functions that call them.

    There their class is lost, and before PyTorch 2.13 they are written to stderr. The text is noted for the caller instead.
    """

    def impl(self, name, kernel, *arguments, **options):
        def run(keyset, *values, **named):
            try:
                return kernel(keyset, *values, **named)
            except RecomputationEnded:
                # It goes on instead.
                with torch.no_grad():
                    return kernel(keyset, *values, **named)
            except Exception as error:
                if not note_error(str(error).encode()):
                    raise
                return torch.empty(0)

        registered.impl(name, run, *arguments, **options)


def register_gradients(name, parameters, gradients):
    all_names = [of for of, _ in parameters]
    used = {use for _, _, uses in gradients for use in uses}
    is_saved = {of: kind.startswith("Tensor") and not kind.endswith("[]") for of, kind in [*parameters, ("result", "Tensor")]}
    saved = [of for of in is_saved if of in used and is_saved[of]]
    kept = [of for of in is_saved if of in used and not is_saved[of]]
    rules = {of: function([*saved, *kept, "gradient"], text) for of, text, _ in gradients}

    def setup_context(ctx, inputs, output):
        values = dict(zip(all_names, inputs)) | {"result": output}
        ctx.save_for_backward(*[values.get(of) for of in saved])
        ctx.kept = [values.get(of) for of in kept]

    def backward(ctx, gradient):
        values = [*ctx.saved_tensors, *ctx.kept, gradient]
        needed = zip(all_names, ctx.needs_input_grad)
        return tuple(rules[of](*values) if is_needed and of in rules else None for of, is_needed in needed)

    torch.library.register_autograd(f"{namespace}::_{name}_grad", backward, setup_context=setup_context, lib=GradientKernels())


def register_batches(name, parameters, is_elementwise):
    """Tells `torch.vmap` how to call an operator, which otherwise warns and does the same as here in a loop."""
    operator = getattr(names["_operators"], name)
    is_tensor = [kind.startswith("Tensor") for _, kind in parameters]

    def batched(info, in_dims, *arguments):
        items = []
        for value, dim, is_array in zip(arguments, in_dims, is_tensor):
            if is_array and value is not None:
                value = value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
            items.append(value)
        if is_elementwise:
            return operator(*items), 0
        each = zip(*[value if is_array and value is not None else [value] * info.batch_size for value, is_array in zip(items, is_tensor)])
        return torch.stack([operator(*item) for item in each]), 0

    torch.library.register_vmap(f"{namespace}::{name}", batched, lib=registered)


def register(name, parameters, returns, is_elementwise, gradients, like=None, shape=None, dtype=None, into=None):
    if not any(kind.startswith("Tensor") for _, kind in parameters):
        return
    result = None
    if returns == "()":
        result = "None"
    elif returns == "Tensor" and like:
        result = f"{like}.new_empty({shape or like + '.shape'}{', dtype=' + dtype if dtype else ''})"
    for of in (f"_{name}", f"_{name}_grad") if gradients else (name,):
        if result:
            torch.library.register_fake(f"{namespace}::{of}", function([of for of, _ in parameters], result), lib=registered)
    if returns == "Tensor" and not any(kind.startswith("Tensor[") for _, kind in parameters):
        register_batches(name, parameters, is_elementwise)
    if gradients:
        register_gradients(name, parameters, gradients)
        # The kernels of these devices look for gradients themselves.
        for key in ("AutogradCPU", "AutogradCUDA"):
            registered.impl(name, torch.library.fallthrough_kernel, key)


for operator in operators:
    register(**operator)
