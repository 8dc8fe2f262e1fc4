"""The equations of a recurrent cell, written in YAML, as fast forward and backward kernels.

What people call, T steps, B rows, D features, H units:

    spec   = rnnspec.load("lstm")                       # a cell's name, or the path of a YAML file
    spec   = rnnspec.loads(text, phi="relu")            # a text; choices and constants by keyword
    spec.show(), spec.to_latex(), spec.to_svg()         # equations and the derived backward pass

    kernel = rnnspec.compile(spec, dtype="float32", threads=None)
    params = kernel.init(D=64, H=128, seed=0)           # {"W_i": array, ...}
    run    = kernel.forward(params, {"x": x})           # x [T, B, D]; run.outputs["h"] [T, B, H]
    grad   = kernel.backward(run, {"h": dh})            # grad.params, grad.inputs, grad.states
    out    = kernel.infer(params, {"x": x})             # without a tape
    state  = kernel.step(params, {"x": x[0]}, state)    # one step; kernel.stream for many

    layer  = rnnspec.Recurrent("lstm", input_size=64, hidden_size=128)   # as torch.nn.LSTM
    y, state = layer(x)                                 # layer.backward(dy) fills layer.grads

    rnnspec.diff(a, b)                                  # whether two cells are one function
    rnnspec.transform.layer_norm(spec)                  # cells from cells
    rnnspec.spec_names()                                # the cells that come with rnnspec

`rnnspec.check` proves cells and writes conformance packs, `rnnspec.train` trains them,
`rnnspec.probe` looks at their gradients, `rnnspec.dynamics` at where they stay and how neighbours
part, `rnnspec.interop.torch` and `rnnspec.interop.onnx` are for PyTorch and ONNX; each is imported
by its name. The command line is `rnnspec --help`.

Names are loaded when they are first used: `import rnnspec` imports neither SymPy nor Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rnnspec.language import views as _views
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec import train, transform
    from rnnspec.compare.comparison import Comparison
    from rnnspec.compare.verdict import diff
    from rnnspec.engine import noise
    from rnnspec.engine.compile import compile
    from rnnspec.engine.kernel import Kernel
    from rnnspec.engine.loaded import loaded, unload
    from rnnspec.engine.results import Gradients, Inference, Run
    from rnnspec.errors import BackendUnavailable, DtypeError, RnnspecError, ShapeError, SpecError, UnsupportedError
    from rnnspec.language.hints import SpecHint
    from rnnspec.language.load import load, loads, spec_names
    from rnnspec.language.spec import Spec
    from rnnspec.layers.recurrent import Recurrent

__version__ = "0.1.0"

_HOME = {
    "load": "language.load",
    "loads": "language.load",
    "spec_names": "language.load",
    "Spec": "language.spec",
    "SpecHint": "language.hints",
    "loaded": "engine.loaded",
    "unload": "engine.loaded",
    "compile": "engine.compile",
    "Kernel": "engine.kernel",
    "Run": "engine.results",
    "Gradients": "engine.results",
    "Inference": "engine.results",
    "Recurrent": "layers.recurrent",
    "diff": "compare.verdict",
    "Comparison": "compare.comparison",
    "RnnspecError": "errors",
    "SpecError": "errors",
    "ShapeError": "errors",
    "DtypeError": "errors",
    "UnsupportedError": "errors",
    "BackendUnavailable": "errors",
}
_MODULES = {"noise": "engine.noise", "train": "train", "transform": "transform"}
__all__ = [*_HOME, *_MODULES]


_views.place(lambda: import_module("rnnspec.show.views"))


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _MODULES:
        raise AttributeError(f"module 'rnnspec' has no attribute {name!r}")
    with making:
        if name in _MODULES:
            return import_module(f"rnnspec.{_MODULES[name]}")
        value = getattr(import_module(f"rnnspec.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
