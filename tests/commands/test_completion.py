"""Completion: what a shell is given, and what it is answered at Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rnnspec.commands import completion
from rnnspec.commands.cli import main

BASH = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9"}


def answered(line: str, folder: Path) -> list[str]:
    """What argcomplete answers for a line of bash, asked as its function does."""
    pytest.importorskip("argcomplete")
    answer = folder / "answer"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    code = "from rnnspec.commands.cli import main; main()"
    env = os.environ | BASH | asked
    subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, check=False, capture_output=True, timeout=120)
    return answer.read_text().split("\n")


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("rnnspec ch", {"check"}, {"train"}),
        ("rnnspec show lstm_peep", {"lstm_peephole"}, {"lstm"}),
        ("rnnspec check lstm --qu", {"--quick"}, {"--json"}),
        ("rnnspec train lstm --task ad", {"adding"}, {"text"}),
        ("rnnspec check my", {"my.yaml"}, {"my.txt"}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_tab(line: str, some: set[str], none: set[str], tmp_path: Path) -> None:
    (tmp_path / "my.yaml").touch()
    (tmp_path / "my.txt").touch()
    found = {word.strip() for word in answered(line, tmp_path)}
    assert some <= found and not none & found


@pytest.mark.parametrize(
    ("shell", "has"), [("bash", "complete "), ("zsh", "#compdef rnnspec"), ("fish", "complete --command rnnspec")]
)
def test_every_shell_gets_its_function(shell: str, has: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    assert has in capsys.readouterr().out


def test_without_the_library_it_says_how_to_get_it(monkeypatch, capsys) -> None:
    monkeypatch.setattr(completion, "find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'rnnspec[completion]'" in capsys.readouterr().err
    monkeypatch.setenv(completion.ASKED, "1")
    assert main(["cite", "rnnspec"]) == 0  # a shell that asks in vain is no failure


def test_cells_and_files(tmp_path: Path, monkeypatch) -> None:
    for name in ("a.yaml", "b.yml", "c.txt", ".d.yaml", "sub/e.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert completion.cells("mgu") == ["mgu", "mgu1", "mgu2", "mgu3"]
    assert {"a.yaml", "b.yml", "sub/", "lstm"} <= set(completion.cells("")) and "c.txt" not in completion.cells("")
    assert completion.cells("sub/") == ["sub/e.yaml"] and completion.cells("no/") == []
    assert completion.cells(".") == [".d.yaml"] and completion.cells(f"{tmp_path}/a") == [f"{tmp_path}/a.yaml"]
    assert completion.tasks("ad") == ["adding"]
