"""README and the manual: what they show runs, where they point to is there, and the README is one
screen's worth."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rnnspec.commands.cli import make_parser

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
README = TOP / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
LINKED = [*PAGES, TOP / "CONTRIBUTING.md", TOP / "CHANGELOG.md"]
FENCE = re.compile(r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
LINES, COLUMNS = 150, 100
NEEDS = ("torch", "jax", "onnx", "onnxruntime", "optuna", "ncps", "scipy")  # what a page may import


def name(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


def blocks(page: Path, kind: str) -> list[str]:
    """The code of one kind that a page has, without what it says is not run."""
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [m["code"] for m in found if m["kind"] == kind and not m["reason"]]


ELSEWHERE = {"docs/tasks.md"}  # its blocks need files: tests/train/test_own_task.py makes them
PYTHON = [page for page in PAGES if blocks(page, "python") and name(page) not in ELSEWHERE]


@pytest.mark.parametrize("page", PYTHON, ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks in their order, in a folder that has the cells of the page and of the README."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "python"))
    for package in NEEDS:
        if re.search(rf"^\s*(?:import|from) {package}\b", code, re.M) or (package, "interop.torch" in code) == (
            "torch",
            True,
        ):
            pytest.importorskip(package, reason=f"{package} is not installed")
    for text in [*blocks(README, "yaml"), *blocks(page, "yaml")]:
        if cell := re.search(r"^name: (\w+)$", text, re.M):
            Path(f"{cell[1]}.yaml").write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python"), 1):
        # without Inductor's C++ compiler, which takes half a minute
        block = block.replace("fullgraph=True", "fullgraph=True, backend='aot_eager'")
        exec(compile(block, f"{name(page)}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=name)
def test_the_commands_of_a_page_can_be_given(page: Path) -> None:
    """Every `rnnspec ...` line of a shell block is understood."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("rnnspec "):
                make_parser().parse_args(shlex.split(line, comments=True)[1:])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_where_a_page_points_to_is_there(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{name(page)} points to {target}, which is not there"
        assert not anchor or anchor in anchors(there), (
            f"{name(page)} points to {target}: {there.name} has no such heading"
        )


def test_the_readme_is_short_and_narrow() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES
    assert not [line for line in lines if len(line) > COLUMNS]


def test_every_page_is_in_the_site_s_contents() -> None:
    contents = (TOP / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"[\w/]+\.md", contents))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    made = {"index.md", "changes.md", "contributing.md", "commands.md", "api.md"}  # docs/tools/site.py makes them
    assert listed == pages | made


def test_the_site_is_built(tmp_path: Path) -> None:
    """Strictly: a link or an anchor that leads nowhere fails, or a name of the API that is gone."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install '.[docs]'")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(TOP / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True))
    assert (tmp_path / "site" / "language" / "index.html").exists()
    whole = (tmp_path / "site" / "api" / "index.html").read_text(encoding="utf-8")
    assert "rnnspec.compile" in whole and "Recurrent" in whole
