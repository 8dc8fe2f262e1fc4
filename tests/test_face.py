"""What people meet first: help, signatures, what objects show of themselves, what the wheel has."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import rnnspec
from rnnspec.layers.description import describe_layers
from rnnspec.layers.stack import Stack

TOP = Path(__file__).resolve().parents[1]
SIZES = {"D": 3, "H": 4}


# --- signatures

MODULES = ("rnnspec", "rnnspec.check", "rnnspec.train", "rnnspec.transform", "rnnspec.layers.stack")
OPEN = {  # of which every cell has its own
    "settings": "choices and constants",
    "sizes": "sizes",
    **dict.fromkeys(("states", "inputs", "matrices"), "what a transform acts on"),
}
FIELDS = {"Task.config": "the fields of TrainingConfig, which raises TypeError for others"}


def callables() -> Iterator[tuple[str, Callable[..., object]]]:
    """Public functions, and public methods of public classes, of the modules above."""
    for module in map(importlib.import_module, MODULES):
        for name in getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]):
            value = getattr(module, name)
            protocol = getattr(value, "_is_protocol", False)
            if protocol or not callable(value) or not getattr(value, "__module__", "").startswith("rnnspec"):
                continue
            yield f"{module.__name__}.{name}", value
            for method in vars(value) if inspect.isclass(value) else ():
                if method[0] != "_" and inspect.isfunction(getattr(value, method)):
                    yield f"{module.__name__}.{name}.{method}", getattr(value, method)


def test_keywords_are_said():
    """Only what every cell has names of its own for is taken as `**settings` or `**rates`."""
    seen = 0
    for name, value in callables():
        try:
            parameters = inspect.signature(value).parameters.values()
        except ValueError:  # an exception's, which NumPy or Python made
            continue
        seen += 1
        for p in parameters:
            if p.kind is p.VAR_KEYWORD and not any(name.endswith(field) for field in FIELDS):
                assert p.name in OPEN and p.annotation != "Any", f"{name} takes **{p.name}: {p.annotation}"
    assert seen > 50


def keywords(function: Callable[..., object], *but: str) -> dict[str, object]:
    return {n: p.default for n, p in inspect.signature(function).parameters.items() if n not in (*but, "self")}


def test_layers_of_all_kinds_take_the_same_keywords():
    known = keywords(describe_layers)
    assert known == keywords(Stack) == keywords(rnnspec.Recurrent, "batch_first", "seed")


def test_torchs_layers_take_the_same_keywords():
    pytest.importorskip("torch")
    from rnnspec.interop.torch import Recurrent, describe

    known = keywords(describe_layers, "dtype", "threads")
    assert known == keywords(describe, "nonlinearity")
    assert known == keywords(Recurrent, "nonlinearity", "batch_first", "device", "dtype", "threads")


def test_a_keyword_that_no_cell_has_is_refused_by_name():
    with pytest.raises(rnnspec.SpecError, match="bidirectoinal"):
        rnnspec.Recurrent("lstm", 3, 4, bidirectoinal=True)


# --- help


def test_help_begins_with_what_people_call():
    text = pydoc.render_doc(rnnspec, renderer=pydoc.plaintext)
    start = text[: text.index("PACKAGE CONTENTS")]
    for name in (
        "load(",
        "loads(",
        "compile(",
        "kernel.forward(",
        "kernel.backward(",
        "Recurrent(",
        "diff(",
        "transform",
    ):
        assert name in start, name
    assert "views" not in dir(rnnspec)


def test_the_example_of_help_runs():
    """Every line of the docstring's example, in its order."""
    lines = [line[4:] for line in (rnnspec.__doc__ or "").split("\n") if line.startswith("    ")]
    x = np.ones((5, 2, 64), np.float32)
    given = {"x": x, "dh": np.ones((5, 2, 128), np.float32), "dy": None, "state": None, "rnnspec": rnnspec}
    given["text"] = (TOP / "specs" / "rnn.yaml").read_text()
    for line in lines:
        if line.startswith("rnnspec.diff"):
            given |= {"a": given["spec"], "b": rnnspec.load("rnn", phi="relu")}
        if "y, state" in line:
            x = given["x"] = np.ones((5, 2, 64), np.float32)
        exec(line, given)  # the example of our own docstring
    assert given["y"].shape == (5, 2, 128)


# --- what objects show of themselves


def test_a_spec_is_five_lines():
    for name in ("lstm", "rhn", "lif_current", "mclstm"):
        lines = repr(rnnspec.load(name)).split("\n")
        assert len(lines) == 5 and all(len(line) <= 100 for line in lines[:4]), lines
    assert repr(rnnspec.load("lstm")).startswith(
        "Spec(lstm: Long short-term memory with forget gate\n  inputs: x; states: h, c;"
    )


def test_control_characters_of_a_spec_are_shown_as_text():
    """A spec's text has none, but its file's name may."""
    spec = replace(rnnspec.load("rnn"), file="\x1b[31m.yaml")
    assert repr(spec).endswith("\n  \\u001b[31m.yaml)")


def test_runs_are_without_their_numbers():
    kernel = rnnspec.compile("lstm")
    params, x = kernel.init(D=3, H=4), np.full((5, 2, 3), 0.123, np.float32)
    run = kernel.forward(params, {"x": x})
    layer = rnnspec.Recurrent("lstm", 3, 4, num_layers=2, seed=0)
    stack = layer.stack
    shown = [run, kernel.backward(run, {"h": run.outputs["h"]}), kernel.infer(params, {"x": x})]
    shown += [kernel.record(params, {"x": x}), kernel.pack(params), kernel.stream(params, rows=2)]
    shown += [kernel.step(params, {"x": x[0]}), next(layer.windows(x, 2)), stack.pack(layer.params), layer]
    shown += [
        stack.forward(layer.params, x),
        stack.backward(stack.forward(layer.params, x), np.ones((5, 2, 4), np.float32)),
    ]
    for value in shown:
        text = repr(value)
        assert "array(" not in text and "0.1" not in text and "\n" not in text and len(text) < 700, text
    assert repr(run) == (
        "Run(outputs={h: float32 [5, 2, 4]}, final={h: float32 [2, 4], c: float32 [2, 4]}, sizes={H: 4, D: 3},"
        " steps=5, rows=2)"
    )


def test_a_spec_shows_itself(capsys):
    from rnnspec.show.page import show

    spec = rnnspec.load("lstm")
    spec.show()
    assert capsys.readouterr().out == show(spec) + "\n"
    spec.show(stage="graph")
    assert capsys.readouterr().out == spec.to_text("graph") + "\n" == show(spec, "graph") + "\n"
    assert spec.to_latex(part="document", constants="numbers").endswith("\\end{document}")
    assert spec._repr_latex_() == spec.to_latex("forward")
    for view in ("step", "backward", "unrolled"):
        assert ElementTree.fromstring(spec.to_svg(view=view)).tag.endswith("svg")
    for wrong in (spec.to_svg, spec.to_latex, spec.to_text):
        with pytest.raises(ValueError, match="choose"):
            wrong("sideways")


def test_views_are_found_whatever_is_imported_first():
    """And loading alone imports none of them."""
    code = (
        "import sys\nfrom rnnspec.language.load import load\nspec = load('lstm')\n"
        "assert not [m for m in sys.modules if m.startswith('rnnspec.show')]\nprint(len(spec.to_svg()) > 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


# --- the wheel


def test_the_wheel_has_all_that_is_needed(tmp_path):
    """The types' marker, the cells, the citation and the text to train on among them."""
    pytest.importorskip("hatchling")
    code = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        meta = next(n for n in names if n.endswith("METADATA"))
        about = wheel.read(meta).decode()
    ours = [p.relative_to(TOP).as_posix() for p in (TOP / "rnnspec").rglob("*") if p.is_file()]
    assert names >= {n for n in ours if "__pycache__" not in n}
    assert names >= {"rnnspec/py.typed", "rnnspec/CITATION.cff"}
    assert names >= {f"rnnspec/specs/{name}.yaml" for name in rnnspec.spec_names()}
    for minor in range(10, 15):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in about
