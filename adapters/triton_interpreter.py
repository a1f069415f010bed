"""Running Triton kernels on a CPU: Triton's own interpreter, with the repetitions taken out of it.

The kernel's source is what runs, one program after the other. Two habits of the interpreter make that about
three times slower than it has to be, and are left out here:
- every integer operation asserts that it does not overflow. Compiled kernels have these asserts in debug
  builds only;
- `triton.language` is patched anew at each call of a device function, such as `tl.sum`, in each program. Here
  that is done once a launch for each module with such functions.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapters.interface import AdapterError


def interpret(package: str) -> None:
    """Have kernels interpreted that `package`, which is not yet imported, is about to define."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        if package in sys.modules:
            raise AdapterError(f"{package} was imported before its kernels could be interpreted: use a fresh process")
        os.environ["TRITON_INTERPRET"] = "1"


@contextmanager
def launch() -> Iterator[None]:
    """Around one launch of an interpreted kernel."""
    import triton.runtime.interpreter as interpreter

    builder, patch = interpreter.interpreter_builder, interpreter._patch_lang
    options, patched = builder.options, {}

    def patch_once(function: Any) -> Any:
        if function.__module__ not in patched:
            patched[function.__module__] = patch(function)
        return patched[function.__module__]

    builder.options = dataclasses.replace(options, sanitize_overflow=False)
    interpreter._patch_lang = patch_once
    try:
        yield
    finally:
        builder.options, interpreter._patch_lang = options, patch


@contextmanager
def launches() -> Iterator[None]:
    """Around code that launches several interpreted kernels."""
    from triton.runtime.interpreter import GridExecutor

    call = GridExecutor.__call__

    def one(self: Any, *arguments: Any, **named: Any) -> Any:
        with launch():
            return call(self, *arguments, **named)

    GridExecutor.__call__ = one
    try:
        yield
    finally:
        GridExecutor.__call__ = call
