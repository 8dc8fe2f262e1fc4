"""The list of known faults of engines like this one, and which tests stand for each.

`python tests/helpers/faults.py` prints the table.

A test stands for a case if its name has the case's number (`test_H05_...`), or a parameter's name
begins with it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

# number, what part of an engine it is about, severity (S1 silently wrong or a security hole, S2
# crash or hang, S3 unclear message), title
CASES = (
    ("H01", "FWD", "S1", "Final state of the reverse direction sits at t=0"),
    ("H02", "FWD", "S1", "h_n order is layer-major, direction-minor"),
    ("H03", "FWD", "S1", "batch_first must not touch state axes (test with B=T)"),
    ("H04", "FWD", "S1", "GRU reset gate placement (reset-after vs reset-before)"),
    ("H05", "FWD", "S1", "LSTM gate chunk order PyTorch i,f,g,o vs ONNX i,o,f,c"),
    ("H06", "FWD", "S1", "Peephole vector order is P[i,o,f]"),
    ("H07", "FWD", "S1", "Projection shapes: state is proj-sized, cell is hidden-sized, next layer takes D*proj"),
    ("H08", "FWD", "S1", "States update simultaneously from OLD values"),
    ("H09", "FWD", "S1", "bias=False equals zero biases, B>=3 (uninitialised scratch)"),
    ("H10", "FWD", "S3", "Unbatched 2-D input"),
    ("H11", "VARLEN", "S1", "Reverse direction starts at the LAST VALID step"),
    ("H12", "VARLEN", "S1", "Y is zero past the length, h_n is the last valid state"),
    ("H13", "VARLEN", "S1", "A row of length 0 in the batch"),
    ("H14", "VARLEN", "S2", "T=0 and B=0"),
    ("H15", "VARLEN", "S1", "Lengths out of range or of the wrong kind"),
    ("H16", "VARLEN", "S1", "NaN in padding leaks into gradients"),
    ("H17", "VARLEN", "S1", "A padded row equals the same row run alone"),
    ("H18", "GRAD", "S1", "Gradient is the SUM over time; gradcheck every built-in"),
    ("H19", "GRAD", "S1", "Jacobians multiplied in the right order"),
    ("H20", "GRAD", "S1", "Gradient only through h_n, and through both"),
    ("H21", "GRAD", "S1", "Stride-0 (broadcast) upstream gradient"),
    ("H22", "GRAD", "S1", "Non-contiguous, Fortran, negative-stride and read-only arrays"),
    ("H23", "GRAD", "S1", "Backward uses the forward's dropout mask"),
    ("H24", "GRAD", "S1", "relu'(0)=0"),
    ("H25", "GRAD", "S2", "sign / DiracDelta / Heaviside in the derivative"),
    ("H26", "GRAD", "S1", "Abs must be differentiated as real"),
    ("H27", "GRAD", "S1", "Branch derivative inf*0"),
    ("H28", "NUM", "S1", "sigmoid derivative overflows"),
    ("H29", "NUM", "S1", "Fully saturated LSTM"),
    ("H30", "NUM", "S2", "float32 kernels must stay float32"),
    ("H31", "NUM", "S3", "dtype mismatches are errors"),
    ("H32", "NUM", "S1", "Samples are independent"),
    ("H33", "NUM", "S2", "Exponential gates need a stabiliser a spec can express"),
    ("H34", "SPEC", "S1", "Code execution through equation text"),
    ("H35", "SPEC", "S1", "Parameters named E, S, N, I, Q, O, C"),
    ("H36", "SPEC", "S1", "Parameters named beta, gamma, zeta; lambda"),
    ("H37", "SPEC", "S1", "Gates named i,f,g,o against loop variables in generated code"),
    ("H38", "SPEC", "S1", "Parameters named x0, x1 against CSE temporaries"),
    ("H39", "SPEC", "S3", "Misspelt function name"),
    ("H40", "SPEC", "S3", "Undeclared symbol"),
    ("H41", "SPEC", "S1", "Integer literals: 1/2 is 0.5"),
    ("H42", "SPEC", "S2", "Equation order and cycles"),
    ("H43", "CODEGEN", "S2", "Build time budget: no simplify()"),
    ("H44", "CODEGEN", "S2", "Generated source is deterministic"),
    ("H45", "CODEGEN", "S2", "Every documented function compiles, forward and backward"),
    ("H46", "YAML", "S2", "1e-3 is a string in PyYAML"),
    ("H47", "YAML", "S1", "Duplicate keys"),
    ("H48", "YAML", "S1", "on/off/yes/no/true names; y and n must work"),
    ("H49", "YAML", "S2", "Alias bomb"),
    ("H50", "YAML", "S1", "Python tags"),
    ("H51", "YAML", "S2", "Unknown keys are not ignored"),
    ("H52", "ONNX", "S1", "ONNX attributes must change the result"),
    ("H53", "ONNX", "S1", "clip acts on the input of EVERY activation, h included"),
    ("H54", "ONNX", "S1", "Three HardSigmoids"),
    ("H55", "ONNX", "S1", "direction=reverse keeps Y time-aligned"),
    ("H56", "ONNX", "S1", "layout=1"),
    ("H57", "ONNX", "S2", "onnx ReferenceEvaluator is not an oracle here"),
    ("H58", "NUMBA", "S1", "Stale compiled kernels"),
    ("H59", "NUMBA", "S2", "Works from python -c, stdin, notebook, zip"),
    ("H60", "NUMBA", "S2", "Cache directory not writable / no HOME"),
    ("H61", "NUMBA", "S2", "Cold cache hit by 4 processes"),
    ("H62", "NUMBA", "S1", "Race on weight gradients over the batch"),
    ("H63", "NUMBA", "S1", "Division by zero inside the parallel loop"),
    ("H64", "NUMBA", "S2", "Two Python threads call a layer"),
    ("H65", "NUMBA", "S1", "fastmath removes NaN checks"),
    ("H66", "CUDA", "S2", "Zero-size CUDA launch"),
    ("H67", "CUDA", "S2", "Block size against register use"),
    ("H68", "CUDA", "S2", "Batch above 65535"),
    ("H69", "CUDA", "S1", "Odd hidden sizes"),
    ("H70", "CUDA", "S2", "No GPU on the machine"),
    ("H71", "CUDA", "S1", "CPU and CUDA agree on ragged bidirectional batches"),
    ("H72", "TRAIN", "S1", "clip_grad_norm with inf/NaN"),
    ("H73", "TRAIN", "S2", "Clipping zero gradients"),
    ("H74", "TRAIN", "S1", "Truncated BPTT: right gradient, unbroken state"),
    ("H75", "TRAIN", "S2", "Carried state with another batch size"),
    ("H76", "TRAIN", "S1", "Loss mean counts valid tokens only"),
    ("H77", "TRAIN", "S1", "Label out of range"),
    ("H78", "TRAIN", "S1", "Softmax cross-entropy overflow"),
    ("H79", "TRAIN", "S1", "Dropout: fresh mask per call, off in eval, range checked, 1 layer warns"),
    ("H80", "API", "S2", "State shape errors, c0 included"),
    ("H81", "API", "S3", "Constructor checks"),
    ("H82", "API", "S1", "Weights changed in place are used by the next call"),
)

_NAME = re.compile(r"(?:^|_)[Hh]([0-9]{2})(?=_|$)")
_ID = re.compile(r"H([0-9]{2})\b")


@cache
def tested() -> dict[str, list[str]]:
    """The files with tests for each case."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            numbers: list[str] = []
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                numbers = _NAME.findall(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (start := _ID.match(node.value)):
                numbers = [start[1]]
            for number in numbers:
                found.setdefault(f"H{number}", set()).add(path.name)
    return {case: sorted(files) for case, files in found.items()}


def without() -> list[str]:
    """The cases that no test stands for."""
    return [number for number, *_ in CASES if number not in tested()]


def table() -> str:
    """Every case and the files with its tests, in Markdown."""
    lines = ["| case | about | severity | | tests |", "|---|---|---|---|---|"]
    lines += [
        f"| {number} | {about} | {severity} | {title} | {', '.join(tested().get(number, ['none']))} |"
        for number, about, severity, title in CASES
    ]
    return "\n".join([*lines, "", f"{len(CASES) - len(without())} of {len(CASES)} have tests."])


if __name__ == "__main__":
    print(table())
