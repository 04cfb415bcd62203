"""The functions as operators of PyTorch: `torch.ops.hello_functions.scaled(x, 2.0)`."""

import torch

import hello_functions

library = torch.library.Library("hello_functions", "DEF")


def scaled(x, factor):
    # A tensor of PyTorch's own allocation, which `mode="reduce-overhead"` needs for outputs of a graph.
    result = x.new_empty(x.shape)
    hello_functions.scale_into(x, result, factor)
    return result


def scaled_backward(ctx, gradient):
    return torch.ops.hello_functions.scaled(gradient, ctx.factor), None


def keep_factor(ctx, inputs, output):
    ctx.factor = inputs[1]


library.define("scaled(Tensor x, float factor) -> Tensor")
for device in ("CPU", "CUDA"):
    library.impl("scaled", scaled, device)
torch.library.register_fake("hello_functions::scaled", lambda x, factor: x.new_empty(x.shape), lib=library)
torch.library.register_autograd("hello_functions::scaled", scaled_backward, setup_context=keep_factor, lib=library)


def scale_(x, factor):
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("`x`: found a tensor that requires a gradient; scale_ has none: call it under torch.no_grad()")
    hello_functions.scale_(x, factor)
    torch.autograd.graph.increment_version(x)


library.define("scale_(Tensor(a!) x, float factor) -> ()")
for device in ("CPU", "CUDA"):
    library.impl("scale_", scale_, device)
torch.library.register_fake("hello_functions::scale_", lambda x, factor: None, lib=library)
