"""The shape of the code: imports in one direction, no cycles, small files and functions, a cheap
`import rnnspec`."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "rnnspec"
FILES = sorted(ROOT.rglob("*.py"))
# A module may import from its own layer and from those above it in this list.
LAYERS = (
    ("errors",),
    ("files", "modules", "texts"),
    ("language",),
    ("symbolic",),
    ("lowering",),
    ("backends",),
    ("arrays", "initialise", "noise", "pieces", "pipeline"),
    ("derived", "weights", "stream", "run", "kernel", "device"),
    ("layer", "passes", "kept", "stack", "recurrent"),
    ("latex", "show", "diagram"),
    ("interop",),
    ("check",),
    ("compare", "transform"),
    ("train",),
    ("probe",),
    ("commands",),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FREE = {("modules", "backends")}  # the cache keys machine code by the runtime's sources, which it reads as text


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """The modules of ours that a file imports, those inside functions included unless
    `top_only`."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    nodes = list(tree.body) if top_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rnnspec":
            found |= {
                (
                    f"{node.module}.{a.name}"
                    if (ROOT.parent / (f"{node.module}.{a.name}".replace(".", "/") + ".py")).exists()
                    else node.module
                )
                for a in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "rnnspec"}
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = layer(name_of(path))
    if own == "__init__":
        return
    assert own in RANK, f"{own} has no place in the order of the layers"
    for module in imports(path):
        other = layer(module)
        assert RANK[other] <= RANK[own] or other == "__init__", f"{path.name} ({own}) imports {module}"


def test_no_import_cycles() -> None:
    graph = {name_of(p): imports(p, top_only=True) - {name_of(p), "rnnspec"} for p in FILES}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 500, f"{path} has {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 50, f"{path.name}: {node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())) or path.read_text().strip() == "", f"{path} has no docstring"


def test_nothing_evaluates_text() -> None:
    forbidden = {"eval", "exec", "parse_expr", "sympify", "simplify", "prange"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            assert name not in forbidden, f"{path.name}:{node.lineno} calls {name}"


def test_importing_rnnspec_is_cheap() -> None:
    heavy = "sympy", "numba", "matplotlib", "rich", "torch", "yaml"
    code = f"import sys, rnnspec; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_loading_a_spec_needs_neither_sympy_nor_numba() -> None:
    code = "import sys, rnnspec; rnnspec.load('lstm'); print([m for m in ('sympy', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
