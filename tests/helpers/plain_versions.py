"""The plain versions of cells (plain_cells/part*.py), found by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

CELLS: dict[str, Callable[..., Any]] = {}  # function(params, inputs, states, constants) -> outputs, final states
TORCH: list[str] = []  # those that run on torch's tensors too

for _path in sorted((Path(__file__).resolve().parent / "plain_cells").glob("part*.py")):
    _origin = spec_from_file_location(_path.stem, _path)
    assert _origin is not None and _origin.loader is not None
    _module = module_from_spec(_origin)
    _origin.loader.exec_module(_module)
    assert not set(CELLS) & set(_module.CELLS), _path
    CELLS |= _module.CELLS
    TORCH += getattr(_module, "TORCH", ())


def domain(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What takes the place of drawn inputs, where those of a cell may not be any numbers."""
    match name:
        case "gru_d" | "rits":
            return {"m": (inputs["m"] > 0).astype(float)}
        case "lif_current" | "adex" | "plif" | "nonlinear_lif" | "lif_synaptic" | "lif_alpha":
            return {"x": 8 * inputs["x"]}  # so that there are spikes
        case "ltc" | "ode_rnn" | "gru_ode" | "ode_lstm" | "cfc_mixed":
            return {"dt": np.abs(inputs["dt"]) + 0.5}
        case "phased_lstm":
            steps = np.arange(len(inputs["time"]))[:, None]
            return {"time": np.abs(inputs["time"]) + 100 * steps}
    return {}
