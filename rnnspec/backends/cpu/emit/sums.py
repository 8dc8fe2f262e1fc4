"""The text of sums over rows: values added to the gradients of parameters, in sums of sums."""

from __future__ import annotations

from collections.abc import Callable

from rnnspec.backends.cpu.emit.emission import Emission
from rnnspec.backends.cpu.machine import BLOCK_K

LEAF, PIECE = BLOCK_K, 16  # rows that are summed by themselves before they are added to a gradient, and before that


def gradient(work: Emission, parameter: str) -> str:
    """The variable that points to where a gradient is summed."""
    return work.name(f"gradient {parameter}", f"d_{parameter}_total")


def summed(
    work: Emission, sums: list[tuple[str, str]], place: str, compute: Callable[[], None], lanes: str = ""
) -> None:
    """Adds values of the rows to gradients, in sums of sums. place: of a vector in a gradient;
    compute: writes what has the values of a row; lanes: how many of the vector's are its own, if
    not all."""
    parameters = [parameter for parameter, _ in sums]
    for parameter in parameters:
        work.line(f"{_sum(work, parameter, 'total')} = load({gradient(work, parameter)}, {place})")
    with work.block(f"for leaf in range(first, first + count, {LEAF}):"):
        _clear(work, parameters, "leaf")
        with work.block(f"for few in range(leaf, min(leaf + {LEAF}, first + count), {PIECE}):"):
            _clear(work, parameters, "piece")
            with work.block(f"for row in range(few, min(few + {PIECE}, first + count)):"):
                compute()
                for parameter, value in sums:
                    work.line(f"{_sum(work, parameter)} = {_sum(work, parameter)} + {work.value(value)}")
            _add(work, parameters, "leaf", "piece")
        _add(work, parameters, "total", "leaf")
    store = f"store_first({{}}, {{}}, {{}}, {lanes})" if lanes else "store({}, {}, {})"
    for parameter in parameters:
        work.line(store.format(gradient(work, parameter), place, _sum(work, parameter, "total")))


def _sum(work: Emission, parameter: str, of: str = "piece") -> str:
    """The variable with a gradient's sum over a piece, a leaf, or all rows so far."""
    return work.name(f"sum {parameter} {of}", f"d_{parameter}_{'sum' if of == 'piece' else f'{of}_sum'}")


def _clear(work: Emission, parameters: list[str], of: str) -> None:
    for parameter in parameters:
        work.line(f"{_sum(work, parameter, of)} = number(0.0)")


def _add(work: Emission, parameters: list[str], to: str, of: str) -> None:
    for parameter in parameters:
        work.line(f"{_sum(work, parameter, to)} = {_sum(work, parameter, to)} + {_sum(work, parameter, of)}")
