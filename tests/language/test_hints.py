"""Hints at what is written correctly and computed badly."""

from __future__ import annotations

import warnings

import pytest
from tiny import cell

from rnnspec.language.hints import FORMS, SpecHint
from rnnspec.language.load import load, loads, spec_names


@pytest.mark.parametrize("form", [form for form, _, _ in FORMS])
def test_each_form_is_hinted_at_with_its_place_and_what_to_write(form):
    better = next(b for f, b, _ in FORMS if f == form)
    written = form.replace("v", "(x[t] + y[t])").replace("di(x[t] + y[t])", "div")
    text = cell(f"n[t] = 2 * ({written}) * h[t-1]\n  h[t] = n[t]", inputs="{x: N, y: N}", states="{h: N}")
    with pytest.warns(SpecHint, match=rf"<text>:\d+:\d+: .*{better[:-3]}\(v\) does not: write that") as found:
        loads(text)
    assert len(found) == 1


@pytest.mark.parametrize(
    "written", ["log(1 + exp(x[t])) + 0 * h[t-1]", "log(2 + exp(x[t])) + h[t-1]", "exp(x[t]) / (1 + exp(h[t-1]))"]
)
def test_only_the_form_itself_is_hinted_at(written):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loads(cell(f"h[t] = {written}"))
    assert len(found) == written.startswith("log(1")


def test_no_cell_that_comes_with_rnnspec_has_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in spec_names():
            load(name)
