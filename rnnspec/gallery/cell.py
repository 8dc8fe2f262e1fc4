"""The page of a cell.

In: what is known of it. Out: a page. Text of the spec goes through `tag`, which escapes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rnnspec.gallery import usage
from rnnspec.gallery.curve import curve
from rnnspec.gallery.frame import code, page, region, sections
from rnnspec.gallery.known import INPUTS, ROWS, STEPS, Known, units
from rnnspec.language.source import Source
from rnnspec.language.spec import Spec
from rnnspec.show.counts import SIZE, parameter_formula
from rnnspec.show.drawing.svg import svg
from rnnspec.show.equations import shape_text
from rnnspec.show.html.mathml import equations, formula
from rnnspec.show.markup import Markup, join, tag
from rnnspec.show.tex.document import Formulas, formulas

WIDTH = 430.0  # points of a formula's line, where letters have 10
CHECKS = {
    "examples": "cases worked by hand",
    "adjoint, complex step": "derived gradients against complex steps of the definition",
    "adjoint, dot product": "derived gradients against derived directions",
    "tangent, complex step": "derived directions against complex steps of the definition",
}


def cell_page(known: Known, about: str) -> bytes:
    """about: what the page was made with."""
    spec, written = known.spec, formulas(known.spec, WIDTH)
    links, found = sections(
        ("equations", "Equations", _equations(written)),
        ("gradients", "Derived gradients", _gradients(written)),
        ("flow", "Data flow", region("Data flow of a step", Markup(svg(spec)), class_="drawing")),
        ("parameters", "Inputs, states and parameters", _declared(spec)),
        ("use", "Use", _use(spec)),
        ("cost", "Cost", _cost(known)),
        ("reach", "How far gradients reach", _reach(known)),
        ("checks", "Checks", _checks(known, about)),
        ("equal", "What it is equal to", _equal(known)),
        ("notes", "Notes", _notes(known)),
        ("file", "The file", code("The file of the cell", known.text)),
        ("source", "Source", _source(spec)),
    )
    header = tag(
        "header",
        tag("p", tag("a", "All cells", href="../index.html")),
        tag("h1", spec.title or spec.name),
        tag("p", tag("code", spec.name), f" · {spec.source.to_text()}" if spec.source else None, class_="lead"),
        _badge(known),
        links,
    )
    skip = tag("a", "To the equations", href="#equations", class_="skip")
    title = f"{spec.name}: {spec.title}" if spec.title else spec.name
    return page(title, skip, header, tag("main", found), tag("footer", tag("p", about)), about=title)


def _badge(known: Known) -> Markup:
    error, failed = known.error, [r for _, r in known.results if not r.passed]
    if failed:
        return tag("p", tag("a", f"✗ {len(failed)} of {len(known.results)} checks failed", href="#checks"),
                   class_="badge bad")  # fmt: skip
    if error is None:
        return tag("p", "no derivative to check", class_="badge")
    told = f"✓ derivatives agree: error {error.measured:.1e}, {error.tolerance:.0e} allowed"
    return tag("p", told, class_="badge good")


def _equations(written: Formulas) -> Markup:
    constants = [join(" and " if n and n == len(written.constants) - 1 else ", " if n else "", formula(c))
                 for n, c in enumerate(written.constants)]  # fmt: skip
    values = tag("p", "with ", *constants, ".") if constants else None
    return join(region("Equations", equations(written.forward)), values)


def _gradients(written: Formulas) -> Markup:
    parts = written.gradients.split("$")
    text = [formula(part) if n % 2 else part for n, part in enumerate(parts)]
    return join(tag("p", *text), region("Derived gradients", equations(written.backward)))


def _declared(spec: Spec) -> Markup:
    groups = {
        "input": spec.streams, "state": spec.states, "parameter": spec.trained, "fixed parameter": spec.held,
        "noise": {n: spec.shapes[n] for n in spec.noise},
    }  # fmt: skip
    rows = []
    for kind, group in groups.items():
        by_shape: dict[tuple[str, ...], list[str]] = {}
        for name, shape in group.items():
            by_shape.setdefault(shape, []).append(name)
        for shape, names in by_shape.items():
            rows.append(_row(tag("code", ", ".join(names)), tag("code", shape_text(shape)), kind))
    rows += [_row(tag("code", n), "", _size(n, spec)) for n in spec.sizes]
    rows += [_row(tag("code", n), f"{float(v):g}", "constant") for n, v in spec.constants.items()]
    rows += [_row(tag("code", n), ", ".join(c.options), f"choice, now {c.chosen}") for n, c in spec.choices.items()]
    head = tag("thead", tag("tr", *(tag("th", h, scope="col") for h in ("Names", "Shape or value", "What it is"))))
    return region("Inputs, states and parameters", tag("table", head, tag("tbody", *rows)))


def _size(name: str, spec: Spec) -> str:
    size = spec.sizes[name]
    return f"size{f': {size.meaning}' if size.meaning else ''}" + (
        f", {size.default} by default" if size.default is not None else ""
    )


def _row(*cells: str) -> Markup:
    return tag("tr", *(tag("td", cell) for cell in cells))


def _use(spec: Spec) -> Markup:
    parts = (
        ("From a shell", usage.shell(spec)),
        ("In Python", usage.layer(spec)),
        ("In PyTorch", usage.torch(spec)),
    )
    return join(*(join(tag("h3", title), code(title, text)) for title, text in parts))


def _cost(known: Known) -> Markup:
    row, spec = known.row, known.spec
    stages = row["stages"]
    jacobian = [f"{after} by {before}: {text}" for after, told in row["jacobian"].items() for before, text in
                told.items()]  # fmt: skip
    facts = {
        "parameters": parameter_formula(spec),
        f"parameters at {SIZE}": "not known" if row["parameters"] is None else f"{row['parameters']:,}",
        f"operations of a step and row at {SIZE}, a multiply-add is two": (
            "not known" if row["flop"] is None else f"{row['flop']:,}"
        ),
        "recurrent stages: products that wait for one another in a step": (
            "no kernels are made of it" if stages is None else f"{stages}{' (elementwise)' if not stages else ''}"
        ),
        "gates": ", ".join(row["gates"]) or "none",
        "Jacobian of a step": "; ".join(jacobian),
    }
    return tag("dl", *(tag("div", tag("dt", what), tag("dd", text)) for what, text in facts.items()), class_="facts")


def _reach(known: Known) -> Markup:
    name = known.spec.name
    if known.probe is None:
        return tag("p", f"It was not measured: {known.unprobed}")
    p = known.probe
    last = len(p.norms) - 1
    if not p.norms[1] > 0:
        told = "Nothing of the gradient is left at lag 1."
    elif p.reach < last:
        told = f"Beyond lag {p.reach} less than a hundredth of what it is at lag 1 is left"
        told += f"; it changes by {p.rate:.3g} times a step."
    else:
        told = (
            f"At lag {last}, the first step, it is {p.left:.2g} times what it is at lag 1: {p.rate:.3g} times a step."
        )
    how = (
        f"The norm of the gradient of a random projection of the last output, of all states k steps before the end,"
        f" at initial weights: {units(known.spec)} units, {INPUTS} inputs drawn from a normal distribution, {STEPS}"
        f" steps, mean of {ROWS} rows, float64, seed 0. "
    )
    again = f"rnnspec probe {name} --hidden {units(known.spec)} --inputs {INPUTS} --length {STEPS} --rows {ROWS}"
    drawn = curve([float(n) for n in p.norms], f"Gradient norm of {name} against lag. {told}")
    return join(tag("p", told), drawn, tag("p", how, "The same as numbers: ", tag("code", again), class_="quiet"))


def _checks(known: Known, about: str) -> Markup:
    rows = []
    for setting, r in known.results:
        measured = "" if r.measured is None else f"{r.measured:.1e}"
        allowed = "" if r.tolerance is None else f"{r.tolerance:.0e}"
        mark = tag("span", "passed" if r.passed else f"failed: {r.detail}", class_="good" if r.passed else "bad")
        rows.append(_row(tag("code", setting), CHECKS[r.property], measured, allowed, mark))
    heads = ("Cell", "What was compared", "Error", "Allowed", "Result")
    head = tag("thead", tag("tr", *(tag("th", h, scope="col") for h in heads)))
    told = join(
        "Measured when this page was made, by the reference, which interprets the equations in float64; errors are"
        " relative. Kernels are not compiled for it: ",
        tag("code", f"rnnspec check {known.spec.name}"),
        " compares these with the reference, and checks much else.",
    )
    return join(tag("p", told), region("Checks", tag("table", head, tag("tbody", *rows))))


def _equal(known: Known) -> Markup | None:
    spec = known.spec
    claims = [
        tag("li", tag("code", layer), f" with {', '.join(f'{k} = {v}' for k, v in given.items())}" if given else None)
        for layer, given in spec.same_as.items()
    ]
    claimed = join(
        tag("p", "By its own claim, which ", tag("code", f"rnnspec check {spec.name}"), " tries where the library is"
            " installed, it is the same function as:"), tag("ul", *claims)
    ) if claims else None  # fmt: skip
    layouts = ", ".join(spec.layouts)
    carried = tag("p", f"Its weights are carried over to and from {layouts}.") if layouts else None
    return join(claimed, carried, _peers(known)) or None


def _peers(known: Known) -> Markup | None:
    if not known.peers:
        return None
    rows = [
        _row(f"{p.package} {p.version}", tag("code", p.theirs), tag("span", p.result, class_="good" if p.equal else
             "bad"), p.values, p.gradients, p.why) for p in known.peers
    ]  # fmt: skip
    heads = ("Package", "Theirs", "Result", "Values", "Gradients", "Why")
    head = tag("thead", tag("tr", *(tag("th", h, scope="col") for h in heads)))
    told = "Run beside implementations in other packages, with the same weights, in parts of the largest number:"
    return join(tag("p", told), region("Other packages", tag("table", head, tag("tbody", *rows))))


def _notes(known: Known) -> Markup | None:
    parts = [p for p in re.split(r"\n\s*\n", known.spec.notes.strip()) if p]
    return join(*(tag("p", *_linked(part, known)) for part in parts)) if parts else None


def _linked(text: str, known: Known) -> Iterator[str]:
    """A text with links to the cells of the gallery that it names."""
    for part in re.split(r"(\w+)", text):
        other = part in known.pages and part != known.spec.name and ("_" in part or part.isascii())
        yield tag("a", part, href=f"{part}.html") if other else part


def _source(spec: Spec) -> Markup | None:
    if not spec.source:
        return None
    return join(
        tag("p", *_paper(spec.source)), code("BibTeX", spec.source.to_bibtex(spec.name, spec.title)),
    )  # fmt: skip


def _paper(source: Source) -> Iterator[str]:
    yield source.to_text()
    for label, base, number in (("doi", "https://doi.org/", source.doi), ("arXiv", "https://arxiv.org/abs/",
                                source.arxiv)):  # fmt: skip
        if number:
            yield " · "
            yield tag("a", f"{label} {number}", href=base + number, rel="noreferrer")
