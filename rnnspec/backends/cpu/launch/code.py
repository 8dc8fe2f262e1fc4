"""An imported kernel, and where in its table things stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnspec.backends.cpu.native import CpuText
from rnnspec.backends.cpu.runtime.addresses import Runtime, runtime


@dataclass(frozen=True)
class CpuCode:
    """An imported kernel."""

    text: CpuText
    dtype: np.dtype
    runtime: Runtime
    layout: Mapping[str, Any]
    inputs: Mapping[str, int]  # where in the table an array's address and its strides of t, b, d stand
    outputs: Mapping[str, int]
    chunks: tuple[int, int]  # and where the number of chunks and the address of their table stand
    columns: Mapping[int, int]  # by the place of an array's address, where it stands how far apart its columns lie


def code(text: CpuText, dtype: np.dtype) -> CpuCode:
    index = {f: i for i, f in enumerate(text.LAYOUT["fields"])}
    inputs, outputs = (
        {name: index[f"{kind} {name}"] for name in text.LAYOUT[f"{kind}s"]} for kind in ("input", "output")
    )
    columns = {i: index[f"{f}, column"] for f, i in index.items() if f"{f}, column" in index}
    return CpuCode(
        text, dtype, runtime(dtype.name), text.LAYOUT, inputs, outputs, (index["chunks"], index["chunk_table"]), columns
    )
