"""`rnnspec help`: the language as the manual has it, every function and command, in 80 columns."""

from __future__ import annotations

import pytest

from rnnspec.commands import help as command
from rnnspec.commands.cli import main, make_parser
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def test_the_language(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "help", "language")
    lines = text.splitlines()
    assert "    inputs: {u: K, dt: [], xi: H}" in text and "4. `+ - * / **` are element by element" in text
    assert "1. Time is written." in text and "**Time" not in text and "```" not in text and "](" not in text
    assert all(len(line) <= 80 for line in lines if not line.startswith(("    gru.yaml:", "    layouts:")))


def test_the_language_of_what_is_installed(tmp_path, monkeypatch, capsys) -> None:
    """Where there is no checkout, the page lies beside the specs."""
    monkeypatch.setattr(command, "specs_folder", lambda: tmp_path / "specs")
    assert main(["help", "language"]) == 2 and "is not here" in capsys.readouterr().err
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "language.md").write_text("# The language\n\nA cell.\n")
    assert printed(capsys, "help", "language") == "A cell.\n"


def test_every_function_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "help", "functions")
    ours = [n for n in (*FUNCTIONS, *FEATURES) if n not in INTERNAL]
    starts = [line.strip().partition("(")[0] for line in text.splitlines() if line.startswith("  ") and "(" in line]
    assert set(ours) <= set(starts) and all(len(line) <= 80 for line in text.splitlines())
    assert all(f.about for f in (*FUNCTIONS.values(), *FEATURES.values()) if f.name not in INTERNAL)


def test_help_of_commands_and_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in make_parser().beside:
        assert printed(capsys, "help", name).startswith(f"usage: rnnspec {name}")
    assert printed(capsys, "help").startswith("usage: rnnspec help")
    assert main(["help", "langauge"]) == 2 and "Did you mean 'language'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["functions"])
    assert "Did you mean 'rnnspec help functions'?" in capsys.readouterr().err
