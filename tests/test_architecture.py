"""The shape of the house: imports in one direction, no circles, small files, narrow lines.

Every import counts: those inside functions, and those for type checkers alone.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
FILES = sorted((TOP / "rnnspec").rglob("*.py"))
ALL_FILES = FILES + [p for room in ("bench", "tests", "examples", "docs") for p in sorted((TOP / room).rglob("*.py"))]
DOCUMENTS = [*TOP.glob("*.md"), *sorted((TOP / "docs").rglob("*.md"))]
EXAMPLES = {"my_module.py", "my_task.py", "my.py", "engine/metal.py"}  # names of files that a reader would write
# A room imports from its own floor's own room, and from the floors below it.
FLOORS = (
    ("storage", "errors"),
    ("language",),
    ("symbolic", "transform"),
    ("lowering",),
    ("backends",),
    ("engine", "show"),
    ("layers", "check", "probe", "dynamics"),
    ("train", "interop", "compare"),
    ("export", "study", "gallery"),
    ("commands", "__init__"),
    ("__main__", "bench", "examples", "docs"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS, 1) for room in rooms}
MOST_LINES, MOST_IN_A_FUNCTION, CODE_COLUMNS, PROSE_COLUMNS = 400, 50, 120, 100


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """The dotted name of a module; a package's is its folder's."""
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in ALL_FILES}


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of every import that a statement makes; name is "" for a module as a whole."""
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield (whole, "") if whole in MODULES else (node.module, alias.name)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ""


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules of ours that a file imports."""
    found = {module for node in ast.walk(tree_of(path)) for module, _ in imported(node)}
    return frozenset(m for m in found if m in MODULES and m != name_of(path))


def room(module: str) -> str:
    parts = module.split(".")
    return parts[0] if parts[0] != "rnnspec" else parts[1] if len(parts) > 1 else "__init__"


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The names along a circle of a graph, none where it has none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def inner_graph(package: str, files: list[Path]) -> dict[str, set[str]]:
    """Which files and folders of a package import which others of it."""
    depth, graph = package.count(".") + 1, dict[str, set[str]]()
    for path in files:
        own = name_of(path).split(".")
        if not name_of(path).startswith(f"{package}.") or len(own) <= depth:
            continue
        others = {m.split(".")[depth] for m in imports(path) if m.startswith(f"{package}.")}
        graph.setdefault(own[depth], set()).update(others - {own[depth]})
    return graph


@pytest.mark.parametrize("path", [p for p in ALL_FILES if room(name_of(p)) != "tests"], ids=name_of)
def test_imports_lead_down(path: Path) -> None:
    own = room(name_of(path))
    assert own in FLOOR, f"{own} has no floor"
    for module in imports(path):
        other = room(module)
        assert other == own or FLOOR[other] < FLOOR[own], f"{name_of(path)} imports {module}"


def test_no_module_imports_itself_in_the_end() -> None:
    assert circle({name_of(p): set(imports(p)) for p in FILES}) == []


@pytest.mark.parametrize("package", sorted({name_of(p.parent / "__init__.py") for p in FILES}))
def test_no_circles_within_a_package(package: str) -> None:
    """Files and folders beside each other import in one direction, a folder taken as one."""
    if package != "rnnspec":  # its rooms have floors
        assert circle(inner_graph(package, FILES)) == []


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_private_names_stay_in_their_module(path: Path) -> None:
    tree, modules = tree_of(path), set[str]()
    for node in ast.walk(tree):
        for module, name in imported(node):
            if module not in MODULES or module == name_of(path):
                continue
            assert not name.startswith("_") or name.startswith("__"), f"{name_of(path)} takes {name} from {module}"
        if isinstance(node, ast.ImportFrom):
            modules |= {a.asname or a.name for a in node.names if f"{node.module}.{a.name}" in MODULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            text = f"{node.value.id}.{node.attr}"
            assert not node.attr.startswith("_") or node.attr.startswith("__"), f"{name_of(path)} takes {text}"


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_files_and_functions_are_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    if room(name_of(path)) != "tests":
        assert lines <= MOST_LINES, f"{name_of(path)} has {lines} lines"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MOST_IN_A_FUNCTION, f"{name_of(path)}: {node.name} has {length} lines"


def prose_lines(path: Path) -> set[int]:
    """The numbers of the lines that are docstrings or comments and nothing else."""
    found = {
        number
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            found.add(token.start[0])
    return found


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_lines_are_narrow(path: Path) -> None:
    prose = prose_lines(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        most = PROSE_COLUMNS if number in prose else CODE_COLUMNS
        assert len(line) <= most, f"{name_of(path)}:{number} has {len(line)} columns of {most}"


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{path} has no docstring"


def prose_of(path: Path) -> str:
    """A document, or the lines of a module that are docstrings or comments."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return "\n".join(lines if path.suffix == ".md" else [lines[n - 1] for n in sorted(prose_lines(path))])


@pytest.mark.parametrize("path", DOCUMENTS + FILES, ids=lambda path: str(path.relative_to(TOP)))
def test_paths_in_documents_exist(path: Path) -> None:
    """What a document or a docstring calls x.py, or folder/x.py, is a file of ours."""
    ours = ["/" + p.relative_to(TOP).as_posix() for p in ALL_FILES]
    for name in set(re.findall(r"(?<![\w/.*])[a-z_][\w/]*\.py\b", prose_of(path))) - EXAMPLES:
        assert any(file.endswith("/" + name) for file in ours), f"{path.name} names {name}"


def test_nothing_evaluates_text() -> None:
    forbidden = {"eval", "exec", "parse_expr", "sympify", "simplify", "prange"}
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", getattr(called, "attr", ""))
            assert name not in forbidden, f"{name_of(path)}:{getattr(node, 'lineno', 0)} calls {name}"


def test_importing_rnnspec_is_cheap() -> None:
    heavy = "sympy", "numba", "matplotlib", "rich", "torch", "yaml"
    code = f"import sys, rnnspec; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_loading_a_spec_needs_neither_sympy_nor_numba() -> None:
    code = "import sys, rnnspec; rnnspec.load('lstm'); print([m for m in ('sympy', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by their names alone, and refuses the second of a name."""
    names = [path.name for path in (TOP / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
