"""The index of a gallery: every cell in a row, with search and filters.

In: rows of plain data, as `known` makes them and the cache keeps them. Out: a page. Without a
script it is a list of all cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnnspec.gallery.frame import page
from rnnspec.gallery.known import Known
from rnnspec.show.counts import SIZE
from rnnspec.show.markup import Markup, join, tag

FAMILY = 3  # cells that share a word make a family
OTHER = "other"
MANY = (1_000, 3_000, 10_000, 30_000, 100_000, 200_000, 500_000, 1_000_000)  # parameters, to choose from
_NAME = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True)
class Row:
    """A cell in the index. parameters: at SIZE; stages: recurrent ones; None where not known.
    jacobian: what a step's is, each kind once; agree: libraries; source: in a line; passed: whether
    all checks of its page did."""

    name: str
    title: str
    year: int | None
    parameters: int | None
    stages: int | None
    states: tuple[str, ...]
    gates: tuple[str, ...]
    jacobian: tuple[str, ...]
    agree: tuple[str, ...]
    source: str
    passed: bool


_KINDS = {
    "str": lambda v: isinstance(v, str),
    "int | None": lambda v: v is None or (isinstance(v, int) and not isinstance(v, bool)),
    "tuple[str, ...]": lambda v: isinstance(v, list | tuple) and all(isinstance(t, str) for t in v),
    "bool": lambda v: isinstance(v, bool),
}


def row_of(known: Known) -> Row:
    """The row of a cell."""
    told = known.row
    kinds = dict.fromkeys(text for states in told["jacobian"].values() for text in states.values())
    numbers = (told["year"], told["parameters"], told["stages"])
    lists = (tuple(told["states"]), tuple(told["gates"]), tuple(kinds), tuple(told["agree"]))
    return Row(told["name"], told["title"], *numbers, *lists, told["source"]["text"], known.passed)


def row_from(value: object) -> Row:
    """A row as it was kept; ValueError for anything else."""
    fields = Row.__dataclass_fields__
    if not isinstance(value, dict) or value.keys() != fields.keys():
        raise ValueError("no row of an index")
    for name, kind in fields.items():
        if not _KINDS[str(kind.type)](value[name]):
            raise ValueError(f"{name} is no {kind.type}")
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in value.items()}
    return Row(**given)


def index(rows: Sequence[Row], about: str) -> bytes:
    """rows: of the cells, in the order of their names; about: what the page was made with."""
    family = families([r.name for r in rows])
    heads = ("Cell", "Year", "States", "Gates", "Parameters", "Stages", "Jacobian of a step", "Agree")
    numbers = ("Parameters", "Stages")
    head = tag("tr", *(tag("th", h, scope="col", class_="number" if h in numbers else None) for h in heads))
    table = tag("table", tag("thead", head), tag("tbody", *(_row(r, family[r.name]) for r in rows)), class_="cells")
    return page(
        "Recurrent cells",
        tag("a", "To the cells", href="#cells", class_="skip"),
        tag(
            "header",
            tag("h1", "Recurrent cells"),
            tag(
                "p",
                "Each from its equations: their derived gradients, what a step costs, how far gradients reach at the"
                " start, and how exactly the derivatives were found to agree with the definition.",
                class_="lead",
            ),
        ),
        tag(
            "main",
            _form(rows, family),
            tag("p", f"{len(rows)} cells", id="count", role="status", aria_live="polite"),
            tag("div", table, id="cells"),
        ),
        tag("footer", tag("p", _explained()), tag("p", about)),
        scripted=True,
        about="Recurrent cells with their equations, gradients and costs",
    )


def families(names: Iterable[str]) -> dict[str, str]:
    """The family of each cell, by its name: the longest word that FAMILY names have, or end one of
    their words with; "other" for none."""
    names = list(names)
    words = {name: _NAME.findall(name.lower().replace("_", " ")) for name in names}
    heads = {word for found in words.values() for word in found if len(word) > 2}
    count = Counter(h for found in words.values() for h in heads if any(w.endswith(h) for w in found))
    kept = [h for h in heads if count[h] >= FAMILY and h in words.get(h, ())]
    return {
        name: max((h for h in kept if any(w.endswith(h) for w in found)), key=lambda h: (len(h), h), default=OTHER)
        for name, found in words.items()
    }


def _row(row: Row, family: str) -> Markup:
    find = " ".join([row.name, row.title, row.source, *row.states, *row.gates]).lower()
    data = {
        "data_name": row.name, "data_find": find, "data_family": family, "data_year": row.year or "",
        "data_states": len(row.states), "data_gates": len(row.gates), "data_jacobian": "|".join(row.jacobian),
        "data_stages": "" if row.stages is None else row.stages,
        "data_parameters": "" if row.parameters is None else row.parameters, "data_agree": "|".join(row.agree),
    }  # fmt: skip
    wrong = None if row.passed else tag("strong", " a check failed", class_="bad")
    name = tag("a", row.name, href=f"cells/{row.name}.html", class_="name")
    parameters = "?" if row.parameters is None else f"{row.parameters:,}"
    return tag(
        "tr",
        tag("td", name, wrong, tag("br"), row.title),
        _cell("Year", str(row.year or "")),
        _cell("States", ", ".join(row.states)),
        _cell("Gates", ", ".join(row.gates)),
        _cell(f"Parameters at {SIZE}", parameters, number=True),
        _cell("Stages", "–" if row.stages is None else str(row.stages), number=True),
        _cell("Jacobian", ", ".join(row.jacobian)),
        _cell("Agree", ", ".join(row.agree)),
        **data,
    )


def _cell(what: str, text: str, number: bool = False) -> Markup:
    return tag("td", text, data_what=what if text else None, class_="number" if number else None)


def _form(rows: Sequence[Row], family: Mapping[str, str]) -> Markup:
    years = sorted({r.year for r in rows if r.year})
    counts = {
        "states": sorted({len(r.states) for r in rows}),
        "gates": sorted({len(r.gates) for r in rows}),
        "stages": sorted({r.stages for r in rows if r.stages is not None}),
    }
    most = max((r.parameters or 0 for r in rows), default=0)
    search = tag("input", type="search", name="find", autocomplete="off", placeholder="a name, an author, a gate, ...")
    return tag(
        "form",
        tag("label", join("Search (key ", tag("kbd", "/"), ")"), search, class_="search"),
        _select("Family, by its name", "family", sorted(set(family.values()) - {OTHER}) + [OTHER]),
        _select("Since", "since", years),
        _select("States", "states", counts["states"]),
        _select("Gates", "gates", counts["gates"]),
        _select("Jacobian of a step", "jacobian", sorted({kind for r in rows for kind in r.jacobian})),
        _select("Recurrent stages", "stages", counts["stages"]),
        _select(f"Parameters at {SIZE}, at most", "parameters", [n for n in MANY if n < most], "{:,}"),
        _select("A library that agrees", "agree", sorted({a for r in rows for a in r.agree})),
        _select("Order", "sort", ["name", "year", "parameters"], every=False),
        tag("div", tag("button", "All cells again", type="reset")),
        hidden=True,
    )


def _select(label: str, name: str, values: Iterable[Any], form: str = "{}", every: bool = True) -> Markup:
    options = [tag("option", form.format(value), value=value) for value in values]
    return tag("label", label, tag("select", tag("option", "any", value="") if every else None, *options, name=name))


def _explained() -> Markup:
    return join(
        f"Parameters: with {SIZE} inputs and {SIZE} units. Recurrent stages: products that wait for one another in a"
        " step; 0 is an elementwise recurrence. Jacobian: what each state after a step takes from those before it."
        " Agree: libraries that compute the same, as the cell claims and ",
        tag("code", "rnnspec check"),
        " tries where they are installed, or as was measured beside them.",
    )
