"""Functions of a text in the front end's language, compiled and called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from rnnspec.backends.cpu import machine
from rnnspec.backends.cpu.frontend import lower


def compiled(text: str, names: Mapping[str, Any], function: str) -> Callable[..., None]:
    """A function of integers and addresses; it is in memory while somebody holds it."""
    content = machine.object_file([lower(text, names, [function])], [function])
    code = machine.load(function, content, [function])

    def call(*arguments: int) -> None:
        kinds = [ctypes.c_int64] * len(arguments)
        ctypes.CFUNCTYPE(None, *kinds)(code.addresses[0])(*map(int, arguments))

    return call
