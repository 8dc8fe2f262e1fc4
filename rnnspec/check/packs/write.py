"""Conformance packs: a cell with expected values, in a folder that needs nothing of rnnspec.

    write_pack(rnnspec.load("lstm"), Path("lstm_pack"))

The values are those of the reference at 50 digits, rounded to float64. What is given is exact in
float32, so that one set of values serves both dtypes.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.numbers import mpmath_numbers
from rnnspec.check.packs import adapters as pack_adapters
from rnnspec.check.packs import runner as pack_runner
from rnnspec.check.sampling import Case, NoSampleError, Shapes, decided_by, draw, switches
from rnnspec.check.tolerances import PACK, PACK_MARGIN
from rnnspec.errors import RnnspecError
from rnnspec.language.features import FEATURES
from rnnspec.language.layouts import pack, pack_gradients
from rnnspec.language.rewrite import line, to_yaml
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Call, Ref, walk
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Graph

FORMAT = 1
DIGITS = 50


@dataclass(frozen=True)
class CasePlan:
    """What a case tries. tags: what an engine must be able to do for it, beyond what the whole pack
    asks for."""

    name: str
    shapes: Shapes
    tags: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()


PLANS = (
    CasePlan("plain", Shapes(5, 3, (3, 4, 2))),
    CasePlan("initial_states", Shapes(4, 2, (2, 5, 3)), ("initial-states",)),
    CasePlan("one_step", Shapes(1, 2, (3, 4, 2)), ("initial-states",)),
    CasePlan("one_unit", Shapes(3, 1, (1,)), ("initial-states",)),
    CasePlan("lengths", Shapes(6, 4, (3, 4, 2)), ("lengths",), (6, 1, 4, 3)),
    CasePlan("empty_row", Shapes(4, 3, (2, 3, 5)), ("initial-states", "lengths", "empty-rows"), (4, 0, 2)),
)
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
    """Writes the folder, whole or not at all, and returns what its pack.json says. Raises
    RnnspecError if the folder exists."""
    folder = Path(folder)
    if folder.exists():
        raise RnnspecError(f"'{folder}' exists already: give another folder with --out, or remove it.")
    graph = build(spec)
    made = _Maker(spec, seed, graph, adjoint(graph, spec.no_gradient), switches(graph, spec.no_gradient))
    parent = folder.absolute().parent
    if not parent.is_dir():
        raise RnnspecError(f"there is no folder '{parent}' to write '{folder.name}' into.")
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    try:
        (work / "cases").mkdir()
        described = []
        for plan in PLANS:
            case = made.case(plan)
            arrays: dict[str, Any] = made.arrays(case)
            (work / "cases" / f"{plan.name}.json").write_text(_json(arrays), encoding="utf-8")
            np.savez(work / "cases" / f"{plan.name}.npz", **arrays)
            described.append(
                {
                    "name": plan.name,
                    "tags": list(plan.tags),
                    "steps": case.steps,
                    "rows": case.rows,
                    "sizes": dict(case.sizes),
                }
            )
        about = made.about(described)
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


@dataclass(frozen=True)
class _Maker:
    """A cell's graphs. checked: with one more value for each comparison (`sampling.switches`), None
    where nothing is compared."""

    spec: Spec
    seed: int
    graph: Graph
    reverse: Graph
    checked: Graph | None

    def case(self, plan: CasePlan) -> Case:
        """Arrays of a case, exact in float32, whose comparisons are all decided by more than the
        margin, or are of zeros."""
        offset = int.from_bytes(hashlib.sha256(plan.name.encode()).digest()[:3], "big")
        for attempt in range(40):
            try:
                case = draw(
                    self.spec, self.graph, plan.shapes, self.seed + offset + attempt, "float32", PACK_MARGIN
                ).map(lambda a: a.astype(np.float64))
            except NoSampleError as error:
                raise NoSampleError(f"'{self.spec.name}': {error}") from None
            if "initial-states" not in plan.tags:
                case = replace(case, states={n: np.zeros_like(a) for n, a in case.states.items()})
            if plan.lengths:
                lengths = np.array(plan.lengths)
                alive = np.arange(case.steps)[:, None] < lengths
                case = replace(
                    case,
                    lengths=lengths,
                    d_outputs={
                        n: a * alive.reshape(alive.shape + (1,) * (a.ndim - 2)) for n, a in case.d_outputs.items()
                    },
                )
            if self._decided(case):
                return case
        raise NoSampleError(
            f"'{self.spec.name}': no case '{plan.name}' found in which no comparison lies within {PACK_MARGIN:g} of"
            " where it changes sides"
        )

    def _decided(self, case: Case) -> bool:
        if self.checked is None:
            return True
        run = _forward(self.checked, case)
        return all(((gap > PACK_MARGIN) | (gap == 0)).all() for gap in decided_by(run, self.graph, case))

    def arrays(self, case: Case) -> dict[str, Array]:
        """Everything of a case: "given/params/W" and so on, "expected/outputs/h" and so on."""
        import mpmath

        with mpmath.workdps(DIGITS):
            numbers = mpmath_numbers()
            run = _forward(self.graph, case, numbers=numbers)
            given_back = (case.d_outputs, case.d_final, case.lengths)
            back = reference.backward(
                self.reverse, case.params, case.inputs, run, *given_back, sizes=case.sizes, numbers=numbers
            )
            expected = {"outputs": run.outputs, "steps": run.states, "final": run.final}
            gradients = {
                "params": {n: back.params[n] for n in self.spec.trained},
                "inputs": back.inputs,
                "states": back.states,
            }
            found = {f"{g}/{n}": _rounded(a) for g, arrays in expected.items() for n, a in arrays.items()}
            found |= {f"gradients/{g}/{n}": _rounded(a) for g, arrays in gradients.items() for n, a in arrays.items()}
        given: dict[str, Array] = {
            f"{g}/{n}": a for g in ("params", "inputs", "d_outputs", "d_final") for n, a in getattr(case, g).items()
        }
        if any(a.any() for a in case.states.values()):
            given |= {f"states/{n}": a for n, a in case.states.items()}
        if case.lengths is not None:
            given["lengths"] = case.lengths
        sums = {n: found[f"gradients/params/{n}"] for n in self.spec.trained}
        for layout in self.spec.layouts:
            given |= {f"packed/{layout}/{n}": a for n, a in pack(self.spec, layout, case.params).items()}
            found |= {f"gradients/{layout}/{n}": a for n, a in pack_gradients(self.spec, layout, sums).items()}
        return {f"given/{n}": a for n, a in given.items()} | {f"expected/{n}": a for n, a in found.items()}

    def about(self, cases: list[dict[str, Any]]) -> dict[str, Any]:
        spec = self.spec
        return {
            "rnnspec_pack": FORMAT,
            "cell": spec.name,
            "title": spec.title,
            "source": spec.source.to_text(),
            "seed": self.seed,
            "digits": DIGITS,
            "inputs": {n: list(s) for n, s in spec.inputs.items()},
            "states": {s: list(self.graph.shapes[n]) for s, n in self.graph.states.items()},
            "parameters": {n: list(s) for n, s in spec.parameters.items()},
            "outputs": list(spec.outputs),
            "layouts": sorted(spec.layouts),
            "tags": tags(spec, self.graph),
            "functions": functions(spec),
            "equations": [line(e) for e in spec.equations],
            "tolerances": {dtype: {"relative": value, "reason": reason} for dtype, (value, reason) in PACK.items()},
            "cases": cases,
        }


def _forward(graph: Graph, case: Case, **numbers: Any) -> reference.Trajectory:
    given = (case.params, case.inputs, case.states, case.lengths)
    return reference.forward(graph, *given, sizes=case.sizes, lead=case.lead, **numbers)


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


def _rounded(array: Any) -> Array:
    """To the nearest float64: each is printed with 17 digits, which are enough to tell it."""
    return np.asarray(np.frompyfunc(float, 1, 1)(np.asarray(array, dtype=object)), dtype=np.float64)


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
that it can't try. `adapters.py` has adapters for a NumPy function of one step, a torch module and an ONNX model.

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

Every case needs: {tags}. The tags mean

{meanings}
"""
