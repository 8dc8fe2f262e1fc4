"""Whatever the text: a Spec or a SpecError, within a second."""

from __future__ import annotations

import contextlib
import time

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.language.load import loads


def spec_or_error(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(SpecError):
        loads(text)
    assert time.process_time() - start < 1


HOSTILE = [
    *("(" * 60_000, "[" * 60_000, "{" * 60_000, "f(" * 30_000, "-" * 60_000 + "x", "+".join("a" * 30_000)),
    *("not " * 15_000 + "x", "x**" * 20_000 + "x", "x<" * 20_000 + "x"),
    *("a: " * 20_000, "- " * 30_000, "? " * 30_000, "&a " * 20_000, "*a " * 20_000, "[a, " * 50 + "[[" * 20_000),
    *('"' + "\\U99999999", "%YAML " + "9" * 5000, "%"),
    *("\0", "\ufeff", "\ud800", "\x85\u2028", "!", "|", ">", "'", "--- |\n---", "- - - - -"),
    *("[{[{", "a: [b, c", "\t", "@", "`", "<<: *a", "a: &a {<<: *a}", "? [a]\n: b", "{a, b}: c"),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused_in_time(text):
    for whole in (text, cell("h[t] = x[t]\n" + text), cell("h[t] = " + text)):
        spec_or_error(whole)


NOISE = st.text(st.characters(codec="utf-8"), max_size=200)
PIECES = st.lists(
    st.sampled_from(
        [
            *"()[]{},:=+-*/@<#|>tW",
            *("h[t]", "x[t]", "h[t-1]", "**", "==", "and", "not", "where(", "tanh(", "sum(", "phi(", "f("),
            *("1", "2.5", "1e9", "\n", "\n  ", "lambda", ".T", "for k in 1..L:", "for k in 1..3:\n   "),
            *("s[t, k]", "s[t, k-1]", "W[k]", "W[1]", "x[t-3]", "h[t-L]", "A = ", "eye(", "part(", "concat("),
            *("outer(", "softmax(", "layer_norm(", "L", "D", "k", "s[t, 0] = x[t]\n"),
            *("&a ", "*a ", "!!x ", "- ", "'", '"', "\t", "\0", "é", "extends: lstm", "sizes: "),
        ]
    ),
    max_size=40,
).map(" ".join)
KEYS = [
    "sizes",
    "constants",
    "choices",
    "functions",
    "init",
    "layouts",
    "same_as",
    "examples",
    "no_gradient",
    "fixed",
    "outputs",
    "parameters",
    "states",
    "extends",
    "notes",
    "inputs",
    "noise",
    "apply",
    "defaults",
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(NOISE, PIECES))
@example("a: !!binary x")
@example("\ud800")
def test_any_text_gives_a_spec_or_a_spec_error(text):
    for whole in (
        text,
        cell(text),
        cell("h[t] = " + text, functions="\n  f(a): a * a", choices="{phi: [tanh]}"),
        cell("h[t] = f(x[t])", functions=f"\n  f(a): {text}"),
        cell(f"for k in 1..3:\n  s[t, k] = {text}\nh[t] = s[t, 3]", sizes="{L: 3}", parameters="{W: [L, D]}"),
    ):
        spec_or_error(whole)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(KEYS),
    st.recursive(
        st.sampled_from(
            [
                "a",
                "W",
                "h",
                "x",
                "D",
                "1",
                "0",
                "f(a)",
                "tanh",
                "W*",
                "lstm",
                "2*D",
                "t",
                "title",
                "D + 1",
                "",
                "normal(1)",
                "dropout(a) per sequence",
                "layer_norm",
                "0.1",
            ]
        )
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "a",
                        "W",
                        "h",
                        "x",
                        "D",
                        "f(a)",
                        "f(",
                        "sizes",
                        "outputs",
                        "inputs",
                        "W, V",
                        "meaning",
                        "zoneout",
                        "drop_gate",
                        "dropconnect",
                        "state_noise",
                        "rate",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    ),
)
def test_any_value_of_any_key_gives_a_spec_or_a_spec_error(key, value):
    sections = {
        "inputs": "{x: D}",
        "states": "{h: D}",
        "parameters": "{W: [D, D]}",
        key: yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n").strip(),
    }
    spec_or_error(cell("h[t] = W @ x[t]", **sections))
