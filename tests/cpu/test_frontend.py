"""The front end of kernels: what a text does compiled is what Python does with it, and what it
can't do is refused with its line."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from lowered import compiled

from rnnspec.backends.cpu.frontend import lower
from rnnspec.backends.cpu.runtime import simd

# in Python a table is a list, and its own address
IN_PYTHON: dict[str, Any] = {
    "pointer_int": lambda table: table,
    "get": lambda table, i: table[i],
    "put": lambda table, i, value: table.__setitem__(i, value),
    "LANES": 8,
}
IN_MACHINE: dict[str, Any] = {**vars(simd), "LANES": 8}
NUMBERS = (-17, -16, -8, -3, -1, 0, 1, 2, 3, 7, 8, 16, 19)


def both(text: str, *arguments: int, length: int = 16) -> None:
    """Asserts that f(table, ...) leaves the same table in Python and compiled."""
    names, expected = dict(IN_PYTHON), [0] * length
    exec(text, names)
    names["f"](expected, *arguments)
    found = np.zeros(length, np.int64)
    compiled(text, IN_MACHINE, "f")(found.ctypes.data, *arguments)
    assert found.tolist() == expected, text


def every_pair(line: str) -> str:
    return f"""
def f(address, n):
    table, at = pointer_int(address), 0
    for a in range(-17, 20, 3):
        for b in range(-9, 10):
            if b != 0:
                put(table, at, {line})
                at += 1
"""


@pytest.mark.parametrize(
    "line",
    [
        "a // b * 1000 + a % b",
        "a // 8 * 100 + a % 8 + LANES // 3",
        "a // 7 - a % 7 * 3",
        "-a + (b - a) * -2",
        "1 if a < b else 2 if a == b else a % LANES",
        "3 if a >= 0 and (b > 0 or a // b > -2) else 4",
        "5 if not a <= b else 6",
    ],
)
def test_arithmetic(line: str) -> None:
    both(every_pair(line), 0, length=13 * 18)


@pytest.mark.parametrize("start, stop, step", list(itertools.product((-3, 0, 2), (-4, 0, 7), (-3, -1, 1, 4))))
def test_ranges(start: int, stop: int, step: int) -> None:
    """With a step that is known, and one that is not."""
    both(
        f"""
def f(address, start, stop, step):
    table, at, last = pointer_int(address), 2, 99
    for i in range(start, stop, {step}):
        put(table, at, i)
        last = i
        i += 100
        at += 1
    for k in range(start, stop, step):
        put(table, 0, get(table, 0) * 3 + k)
    put(table, 1, last)
""",
        start,
        stop,
        step,
    )


def test_names_are_variables_of_one_type() -> None:
    both(
        """
def f(address, n):
    \"\"\"What is set once is known; what is set again is not.\"\"\"
    table, fixed = pointer_int(address), 4
    low, high = n, fixed * LANES
    low, high = high, low
    a = b = low - high
    b -= fixed
    while a > 0 and a != 5:
        a -= 1 if a % 2 == 0 else 3
        if a > 20:
            b += 2
        elif a > 10:
            b += get(table, 0) + 1
        else:
            b = b - 1
    put(table, 1, a)
    put(table, 2, b)
    n = n * 2
    put(table, 3, n)
""",
        3,
    )


def test_what_does_not_matter_is_not_looked_at() -> None:
    """An address of 0 would end the process."""
    text = """
def f(address, null):
    table = pointer_int(address)
    put(table, 0, 7 if null == 0 else get(pointer_int(null), 0))
    if null != 0 and get(pointer_int(null), 0) == 1 or null == 0:
        put(table, 1, 8)
    if null == 0 or get(pointer_int(null), 0) == 1:
        put(table, 2, 9)
"""
    found = np.zeros(3, np.int64)
    compiled(text, IN_MACHINE, "f")(found.ctypes.data, 0)
    assert found.tolist() == [7, 8, 9]


def test_a_quotient_by_zero_is_zero() -> None:
    text = "def f(address, n):\n    put(pointer_int(address), 0, 5 // n)\n    put(pointer_int(address), 1, 5 % n)\n"
    found = np.ones(2, np.int64)
    compiled(text, IN_MACHINE, "f")(found.ctypes.data, 0)
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize(
    "line, why",
    [
        ("n = n ** 2", "Pow"),
        ("n = unknown", "unknown"),
        ("n = other(n)", "other"),
        ("n = at", "at is no variable"),
        ("n = put(pointer_int(n), 0, n)", "put has no value"),
        ("n = load(p, 0)", "type"),
        ("n = 0.5", "type"),
        ("n = n + load(p, 0)", "type"),
        ("n = load(p, 0) < n", "type"),
        ("n = number(n)", "literal"),
        ("n = 1 < n < 3", "Compare"),
        ("p.n = 1", "names"),
        ("n = [n]", "List"),
        ("n = f'{n}'", "JoinedStr"),
        ("n = at(p, offset=n)", "by place"),
        ("return n", "Return"),
        ("with n: n += 1", "With"),
        ("if n: n += 1", "comparison"),
        ("while True: n += 1", "comparison"),
        ("for k in p: n += 1", "For"),
        ("for k in range(n):\n        break", "Break"),
    ],
)
def test_what_is_refused(line: str, why: str) -> None:
    text = f"def other(n):\n    pass\n\ndef f(n):\n    p = pointer(n)\n    m = n\n    n = m + 1\n    {line}\n"
    names = {**IN_MACHINE, "pointer": simd.pointer32, "number": simd.number32, "other": both}
    with pytest.raises(NotImplementedError, match=why) as caught:
        lower(text, names, ["f"])
    assert line.splitlines()[-1].strip() in str(caught.value)
