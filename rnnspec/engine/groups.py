"""Weights by row: parameters with an axis of groups before their own, each for as many rows.

In: parameters as a caller has them. Out: which of them have the axis, and how long it is. Rows are
dealt out in order: of B rows with G weights the first B / G have the first weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from numpy import ndarray as Array

from rnnspec.errors import ShapeError, UnsupportedError


@dataclass(frozen=True)
class Groups:
    """count: how many weights there are; names: the parameters that are [count, ...]; all other
    parameters are the same for all rows."""

    count: int
    names: frozenset[str]

    def of(self, params: Mapping[str, Array], group: int) -> dict[str, Array]:
        """The parameters of one group."""
        return {n: a[group] if n in self.names else a for n, a in params.items()}

    def along(self, directions: Mapping[str, Array], group: int) -> dict[str, Array]:
        """The directions [K, ...] of the parameters of one group, of [K, count, ...] or
        [K, ...]."""
        return {n: a[:, group] if n in self.names else a for n, a in directions.items()}


def groups_of(params: Mapping[str, Array], shapes: Mapping[str, tuple[object, ...]]) -> Groups | None:
    """The groups of parameters, None where no parameter has an axis before its own. Raises
    ShapeError where they differ in its length, or it is 0."""
    counts = {n: a.shape[0] for n, a in params.items() if a.ndim == len(shapes[n]) + 1}
    if not counts:
        return None
    if len(set(counts.values())) > 1 or 0 in counts.values():
        told = ", ".join(f"{n!r} {count}" for n, count in counts.items())
        raise ShapeError(
            f"parameters with an axis of weights before their own must have as many, at least 1: there are of {told}."
        )
    return Groups(next(iter(counts.values())), frozenset(counts))


def first_of(params: Mapping[str, Array], groups: Groups | None) -> Mapping[str, Array]:
    """The parameters of the first group, whose shapes are those of all."""
    return params if groups is None else groups.of(params, 0)


@contextmanager
def told_of(groups: Groups | None, params: Mapping[str, Array]) -> Iterator[None]:
    """A ShapeError that is raised within says which parameters were read as weights by row."""
    try:
        yield
    except ShapeError as error:
        if groups is None:
            raise
        shapes = ", ".join(f"{n!r} {params[n].shape}" for n in sorted(groups.names))
        raise ShapeError(f"{error} Read as weights by row, for their axis before all others: {shapes}.") from None


def check_rows_of(groups: Groups | None, rows: int) -> None:
    """Raises ShapeError unless every group has as many rows."""
    if groups is not None and rows % groups.count:
        raise ShapeError(
            f"the weights are of {groups.count} groups of rows ({', '.join(sorted(groups.names))} have an axis of"
            f" {groups.count} before their own), and {rows} rows can't be dealt out to as many equal groups."
        )


def refuse_groups(groups: Groups | None, what: str, instead: str) -> None:
    """Raises UnsupportedError where parameters have an axis of weights. what: has no weights by
    row; instead: what to do."""
    if groups is not None:
        names = ", ".join(sorted(groups.names))
        raise UnsupportedError(
            f"{what} takes no weights by row ({names} have an axis of {groups.count} before their own): {instead}."
        )
