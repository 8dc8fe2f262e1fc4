"""Gates follow from the equations."""

from __future__ import annotations

import pytest

from rnnspec.language.load import load, loads
from rnnspec.language.roles import gate_names

FOUND = {
    "lstm": ["i", "f", "o"],
    "gru": ["r", "z"],
    "lstm_fgr": ["i", "f", "o"],
    "lem": ["dz", "dh"],
    "rhn": ["g_1", "g_2", "g_3"],
    "rnn": [],
    "on_lstm": ["f", "i", "o", "m", "n"],
    "elman_two_layer": [],
}


@pytest.mark.parametrize("name", FOUND)
def test_gates_of_cells(name: str) -> None:
    assert sorted(gate_names(load(name))) == sorted(FOUND[name])


def test_a_value_between_0_and_1_that_multiplies_nothing_is_no_gate() -> None:
    text = (
        "rnnspec: 1\nname: a\ninputs: {x: H}\nstates: {h: H}\nequations: |\n  s[t] = sigmoid(x[t])\n  {0}\noutputs:"
        " [h]\n"
    )
    assert gate_names(loads(text.replace("{0}", "h[t] = s[t] + 0.5 * h[t-1]"))) == []
    assert gate_names(loads(text.replace("{0}", "h[t] = x[t] * (1 - s[t]) + h[t-1]"))) == ["s"]
