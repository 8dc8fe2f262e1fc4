"""From a failure to the smallest case that still fails, and to Python that repeats it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rnnspec.check.outcome import Outcome, Sized
from rnnspec.check.sampling import NoSampleError, Shapes, size_values
from rnnspec.check.subject import Subject
from rnnspec.errors import UnsupportedError

ATTEMPTS = 80
SECONDS = 15.0
ARGUMENTS = {"cell", "name", "dtype", "steps", "rows", "sizes", "ragged", "number", "seed"}  # of check_property


def attempt(check: Callable[[], Outcome]) -> Outcome:
    """The outcome of a check; an error that it raises is a failure, except that something may not
    be offered yet."""
    try:
        return check()
    except UnsupportedError as error:
        return Outcome(skipped=str(error))
    except Exception as error:  # a check reports whatever goes wrong in what it checks
        return Outcome(float("inf"), 0.0, f"{type(error).__name__}: {error}", error=type(error))


def smallest(check: Sized, known: Subject, failure: Outcome) -> Outcome:
    """The failing outcome at sizes of which none can be made smaller (within a budget of attempts
    and seconds).

    failure: without shapes, where the check raised an error; then the first sizes that raise one
    are looked for.
    """
    if failure.shapes is None:
        try:
            numbered = [replace(s, number=n) for n, s in enumerate(check.shapes(known))]
        except Exception:  # the very sizes are asked of a point that can't be found: what failed is known already
            return failure
        failure = next((o for o in (_at(check, known, s) for s in numbered) if _fails(o)), failure)
    if failure.shapes is None:
        return failure
    end, left = time.monotonic() + SECONDS, ATTEMPTS
    best = replace(failure, shapes=replace(failure.shapes, sizes=size_values(known.spec, failure.shapes.sizes)))
    found = True
    while found:
        found = False
        for shapes in _smaller(best.shapes):  # type: ignore[arg-type]
            if not left or time.monotonic() > end:
                return best
            left -= 1
            outcome = _at(check, known, shapes)
            if _fails(outcome):
                best, found = outcome, True
                break
    return best


def _at(check: Sized, known: Subject, shapes: Shapes) -> Outcome:
    return replace(attempt(lambda: check.at(known, shapes)), shapes=shapes)


def _fails(outcome: Outcome) -> bool:
    no_sample = outcome.error is not None and issubclass(outcome.error, NoSampleError)
    return not outcome.passed and not no_sample


def _smaller(shapes: Shapes) -> Iterator[Shapes]:
    """Each number at its smallest, half, or one less; all rows of full length."""
    if shapes.ragged:
        yield replace(shapes, ragged=False)
    yield from (replace(shapes, steps=n) for n in _less(shapes.steps))
    yield from (replace(shapes, rows=n) for n in _less(shapes.rows))
    sizes = dict(shapes.sizes)  # type: ignore[arg-type]
    for name, size in sizes.items():
        for value in _less(size):
            yield replace(shapes, sizes=sizes | {name: value})


def _less(value: int) -> list[int]:
    return sorted({1, value // 2, value - 1} - {0, value}) if value > 1 else []


def snippet(name: str, known: Subject, outcome: Outcome) -> str:
    """Python that checks one property of one cell again, at the sizes of the outcome."""
    cell, settings = (repr(known.origin[0]), known.origin[1]) if known.origin else ("spec", {})
    lines = ["from rnnspec.check import check_property", ""]
    if settings.keys() & ARGUMENTS:
        lines.insert(0, "from rnnspec import load")
        cell, settings = f"load({', '.join([cell, *_keywords(settings)])})", {}
    numbers: dict[str, object] = {"seed": known.seed} if known.seed else {}
    if (shapes := outcome.shapes) is not None:
        at = {"steps": shapes.steps, "rows": shapes.rows, "sizes": dict(size_values(known.spec, shapes.sizes))}
        numbers = at | {n: v for n, v in (("ragged", shapes.ragged), ("number", shapes.number)) if v} | numbers
    arguments = ", ".join([cell, repr(name), repr(known.dtype), *_keywords({**numbers, **settings})])
    lines += [] if known.origin else ["# spec: the Spec that was checked"]
    lines += [f"result = check_property({arguments})", "assert result.passed, result.detail"]
    return "\n".join(lines)


def _keywords(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items()]
