"""The ES modules around an exported program in WebAssembly: constants of the program, and behind
them what is the same for all, cell.mjs and check.mjs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from rnnspec.export.selftest import STEPS, case_of
from rnnspec.export.text import MARK, CProgram
from rnnspec.export.weights import ERRORS

PER_LINE = 100
KINDS = {"float32": "Float32Array", "float64": "Float64Array"}


def cell_script(program: CProgram, module: bytes) -> str:
    """The text of NAME.mjs, with the class `Cell`. module: the bytes of the WebAssembly."""
    kind = KINDS[program.real.name]
    inputs = [] if program.model.table is None else [("symbol", 1, "Uint32Array")]
    inputs += [(name, size, kind) for name, size in program.inputs.items()]
    text = base64.b64encode(module).decode()
    lines = [
        f"// {program.model.title}. {MARK}".replace("\n", " "),
        *(f"// {line}" for part in program.parts for line in part.about),
        f"const NAME = {json.dumps(program.name)};",
        f"export const INPUTS = {_arrays(inputs)};",
        f"export const OUTPUTS = {_arrays([(name, size, kind) for name, size in program.outputs.items()])};",
        f"const ERRORS = {json.dumps(list(ERRORS.values()), indent=2)};",
        "const MODULE = [",
        *(f'  "{text[start : start + PER_LINE]}",' for start in range(0, len(text), PER_LINE)),
        '].join("");',
    ]
    return "\n".join(lines) + "\n" + _body("cell.mjs")


def check_script(program: CProgram, seed: int = 0) -> str:
    """The text of NAME_selftest.mjs: `check()`, and in Node a program that prints what it gives and
    exits with 1 where an error is too large. Raises NoSampleError as `selftest` does."""
    case = case_of(program, seed)
    inputs = [] if case.symbols is None else [case.symbols.tolist()]
    inputs += [array.ravel().tolist() for array in case.inputs.values()]
    outputs = {n: {"right": a.ravel().tolist(), "allowed": case.allowed[n]} for n, a in case.outputs.items()}
    lines = [
        f"// Checks {program.name}.mjs: {STEPS} steps beside what the equations give in float64.",
        f'import {{ Cell }} from "./{program.name}.mjs";',
        "",
        f"const NAME = {json.dumps(program.name)};",
        f"const APART = {json.dumps(program.apart)};",
        f"const STEPS = {STEPS};",
        f"const INPUTS = {json.dumps(inputs)};",
        f"const OUTPUTS = {json.dumps(outputs)};",
    ]
    return "\n".join(lines) + "\n" + _body("check.mjs")


def _arrays(arrays: list[tuple[str, int, str]]) -> str:
    rows = [f"  {{ name: {json.dumps(name)}, size: {size}, kind: {kind} }}," for name, size, kind in arrays]
    return "\n".join(["[", *rows, "]"])


def _body(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")
