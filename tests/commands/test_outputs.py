"""What every command prints: JSON that is JSON, and text that any terminal takes."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
from tiny import cell

from rnnspec.check.accuracy.cells import AccuracyReport
from rnnspec.check.report import CellReport, Report, Result
from rnnspec.commands.cli import main
from rnnspec.errors import SpecError
from rnnspec.language.load import load, loads
from rnnspec.storage.jsontext import json_text

ADAPTER = """
import numpy as np
from rnnspec.check.packs.adapters import numpy_step
def step(p, i, s):
    h = np.tanh(i["x"] @ p["W"].T + s["h"] @ p["U"].T + p["b"]) + np.inf
    return {"h": h}, {"h": h}
bad = numpy_step(step)
"""
FOREIGN = "Käfer 𝛼 ≤ \U0001f40d"


def strict(text):
    """JSON as the standard has it."""

    def refuse(constant):
        raise ValueError(f"not JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def printed(monkeypatch, *arguments: str, encoding: str = "utf-8") -> tuple[int, str]:
    """The exit code of a command, and what a terminal of that encoding got."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    code = main(list(arguments))
    sys.stdout.flush()
    return code, raw.getvalue().decode(encoding)


def test_verify_of_infinities_is_json(tmp_path, monkeypatch):
    """It printed Infinity, which is no JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "adapter_of_infinities.py").write_text(ADAPTER)
    assert main(["pack", "rnn", "--out", "pack"]) == 0
    code, text = printed(monkeypatch, "verify", "pack", "--adapter", "adapter_of_infinities:bad", "--json")
    found = strict(text)
    assert code == 1 and not found["passed"] and {r["largest"] for r in found["results"]} == {"inf"}


def test_numbers_that_are_none_are_text():
    inf, nan = float("inf"), float("nan")
    found = strict(
        json_text({"a": [inf, -inf, nan, np.float32(nan), np.int64(2), np.bool_(True), np.array([inf, 1.0])]})
    )
    assert found == {"a": ["inf", "-inf", "nan", "nan", 2, True, ["inf", 1.0]]}
    result = Result("p", "float64", False, inf, nan, "", 0.0)
    assert strict(Report((CellReport("c", (result,)),)).to_json())["cells"][0]["results"][0]["measured"] == "inf"
    assert strict(AccuracyReport(()).to_json())["cells"] == []
    with pytest.raises(TypeError, match="not plain data"):
        json_text(object())


@pytest.mark.parametrize(
    "arguments",
    ["show FILE --json", "show FILE --stage spec --json", "diff FILE FILE --json"],
)
def test_json_is_the_same_on_every_terminal(tmp_path, monkeypatch, arguments):
    file = tmp_path / "foreign.yaml"
    file.write_text(cell("h[t] = tanh(x[t] + h[t-1])", name="foreign", title=f'"{FOREIGN}"'), encoding="utf-8")
    command = arguments.replace("FILE", str(file)).split()
    (code, wide), (other, narrow) = (printed(monkeypatch, *command, encoding=e) for e in ("utf-8", "ascii"))
    assert code == other == 0 and strict(wide) == strict(narrow)


@pytest.mark.parametrize("arguments", ["show FILE", "show FILE --stage spec", "show FILE --latex", "diff FILE FILE"])
def test_text_goes_to_every_terminal(tmp_path, monkeypatch, arguments):
    file = tmp_path / "foreign.yaml"
    file.write_text(cell("h[t] = tanh(x[t] + h[t-1])", name="foreign", title=f'"{FOREIGN}"'), encoding="utf-8")
    assert printed(monkeypatch, *arguments.replace("FILE", str(file)).split(), encoding="ascii")[0] == 0


HALVES = {
    "an escape in a title": (cell("h[t] = x[t] + h[t-1]", title=r'"A\ud800B"'), "half of one"),
    "an escape in a note": (cell("h[t] = x[t] + h[t-1]", notes=r'"A\udfffB"'), "half of one"),
    "an escape in a key": (cell("h[t] = x[t] + h[t-1]", sizes=r'{"\ud800": 2}'), "half of one"),
    "itself in a title": (cell("h[t] = x[t] + h[t-1]", title='"A\ud800B"'), "not allowed"),
    "itself in an equation": (cell("h[t] = x[t] + \udc80 * h[t-1]"), "not allowed"),
    "itself in a comment": (cell("h[t] = x[t] + h[t-1]  # \udc80"), "not allowed"),
}


@pytest.mark.parametrize(("text", "message"), HALVES.values(), ids=HALVES)
def test_half_a_character_is_refused_where_it_stands(text, message):
    """It was taken, and `show`, `pack` and every file that it went to raised UnicodeEncodeError."""
    with pytest.raises(SpecError, match=message) as caught:
        loads(text)
    str(caught.value).encode("utf-8")
    assert caught.value.errors[0].line


def test_half_a_character_in_a_name_of_a_file_can_be_said():
    with pytest.raises(SpecError) as caught:
        load("no\udcff.yaml")
    str(caught.value).encode("utf-8")
