"""What `sizes` says: a number or an expression is a default or a fault, words are a meaning."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.language.load import loads

WIDE = "(Aaa + Bbb) * (Ccc + Ddd) * (Eee + Fff) * (Ggg + Hhh) * (Iii + Jjj)"
NAMES = ["Aaa", "Bbb", "Ccc", "Ddd", "Eee", "Fff", "Ggg", "Hhh", "Iii", "Jjj"]


def with_size(says: str) -> str:
    return cell(
        "h[t] = tanh(W @ x[t]) + h[t-1]",
        sizes=f"{{P: {says}}}",
        inputs="{x: P}",
        states="{h: H}",
        parameters="{W: [H, P]}",
    )


@pytest.mark.parametrize(
    "says",
    ["012", "1_000", "0x10", "0b11", "0", "-1", "-H", "1.5", ".5", "true", "No", "null", "~", "'012'", "99999999999999"]
    + ["2 * Q", "H + Q", "H - 1", "0 * H", "H / 2", "H ** 2", "２", "½", "3H", "P", "2 * P"],
)
def test_what_is_meant_as_a_size_and_is_none_is_a_fault(says):
    """It silently became the meaning of the size, which then had no default."""
    with pytest.raises(SpecError, match="the default of the size 'P'") as caught:
        loads(with_size(says))
    assert caught.value.errors[0].line


@pytest.mark.parametrize(
    ("says", "default"), [("3", "3"), ("1e3", "1000"), ("H", "H"), ("2*H + 1", "2*H + 1"), ('"3"', "3")]
)
def test_defaults(says, default):
    size = loads(with_size(says)).sizes["P"]
    assert (size.meaning, size.default) == ("", default)


@pytest.mark.parametrize("says", ["width", "hidden-units", "2 layers", "H H", "units, and 3 more", "{meaning: 012}"])
def test_words_are_a_meaning(says):
    size = loads(with_size(f'"{says}"' if "," in says else says)).sizes["P"]
    assert size.meaning and size.default is None


def test_defaults_that_need_each_other():
    text = cell(
        "h[t] = h[t-1] + sum(x[t]) + sum(w)",
        sizes="{P: Q, Q: 2 * P}",
        inputs="{x: H}",
        states="{h: []}",
        parameters="{w: [P, Q]}",
    )
    with pytest.raises(SpecError, match="needs itself") as caught:
        loads(text)
    assert len(caught.value.errors) == 2


def test_a_size_that_grows_when_it_is_written_out_is_refused_at_its_place():
    """59 characters of a shape became 600, and a SizeError without a place."""
    text = cell(
        "h[t] = h[t-1] + sum(w) + " + " + ".join(f"sum(x{n}[t])" for n in NAMES),
        inputs="{" + ", ".join(f"x{n}: {n}" for n in NAMES) + "}",
        states="{h: []}",
        parameters=f"{{w: [{WIDE}]}}",
    )
    with pytest.raises(SpecError, match="over 200 characters when it is written out") as caught:
        loads(text)
    assert caught.value.errors[0].line and caught.value.errors[0].column
