"""What a failure prints is Python that repeats it, wherever the file lies and whatever its choices
are called."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec.check import check_cells, check_property
from rnnspec.check.outcome import Outcome, Sized
from rnnspec.check.run import Property, run_property
from rnnspec.check.sampling import NoSampleError, Shapes
from rnnspec.check.subject import subject
from rnnspec.language.load import loads


def written(path, choices: str = "{phi: [tanh, relu]}", name: str = "phi"):
    """A file of a cell with choices, in a folder that may have to be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = cell(f"h[t] = {name}(x[t] + h[t-1])", inputs="{x: H}", states="{h: H}", choices=choices, name="mine")
    path.write_text(text)
    return path


@pytest.fixture
def nothing_passes(monkeypatch):
    monkeypatch.setattr("rnnspec.check.properties.derivatives.COMPLEX_STEP", -1.0)


def runs(text: str) -> None:
    """Runs a snippet that a failure printed."""
    exec(text, {})


@pytest.mark.parametrize(
    "place", ["a, b/mine.yaml", "it's, a=1/mine.yaml", 'with "quotes", both\'s/mine.yaml', "back\\slash, \n/mine.yaml"]
)
def test_the_snippet_of_any_path_is_python(place, tmp_path, nothing_passes, monkeypatch):
    written(tmp_path / place)
    monkeypatch.chdir(tmp_path)
    for report in check_cells([place], dtypes=()).cells:
        failed = next(r for r in report.results if not r.passed)
        with pytest.raises(AssertionError, match="at T = "):
            runs(failed.repeat)


def test_the_snippet_of_a_property_has_its_settings(tmp_path, nothing_passes):
    path = written(tmp_path / "a, b" / "mine.yaml")
    result = check_property(path, "adjoint, complex step", "reference", phi="relu")
    assert "phi='relu'" in result.repeat
    with pytest.raises(AssertionError, match="at T = "):
        runs(result.repeat)


@pytest.mark.parametrize("name", ["steps", "rows", "name", "number", "ragged"])
def test_the_snippet_of_a_choice_that_is_called_like_an_argument(name, tmp_path, nothing_passes):
    path = written(tmp_path / "mine.yaml", f"{{{name}: [tanh, relu]}}", name)
    second = check_cells([path], dtypes=()).cells[1]
    assert second.name == f"mine ({name}=relu)"
    failed = next(r for r in second.results if not r.passed)
    with pytest.raises(AssertionError, match="at T = "):
        runs(failed.repeat)


class NoSampleErrorToo(NoSampleError):
    """A kind of NoSampleError: what it is counts, not what it is called."""


def test_sizes_at_which_nothing_can_be_drawn_are_no_smaller_failure():
    known = subject(loads(cell("h[t] = x[t] + h[t-1]", inputs="{x: H}", states="{h: H}")))

    def check(known, shapes: Shapes) -> Outcome:
        if shapes.steps < 3:
            raise NoSampleErrorToo("no point")
        return Outcome(1.0, 0.0, f"NoSampleError is only a word here, T = {shapes.steps}")

    row = Property("odd", Sized(check, lambda known: [Shapes(8, 2, (3,))]), False)
    result = run_property(row, lambda: known, "reference")
    assert not result.passed and result.detail == "NoSampleError is only a word here, T = 3"
