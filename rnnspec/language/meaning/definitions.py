"""The functions and choices of a file: what they call, which names they use, and what is wrong with
them as a whole."""

from __future__ import annotations

from functools import cache

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.reading.document import Document
from rnnspec.language.syntax.faults import Faults, did_you_mean
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.language.syntax.tree import Call, names_in, names_in_equation, walk

ALONG_FEATURES = 16  # about as many operations as softmax, norm and layer_norm are written with


@cache
def written_size(name: str) -> int:
    """What a call of a function of the language weighs beside its arguments, in names, numbers and
    operators: of those that it is written with, which are quickly dealt with, a third."""
    if name in FEATURES:
        return 1 if FEATURES[name].moves else ALONG_FEATURES
    row = FUNCTIONS.get(name)
    if row is None or row.value is None:
        return 1
    parts = list(walk(parse_expression(row.value)))
    return 1 + sum(written_size(p.function) if isinstance(p, Call) else 1 for p in parts) // 3


def used_names(document: Document) -> frozenset[str]:
    """Every name that an equation, a function's body, a choice's list or a setting of `integrate`
    mentions."""
    bodies = [names_in(f.value.body) for f in document.functions.values()]
    options = [choice.value for choice in document.choices.values()]
    equations = [names_in_equation(e) for group in document.equations.values() for e in group]
    return frozenset().union(document.integrate.names(), *bodies, *options, *equations)


def check_cycles(document: Document, faults: Faults) -> bool:
    """Notes functions that call themselves, over others or over choices too."""
    calls = {
        name: [n.function for n in walk(entry.value.body) if isinstance(n, Call)]
        for name, entry in document.functions.items()
    }
    calls |= {name: list(entry.value) for name, entry in document.choices.items()}
    done: set[str] = set()
    for start in document.functions:
        path, waiting = [start], [iter(calls[start])]
        while waiting:
            callee = next(waiting[-1], None)
            if callee is None:
                done.add(path.pop())
                waiting.pop()
            elif callee in path:
                cycle = " -> ".join([*path[path.index(callee) :], callee])
                faults.add(f"functions can't call themselves: {cycle}.", document.functions[start].at)
                return True
            elif callee in calls and callee not in done:
                path.append(callee)
                waiting.append(iter(calls[callee]))
    return False


def check_choices(document: Document, faults: Faults) -> None:
    """Each option of a choice is a function, all of as many arguments."""

    def known(name: str) -> int | None:
        if name in document.functions:
            return len(document.functions[name].value.args)
        row = FUNCTIONS.get(name) or FEATURES.get(name)
        return None if row is None or name in INTERNAL else len(row.args)

    for name, entry in document.choices.items():
        for option in entry.value:
            if known(option) is None:
                near = did_you_mean(option, [*document.functions, *FUNCTIONS, *FEATURES])
                faults.add(f"the choice '{name}' lists '{option[:60]}', which is not a function.{near}", entry.at)
        counts = {known(option) for option in entry.value} - {None}
        if len(counts) > 1:
            faults.add(f"the options of the choice '{name}' take different numbers of arguments.", entry.at)
