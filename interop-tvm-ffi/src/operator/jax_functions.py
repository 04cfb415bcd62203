"""Makes functions for `jax.jit`, `vmap` and `grad`, in the namespace of the module that asks for them.

The library runs this with its `path`, a `namespace`, the descriptions of the `operators` there (`mod.rs`), and the dict of a
`module`.
"""

import types

import jax
import jax_tvm_ffi
import numpy
import tvm_ffi

functions = tvm_ffi.load_module(path)
own = types.SimpleNamespace()
names = {"_operators": own, "_library": jax.numpy, "_max": max, "_min": min, "_result": jax.ShapeDtypeStruct}
described = {operator["name"]: operator for operator in operators}
CONSTANTS = {"float": numpy.float64, "int": numpy.int64, "bool": bool, "str": str}


def function(parameters, text, **more):
    return eval(f"lambda {', '.join(parameters)}: {text}", names | more)


def register_target(target, name, parameters, is_in_place):
    """Tells how the arguments of an exported function follow from the operands, results and attributes of a call."""
    arguments = []
    for of, kind in parameters:
        argument = f"attrs.{of}" if not kind.startswith("Tensor") else "rets" if "!" in kind else "args"
        if is_in_place or arguments[-1:] != [argument]:
            arguments.append(argument)
    for platform in ("cpu", "gpu"):
        jax_tvm_ffi.register_ffi_target(target, functions[name], arg_spec=arguments, platform=platform)


def caller(name, target, parameters, result, **options):
    """A function with this name of the parameters that calls a target."""
    all_names = [of for of, _ in parameters]
    result = function(all_names, result)

    def call(*arguments):
        # A number of Python is an array without axes, as for functions of JAX.
        arguments = [jax.numpy.asarray(value) if kind.startswith("Tensor") else value for value, (_, kind) in zip(arguments, parameters)]
        operands = [value for value, (_, kind) in zip(arguments, parameters) if kind.startswith("Tensor")]
        values = {of: CONSTANTS[kind](value) for value, (of, kind) in zip(arguments, parameters) if kind in CONSTANTS}
        return jax.ffi.ffi_call(target, result(*arguments), **options)(*operands, **values)

    named = function(all_names, f"_call({', '.join(all_names)})", _call=call)
    named.__name__ = named.__qualname__ = name
    return named


def with_gradients(call, parameters, gradients):
    all_names = [of for of, _ in parameters]
    tensors = [of for of, kind in parameters if kind.startswith("Tensor")]
    constants = [of for of in all_names if of not in tensors]
    used = {use for _, _, uses in gradients for use in uses}
    saved = [of for of in (*tensors, "result") if of in used]
    rules = {of: function([*constants, *saved, "gradient"], text) for of, text, _ in gradients}
    call = jax.custom_vjp(call, nondiff_argnums=tuple(all_names.index(of) for of in constants))

    def forward(*arguments):
        result = call(*arguments)
        values = dict(zip(all_names, arguments)) | {"result": result}
        return result, [values[of] for of in saved]

    def backward(*arguments):
        *values, kept, gradient = arguments
        return tuple(rules[of](*values, *kept, gradient) if of in rules else None for of in tensors)

    call.defvjp(forward, backward)
    return call


def add(name, parameters, returns, is_elementwise, gradients, like=None, shape=None, dtype=None, into=None):
    tensors = [kind for _, kind in parameters if kind.startswith("Tensor")]
    if any(kind not in CONSTANTS and kind not in ("Tensor", "Tensor(a!)") for _, kind in parameters):
        return
    target, options = f"{namespace}.{name}", {"vmap_method": "broadcast_all" if is_elementwise else "sequential"}
    if like and into:
        register_target(target, into, described[into]["parameters"], False)
        result = f"_result({shape or like + '.shape'}, {dtype or like + '.dtype'})"
        call = caller(name, target, parameters, result, **options)
        module[name] = with_gradients(call, parameters, gradients) if gradients else call
        setattr(own, name, module[name])
    elif tensors == ["Tensor(a!)"] and returns == "()" and name.endswith("_") and name[:-1] not in described:
        # XLA copies the array unless nothing else uses it.
        register_target(target, name, parameters, True)
        (array,) = [of for of, kind in parameters if kind == "Tensor(a!)"]
        result = f"_result({array}.shape, {array}.dtype)"
        module[name[:-1]] = caller(name[:-1], target, parameters, result, input_output_aliases={0: 0}, **options)


for operator in operators:
    add(**operator)
