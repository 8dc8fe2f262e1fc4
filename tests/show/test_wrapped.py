"""Pages on a screen: no line is wider than it is, and nothing that is said gets lost."""

from __future__ import annotations

import pytest

from rnnspec.commands.cli import main
from rnnspec.language.load import load, spec_names
from rnnspec.show.facts import facts
from rnnspec.show.page import page, show
from rnnspec.show.wrapped import paragraphs, wrapped


@pytest.mark.parametrize("name", spec_names())
def test_a_page_fits_its_screen(name: str) -> None:
    spec = load(name)
    known = facts(spec)
    words = page(spec, known).split()
    for width in (80, 100):
        text = page(spec, known, width)
        assert max(map(len, text.splitlines())) <= width
        assert text.split() == words
    assert all(" " not in line.strip() for line in page(spec, known, 20).splitlines() if len(line) > 20)


def test_the_command_cuts_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """11 lines of `show lstm` were wider than 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["show", "lstm"]) == 0 and capsys.readouterr().out == show(load("lstm")) + "\n", "a pipe"
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", "lstm"]) == 0 and capsys.readouterr().out == show(load("lstm"), width=80) + "\n"
    assert main(["show", "lstm", "--stage", "adjoint"]) == 0
    assert capsys.readouterr().out == show(load("lstm"), stage="adjoint") + "\n", "texts that are read by machines"


def test_where_lines_are_cut() -> None:
    assert wrapped(["  a = b + c * (d + e) + f"], 22) == ["  a = b + c * (d + e)", "      + f"], "outside of brackets"
    assert wrapped(["  one two three"], 9) == ["  one two", "      three"]
    assert wrapped(["x" * 30 + " y"], 9) == ["x" * 30, "    y"] and wrapped(["  " + "x" * 30], 9) == ["  " + "x" * 30]
    assert wrapped(["a" * 30], None) == ["a" * 30]


def test_lines_of_a_text_that_belong_together() -> None:
    text = "One two\nthree four\n\n  kept as it is\n- a\n- b"
    assert paragraphs(text, 80) == ["One two three four", "", "  kept as it is", "- a", "- b"]
    assert paragraphs(text, 10) == ["One two", "three four", "", "  kept as", "it is", "- a", "- b"]
    assert paragraphs(text, None) == text.splitlines()
