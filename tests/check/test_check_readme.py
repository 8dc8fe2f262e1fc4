"""The Python of the README's section on checking runs, and its figures for functions are those that
a test holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
HEADING = "## Is it right?"


def section() -> str:
    assert HEADING in README
    return README.split(HEADING)[1].split("\n## ")[0]


def test_the_python_of_the_section_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaky = re.search(r"```yaml\n(rnnspec: 1\nname: leaky\n.*?)```", README, re.DOTALL)
    assert leaky
    (tmp_path / "leaky.yaml").write_text(leaky[1])
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", section(), re.DOTALL)
    assert code
    names: dict[str, object] = {}
    exec(code[1], names)
    assert names["report"].passed and names["result"].passed and names["fault"]  # type: ignore[attr-defined]


def test_every_property_is_explained() -> None:
    from rnnspec.check import PROPERTIES

    text = section().lower()
    assert not [
        p.name for p in PROPERTIES if p.name.split(",")[0].lower() not in text and p.name not in ("schema", "compiles")
    ]
