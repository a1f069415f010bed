"""Triton's interpreter in a process that runs vLLM: what it lacks is added, what it repeats is left out.

The kernels are vLLM's own source, run program by program. Added, as compiled code has them:
- `tl.range` yields scalars of Triton; the interpreter's own yields Python integers, on which kernels call methods
  that only scalars have.
- `libdevice.log1p` is NumPy's, in the dtype of its argument; the interpreter has none.

Left out, which changes no result and makes it three times faster:
- the assertion, at each integer operation, that nothing overflows: compiled kernels have it in debug builds only;
- setting the language up anew at each call of a device function: here once a launch for each module;
- making the same types anew for each value, and asking how two of the same type are promoted.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np


def start() -> None:
    """Switch the interpreter on and register a backend "cpu" that says it is active, before vLLM is imported.

    vLLM's CPU build uses Triton where such a backend is found; interpreted kernels never reach it.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    import triton.runtime.interpreter as interpreter
    from triton.backends import backends
    from triton.language.extra import libdevice

    backends.setdefault("cpu", SimpleNamespace(compiler=None, driver=SimpleNamespace(is_active=lambda: True)))
    builder, set_up = interpreter.interpreter_builder, interpreter._patch_lang
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    ready: set[str] = set()

    def launch(kernel: Any) -> Any:
        ready.clear()
        ready.add(kernel.__module__)
        scope = set_up(kernel)
        scope.set_attr(tl, "range", _range)
        return scope

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ not in ready:
            ready.add(self.fn.__module__)
            set_up(self.fn)
            tl.range = _range
        return self.rewrite()(*args, **kwargs)

    interpreter._patch_lang = launch
    interpreter.InterpretedFunction.__call__ = call
    libdevice.log1p = _log1p
    _remember_types()


def _remember_types() -> None:
    import triton.language as tl
    import triton.runtime.interpreter as interpreter
    from triton.language.semantic import TritonSemantic

    make_dtype, make_block, promote = (
        interpreter._get_np_dtype,
        tl.block_type.with_element_ty,
        TritonSemantic.binary_op_type_checking_impl,
    )
    dtypes: dict[str, Any] = {}
    blocks: dict[tuple[Any, ...], Any] = {}
    shapes: dict[tuple[int, ...], tuple[Any, tuple[Any, ...]]] = {}
    plain = {str(dtype) for dtype in (tl.int1, tl.int32, tl.uint32, tl.int64, tl.uint64, tl.float32, tl.float64)}

    def dtype_of(type_: Any) -> Any:
        if isinstance(type_, tl.pointer_type):
            return make_dtype(type_)
        if type_.name not in dtypes:
            dtypes[type_.name] = make_dtype(type_)
        return dtypes[type_.name]

    def block_of(self: Any, element: Any) -> Any:
        if isinstance(element, tl.pointer_type):
            return make_block(self, element)
        key = (element.name, *self.shape)
        if key not in blocks:
            blocks[key] = make_block(self, element)
        return blocks[key]

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if shape not in shapes:
            shapes[shape] = tl.constexpr(math.prod(shape)), tuple(tl.constexpr(size) for size in shape)
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = shapes[shape]

    def promoted(self: Any, left: Any, right: Any, *args: Any, **kwargs: Any) -> Any:
        alike = isinstance(left, tl.tensor) and isinstance(right, tl.tensor) and left.type is right.type
        return (left, right) if alike and left.dtype.name in plain else promote(self, left, right, *args, **kwargs)

    interpreter._get_np_dtype = dtype_of
    tl.block_type.with_element_ty = block_of
    tl.tensor.__init__ = make_tensor
    TritonSemantic.binary_op_type_checking_impl = promoted


def scalar(value: Any, dtype: Any) -> Any:
    """A value as the scalar that a kernel computes with."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    return tl.tensor(TensorHandle(np.array([value], dtype=_get_np_dtype(dtype)), dtype), dtype)


def _range(first: Any, last: Any = None, step: Any = 1, **hints: Any) -> Iterator[Any]:
    """`tl.range`: its arguments are integers or scalars, its hints are for the compiler."""
    import triton.language as tl

    bounds = (0, first) if last is None else (first, last)
    for value in range(int(bounds[0]), int(bounds[1]), int(step)):
        yield scalar(value, tl.int32)


def _log1p(value: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return tl.tensor(TensorHandle(np.log1p(value.handle.data), value.handle.dtype), value.type)
