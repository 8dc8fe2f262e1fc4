"""Conformance packs: a cell with expected values, in a folder that needs nothing of rnnspec.

    write_pack(rnnspec.load("lstm"), Path("lstm_pack"))

The values are those of the reference at 50 digits, rounded to float64. What is given is exact in
float32, so that one set of values serves both dtypes.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.packs import adapters as pack_adapters
from rnnspec.check.packs import runner as pack_runner
from rnnspec.check.packs.cases import DIGITS, PLANS, CaseMaker
from rnnspec.check.sampling import NoSampleError
from rnnspec.check.tolerances import PACK
from rnnspec.errors import RnnspecError
from rnnspec.language.features import FEATURES
from rnnspec.language.rewrite import line, to_yaml
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Call, Ref, walk
from rnnspec.storage import guarded
from rnnspec.symbolic.graph import Graph

FORMAT = 1
TAGS = {
    "initial-states": "states given before the first step",
    "lengths": (
        "rows of a batch that take fewer steps than others: outputs past the end are 0, the final state is that of the"
        " row's last step"
    ),
    "empty-rows": "rows that take no step: the final state is the initial one",
    "several-inputs": "more than one input stream",
    "several-outputs": "more than one output",
    "matrix-states": "states that are matrices",
    "history": "values of earlier steps beside the states, carried under their own names",
    "step-number": "the number of the step, from 0",
    "once-per-sequence": "values computed from parameters once per sequence",
    "no-gradient": "inputs that never get a gradient",
    "fixed": "parameters that are constants: no gradient of them is expected",
    "noise": "values that are drawn in training: here they are given, among the inputs and parameters",
}


def write_pack(spec: Spec, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Writes the folder, whole or not at all, and returns what its pack.json says: its `left_out`
    has the cases that no well-conditioned point was found for. Raises RnnspecError if the folder
    exists, NoSampleError if no case can be made."""
    folder = Path(folder)
    if folder.exists():
        raise RnnspecError(f"'{folder}' exists already: give another folder with --out, or remove it.")
    maker = CaseMaker.of(spec, seed)
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise RnnspecError(f"there is no folder '{parent}' to write '{folder.name}' into.")
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    try:
        (work / "cases").mkdir()
        described, left_out = _write_cases(maker, work / "cases")
        about = _about(maker, seed, described, left_out)
        for name, text in (
            ("pack.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n"),
            ("spec.yaml", to_yaml(spec)),
            ("README.md", readme(about)),
            ("runner.py", inspect.getsource(pack_runner)),
            ("adapters.py", inspect.getsource(pack_adapters)),
        ):
            (work / name).write_text(text, encoding="utf-8")
        work.chmod(0o755)  # as any new folder; mkdtemp keeps it to the owner
        os.rename(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return about


def _write_cases(maker: CaseMaker, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Writes the files of the cases. Gives what is said of each, and the name of each that can't be
    made with the reason. Raises NoSampleError if that is all of them."""
    described: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    for plan in PLANS:
        try:
            case = maker.case(plan)
        except NoSampleError as error:
            left_out.append({"name": plan.name, "reason": str(error)})
            continue
        arrays: dict[str, Any] = maker.arrays(case)
        (folder / f"{plan.name}.json").write_text(_json(arrays), encoding="utf-8")
        np.savez(folder / f"{plan.name}.npz", **arrays)
        described.append(
            {
                "name": plan.name,
                "tags": list(plan.tags),
                "steps": case.steps,
                "rows": case.rows,
                "sizes": dict(case.sizes),
            }
        )
    if not described:
        raise NoSampleError(f"'{maker.spec.name}': no case can be made. {left_out[0]['name']}: {left_out[0]['reason']}")
    return described, left_out


def same_pack(spec: Spec, folder: Path, seed: int = 0) -> dict[str, Any] | None:
    """What pack.json says, if a folder holds the pack of this cell and seed, with these cases, and
    else None. Its numbers are not looked at: a folder is there as a whole or not at all."""
    try:
        about = guarded.values(folder / "pack.json", pack_runner.MOST)
        text = guarded.text(folder / "spec.yaml", pack_runner.MOST)
        names = [case["name"] for case in about["cases"]]
        out = {case["name"]: str(case["reason"]) for case in about.get("left_out", ())}
        found = (about["rnnspec_pack"], about["seed"], about["digits"], names, text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    wanted = (FORMAT, seed, DIGITS, [plan.name for plan in PLANS if plan.name not in out], to_yaml(spec))
    return about if names and found == wanted else None


def _about(maker: CaseMaker, seed: int, cases: list[dict[str, Any]], left_out: list[dict[str, str]]) -> dict[str, Any]:
    """What pack.json says."""
    spec = maker.spec
    return {
        "rnnspec_pack": FORMAT,
        "cell": spec.name,
        "title": spec.title,
        "source": spec.source.to_text(),
        "seed": seed,
        "digits": DIGITS,
        "inputs": {n: list(s) for n, s in spec.inputs.items()},
        "states": {s: list(maker.graph.shapes[n]) for s, n in maker.graph.states.items()},
        "parameters": {n: list(s) for n, s in spec.parameters.items()},
        "outputs": list(spec.outputs),
        "layouts": sorted(spec.layouts),
        "tags": tags(spec, maker.graph),
        "functions": functions(spec),
        "equations": [line(e) for e in spec.equations],
        "tolerances": {dtype: {"relative": value, "reason": reason} for dtype, (value, reason) in PACK.items()},
        "cases": cases,
        "left_out": left_out,
    }


def tags(spec: Spec, graph: Graph) -> list[str]:
    """What an engine must be able to do for any case of the pack."""
    reads = [n for e in spec.equations for n in walk(e.value) if isinstance(n, Ref)]
    found = {
        "several-inputs": len(spec.inputs) > 1,
        "several-outputs": len(spec.outputs) > 1,
        "history": set(graph.states) != set(spec.states),
        "matrix-states": any(len(shape) > 1 for shape in spec.states.values()),
        "once-per-sequence": any(not e.timed for e in spec.equations),
        "step-number": any(n.name == "t" for n in reads),
        "no-gradient": bool(set(spec.no_gradient) & set(spec.streams)),
        "fixed": bool(spec.fixed),
        "noise": bool(spec.noise),
    }
    return [tag for tag, there in found.items() if there]


def functions(spec: Spec) -> list[str]:
    """The functions that the equations call, those along features in capitals."""
    called = {n.function for e in spec.equations for n in walk(e.value) if isinstance(n, Call)}
    return sorted(name.upper() if name in FEATURES else name for name in called)


def _json(arrays: Mapping[str, Array]) -> str:
    """{"given": {...}, "expected": {...}}: nested lists, numbers with 17 digits."""
    groups: dict[str, list[str]] = {"given": [], "expected": []}
    for key, array in arrays.items():
        group, _, name = key.partition("/")
        groups[group].append(f"  {json.dumps(name)}: {_numbers(np.asarray(array))}")
    return (
        "{\n"
        + ",\n".join(f' "{group}": {{\n' + ",\n".join(lines) + "\n }" for group, lines in groups.items())
        + "\n}\n"
    )


def _numbers(array: Array) -> str:
    if array.ndim == 0:
        return str(int(array)) if array.dtype.kind in "iu" else format(float(array), ".17g")
    return f"[{', '.join(_numbers(np.asarray(a)) for a in array)}]"


def readme(about: Mapping[str, Any]) -> str:
    """The pack's README.md."""
    rows = [
        f"| {c['name']} | T = {c['steps']}, B = {c['rows']}, {', '.join(f'{n} = {v}' for n, v in c['sizes'].items())} |"
        f" {', '.join(c['tags'])} |"
        for c in about["cases"]
    ]
    used = [*about["tags"], *sorted({t for c in about["cases"] for t in c["tags"]})]
    shapes = {**about["parameters"], **about["inputs"], **about["states"]}
    return README.format(
        **{key: about[key] for key in ("cell", "title", "source", "digits")},
        cases="\n".join(rows),
        left_out="".join(f"Left out: `{c['name']}`, as {c['reason']}.\n\n" for c in about["left_out"]),
        equations="\n".join(about["equations"]),
        meanings="\n".join(f"- `{tag}`: {TAGS[tag]}" for tag in used),
        shapes="; ".join(f"{n} [{', '.join(s)}]" for n, s in shapes.items()),
        tolerances="\n".join(
            f"- {dtype}: {t['relative']:.0e}, because {t['reason']}." for dtype, t in about["tolerances"].items()
        ),
        **{key: ", ".join(about[key]) or "none" for key in ("tags", "functions", "layouts")},
    )


README = """# Conformance pack of `{cell}`: {title}

{source}

```
{equations}
```

Shapes: {shapes}. Functions: {functions}. `spec.yaml` is the whole of it. Nothing here needs rnnspec.

## Running it

```sh
python runner.py my_module:my_adapter --dtype float32     # needs Python and NumPy
```

An adapter is a function of one case, a dict, that gives a dict of arrays. A case has

- `params/NAME`; `packed/LAYOUT/BLOCK`, the same as a library packs them (here: {layouts});
- `inputs/NAME` [T, B, ...]; `states/NAME` [B, ...] before the first step, zero where there are none; `lengths` \
[B], where rows end early;
- `d_outputs/NAME` [T, B, ...] and `d_final/NAME` [B, ...]: the gradients are those of the sum of all outputs times \
`d_outputs` and all final states times
  `d_final`;
- `steps` (T), `rows` (B), `sizes`, `dtype`, `spec` (the text of spec.yaml), `shapes` of all that is expected.

It gives `outputs/NAME` [T, B, ...] for every output, and of these what it can: `steps/NAME` [T, B, ...] every \
state after every step, `final/NAME` [B, ...],
`gradients/params/NAME` (or `gradients/LAYOUT/BLOCK`), `gradients/inputs/NAME`, `gradients/states/NAME`. It raises \
`NotImplementedError("why")` for a case
that it can't try. `--require gradients,steps` makes a failure of what is not given; else the summary says of what
nothing was said.

`adapters.py` has adapters for a function of one step in NumPy or JAX, a torch module, a Keras layer,
an ONNX model, a C function and a program in any language, with the signature in C and the JSON in
their docstrings:

```python
# my_module.py
from adapters import json_program

my_adapter = json_program(["julia", "my_cell.jl"], timeout=60)
```

Such a program is started once for each case. It reads one JSON object from its standard input, a
case with the keys above, arrays as nested lists; it writes one to its standard output,
{{"outputs/h": [[[0.5, ...]]], ...}} or {{"not_tried": "why"}}, and ends with exit status 0.

`cases/*.npz` and `cases/*.json` hold the same: `given` and `expected`, in JSON as nested lists, numbers with 17 \
digits.

## What is expected

The values of the equations at {digits} digits, rounded to float64. What is given is exact in float32. Past a row's \
end outputs and their gradients are zero.
A difference is measured relative to the largest expected value of the case, for gradients to the largest gradient. \
Allowed are

{tolerances}

| case | sizes | tags |
|---|---|---|
{cases}

{left_out}Every case needs: {tags}. The tags mean

{meanings}
"""
