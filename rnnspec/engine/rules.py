"""The rules by which a stream learns, as a table.

In: a cell and a rule. Out: the influence of its parameters where it is kept by units, or why it is
not, or why the rule is not defined for this cell. No rule knows a cell by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rnnspec.errors import UnsupportedError
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.symbolic.influence import Influence


@dataclass(frozen=True)
class Rule:
    """mode: of the step's kernel where the influence is kept by units, "" where it never is. reach:
    where it is kept as a matrix, after how many steps a parameter's first effect still counts (0:
    always, None: it is never kept so). leaks: whether states may only decay by themselves. paper:
    where it is from.
    """

    mode: str
    reach: int | None
    paper: str
    leaks: bool = False


RULES: Mapping[str, Rule] = {
    "exact": Rule("influence", 0, "Williams & Zipser 1989"),
    "snap1": Rule("influence_own", 1, "Menick et al. 2020"),
    "snap2": Rule("influence", 2, "Menick et al. 2020"),
    "rflo": Rule("influence_cut", None, "Murray 2019", leaks=True),
    "eprop": Rule("influence_cut", None, "Bellec et al. 2020"),
    "uoro": Rule("", 0, "Tallec & Ollivier 2017"),
}


def by_units(spec: Spec, rule: str) -> Influence | str:
    """The influence of a cell's parameters where it is kept by units, or why it is not. Raises
    UnsupportedError where the rule is not defined otherwise."""
    own = RULES[rule]
    if not own.mode:
        return "the rule draws it at random"
    with making:
        from rnnspec.lowering.pipeline import influence
        from rnnspec.symbolic.influence import NotLocal
    try:
        found = influence(spec, own.mode)
    except NotLocal as error:
        if own.reach is None:
            raise UnsupportedError(
                f"{rule!r} ({own.paper}) leaves out what units do to one another by products, and needs every parameter"
                f" to act on one unit; in '{spec.name}' {error}. rule='uoro' has no such condition."
            ) from error
        return str(error)
    if own.leaks and found.varying:
        raise UnsupportedError(
            f"{rule!r} ({own.paper}) is defined for units that leak: without the products between them, a state of"
            f" '{spec.name}' would have to decay by a factor that is the same at every step, and it does not."
            f" rule='eprop' takes that factor as it is."
        )
    return found
