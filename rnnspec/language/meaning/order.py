"""The order of the equations of a step, and the cycles that leave none."""

from __future__ import annotations

from collections.abc import Mapping

from rnnspec.language.syntax.faults import Faults
from rnnspec.language.syntax.tree import Equation, Ref, walk


def in_order(equations: list[Equation], faults: Faults) -> list[Equation]:
    """The equations in an order in which each reads only what stands above it or an earlier step;
    otherwise that of the file."""
    left = {e.target: e for e in equations}
    reads = {name: [n for n in _reads_now(equation) if n in left] for name, equation in left.items()}
    ordered: list[Equation] = []
    done: set[str] = set()
    while left:
        ready = next((e for e in left.values() if all(n in done for n in reads[e.target])), None)
        if ready is None:
            cycle = _cycle(left, reads, done)
            where, advice = "within one step", f" One of them must read an earlier step, like {cycle[-1]}[t-1]."
            if not left[cycle[0]].timed:
                where, advice = "among values computed once per sequence", ""
            faults.add(
                f"a cycle {where}: {' -> '.join([*cycle, cycle[0]])} (each reads the next).{advice}", left[cycle[0]].at
            )
            done |= set(cycle)
            left = {name: e for name, e in left.items() if name not in cycle}
            continue
        ordered.append(left.pop(ready.target))
        done.add(ready.target)
    return ordered


def _reads_now(equation: Equation) -> list[str]:
    return list(dict.fromkeys(n.name for n in walk(equation.value) if isinstance(n, Ref) and not n.time))


def _cycle(left: Mapping[str, Equation], reads: Mapping[str, list[str]], done: set[str]) -> list[str]:
    """A cycle among equations none of which is ready, beginning with its first in the file."""
    path: list[str] = []
    name = next(iter(left))
    while name not in path:
        path.append(name)
        name = next(n for n in reads[name] if n not in done)
    cycle = path[path.index(name) :]
    start = min(range(len(cycle)), key=lambda k: list(left).index(cycle[k]))
    return cycle[start:] + cycle[:start]
