"""An imported kernel, and where in its table things stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnspec.backends.cpu.native import Kernel
from rnnspec.backends.cpu.runtime.addresses import Runtime, runtime


@dataclass(frozen=True)
class Code:
    """An imported kernel."""

    module: Kernel
    dtype: np.dtype
    runtime: Runtime
    layout: Mapping[str, Any]
    inputs: Mapping[str, int]  # where in the table an array's address and its strides of t, b, d stand
    outputs: Mapping[str, int]
    chunks: tuple[int, int]  # and where the number of chunks and the address of their table stand


def code(module: Kernel, dtype: np.dtype) -> Code:
    index = {f: i for i, f in enumerate(module.LAYOUT["fields"])}
    inputs, outputs = (
        {name: index[f"{kind} {name}"] for name in module.LAYOUT[f"{kind}s"]} for kind in ("input", "output")
    )
    return Code(
        module, dtype, runtime(dtype.name), module.LAYOUT, inputs, outputs, (index["chunks"], index["chunk_table"])
    )
