"""YAML text -> Document: what one file says, by key, each thing with its place.

In: the text of a file. Out: a Document, with the faults of its form (unknown keys, wrong kinds of
value, bad names, equations that can't be read). Not here: what the names mean together, which is
`check.py`, after `extend.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from fractions import Fraction

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rnnspec.errors import Problem, SpecError
from rnnspec.language.draws import Stated, stated
from rnnspec.language.functions import FEATURES, FUNCTIONS
from rnnspec.language.reading.document import RESERVED, Definition, Document, Entry
from rnnspec.language.reading.initialisers import FORMS, INITIALISERS, initialiser
from rnnspec.language.reading.steps import read_steps
from rnnspec.language.sizes import SizeError, canonical_size
from rnnspec.language.spec import Default, Example, Shape, Size
from rnnspec.language.syntax.faults import Faults, bad_name, did_you_mean, listed
from rnnspec.language.syntax.parse import decimal, parse_equations, parse_expression
from rnnspec.language.syntax.tree import Equation, Expr, Place, Ref, with_parts
from rnnspec.language.syntax.yamltext import Sheet, align, compose, locate_block

# constants and choices are keywords beside these
ARGUMENTS = frozenset(
    {
        "backend",
        "batch_first",
        "bias",
        "bidirectional",
        "cell",
        "dropout",
        "dtype",
        "hidden_size",
        "input_size",
        "num_layers",
        "proj_size",
        "seed",
        "self",
        "sizes",
        "spec",
        "threads",
    }
)


def read(text: str, file: str = "<text>") -> Document:
    """What the text says. Raises SpecError only where nothing can be read at all; other faults are
    in `.problems`."""
    root, sheet = compose(text, file)
    faults = Faults({file: sheet.rows})
    if not isinstance(root, MappingNode):
        raise sheet.problem(
            "a spec is a mapping of keys to values: rnnspec: 1, name: ..., equations: ...", root.start_mark.index
        )
    reader = Reader(sheet, faults)
    keys: dict[str, Place] = {}
    values: dict[str, object] = {}
    for key, at, node in reader.pairs(root, "the file"):
        if key not in _KEYS:
            faults.add(f"unknown key '{key[:60]}'.{did_you_mean(key, _KEYS)} Known here: {listed(_KEYS, 30)}.", at)
            continue
        keys[key] = at
        values |= _KEYS[key](reader, node)
    needed = ("rnnspec", "name") if "extends" in keys else ("rnnspec", "name", "states", "equations", "outputs")
    for key in needed:
        if key not in keys:
            faults.add(f"the key '{key}' is missing. Write {_SAMPLES[key]}", Place(0, 0, 1, file))
    return Document(file=file, lines={file: sheet.rows}, keys=keys, problems=tuple(faults.found), **values)  # type: ignore[arg-type]


_SAMPLES = {
    "rnnspec": "'rnnspec: 1', the version of the format.",
    "name": "'name: my_cell', the name of the file without .yaml.",
    "states": "'states: {h: H}', what is carried from step to step.",
    "equations": "'equations: |' and below it one equation a line.",
    "outputs": "'outputs: [h]', what is emitted every step.",
}


class Reader:
    """Reads the values of the keys; notes what is wrong and goes on with what is left."""

    def __init__(self, sheet: Sheet, faults: Faults):
        self.sheet, self.faults = sheet, faults

    def wrong(self, message: str, node: Node) -> None:
        self.faults.add(message, self.sheet.place(node))

    # parts of YAML

    def pairs(self, node: Node, what: str) -> list[tuple[str, Place, Node]]:
        """Key, place and value of each entry; a key given twice is a fault that names both
        lines."""
        if not isinstance(node, MappingNode):
            if not (isinstance(node, ScalarNode) and not node.value and node.style is None):  # nothing after the colon
                self.wrong(f"{what} is a mapping, like {{name: value}}.", node)
            return []
        seen: dict[str, Place] = {}
        found = []
        for key, value in node.value:
            at = self.sheet.place(key)
            if not isinstance(key, ScalarNode):
                self.wrong(f"a key in {what} is a plain name.", key)
            elif key.value in seen:
                self.faults.add(
                    f"'{key.value[:60]}' is given twice in {what}: here and on line {seen[key.value].line}.", at
                )
            else:
                seen[key.value] = at
                found.append((key.value, at, value))
        return found

    def items(self, node: Node, what: str) -> list[Node]:
        if isinstance(node, SequenceNode):
            return list(node.value)
        self.wrong(f"{what} is a list, like [a, b].", node)
        return []

    def text(self, node: Node, what: str) -> str:
        if isinstance(node, ScalarNode):
            return str(node.value)
        self.wrong(f"{what} is a text.", node)
        return ""

    def number(self, node: Node, what: str) -> Fraction | None:
        value = decimal(node.value.strip()) if isinstance(node, ScalarNode) else None
        if value is None:
            self.wrong(f"{what} is a number, like 0.1 or 1e-3.", node)
        return value

    def array(self, node: Node, what: str) -> object:
        """Nested lists of numbers, as nested tuples of floats."""
        if isinstance(node, SequenceNode):
            return tuple(self.array(item, what) for item in node.value)
        value = self.number(node, f"each entry of {what}")
        return float(value) if value is not None else 0.0

    # names

    def named(self, node: Node, what: str) -> list[tuple[str, Place, Node]]:
        """Like `pairs`, for declarations: `a, b: value` declares both; names must be names."""
        found: list[tuple[str, Place, Node]] = []
        seen: dict[str, Place] = {}
        for key, at, value in self.pairs(node, what):
            for part in re.finditer("[^,]+", key) if "," in key else [re.match("(?s).*", key)]:
                name = part.group().strip() if part else ""
                start = part.start() + len(part.group()) - len(part.group().lstrip()) if part else 0
                here = dataclasses.replace(at, column=at.column + start, width=len(name)) if "," in key else at
                if self.good(name, what, here) and name in seen:
                    self.faults.add(f"'{name}' is given twice in {what}: here and on line {seen[name].line}.", here)
                elif not bad_name(name):
                    seen[name] = here
                    found.append((name, here, value))
        return found

    def good(self, name: str, what: str, at: Place) -> bool:
        """Whether this can be a name at all; if not, that is noted."""
        message = bad_name(name)
        if not message and name in RESERVED:
            kind = {"t": "the step's number"}.get(
                name, "a function of the language" if name in FUNCTIONS or name in FEATURES else "a word of it"
            )
            message = f"'{name}' is reserved: it is {kind}. Choose another name for it in {what}."
        if not message and what in ("constants", "choices") and name in ARGUMENTS:
            message = (
                f"'{name}' can't be among the {what}: it is an argument of compile or Recurrent. Choose another name."
            )
        if message:
            self.faults.add(message, at)
        return not message

    def names(self, node: Node, what: str) -> tuple[Entry[str], ...]:
        return tuple(
            Entry(self.text(item, f"each entry of {what}"), self.sheet.place(item)) for item in self.items(node, what)
        )

    def shape(self, node: Node, what: str) -> Shape:
        """[] is one number, D a vector, [H, D] a matrix."""
        parts = node.value if isinstance(node, SequenceNode) else [node]
        sizes = []
        for part in parts:
            try:
                if not isinstance(part, ScalarNode) or not part.value:
                    raise SizeError(f"the shape of {what} is a size name, a list of them, or [] for one number")
                sizes.append(canonical_size(part.value))
                if sizes[-1] == "0":
                    raise SizeError(f"a size of 0 in the shape of {what}: sizes start at 1")
            except SizeError as error:
                self.wrong(f"{error}.", part)
                sizes.append("1")
        return tuple(sizes)

    # the keys

    def version(self, node: Node) -> dict[str, object]:
        if self.text(node, "rnnspec").strip() != "1":
            self.wrong("this version reads format 1: write 'rnnspec: 1'.", node)
        return {}

    def name(self, node: Node) -> dict[str, object]:
        name = self.text(node, "name").strip()
        if message := bad_name(name):
            self.wrong(message, node)
        return {"name": name}

    def extends(self, node: Node) -> dict[str, object]:
        return {"extends": Entry(self.text(node, "extends").strip(), self.sheet.place(node))}

    def sizes(self, node: Node) -> dict[str, object]:
        sizes = {}
        for name, at, value in self.named(node, "sizes"):
            size = Size()
            if isinstance(value, MappingNode):
                for key, where, part in self.pairs(value, f"the size {name}"):
                    if key not in ("meaning", "default"):
                        self.faults.add(
                            f"unknown key '{key[:60]}'.{did_you_mean(key, ['meaning', 'default'])} Known here: meaning,"
                            " default.",
                            where,
                        )
                        continue
                    size = dataclasses.replace(size, **{key: self.text(part, key).strip()})
            else:
                size = Size(meaning=self.text(value, f"the size {name}").strip())
            sizes[name] = Entry(size, at)
        return {"sizes": sizes}

    def constants(self, node: Node) -> dict[str, object]:
        pairs = [
            (name, at, self.number(value, f"the constant '{name}'"))
            for name, at, value in self.named(node, "constants")
        ]
        return {
            "constants": {name: Entry(value if value is not None else Fraction(0), at) for name, at, value in pairs}
        }

    def choices(self, node: Node) -> dict[str, object]:
        choices = {}
        for name, at, value in self.named(node, "choices"):
            options = tuple(entry.value for entry in self.names(value, f"the choice '{name}'"))
            if not options and isinstance(value, SequenceNode):
                self.faults.add(f"the choice '{name}' has no options.", at)
            choices[name] = Entry(options, at)
        return {"choices": choices}

    def functions(self, node: Node) -> dict[str, object]:
        functions: dict[str, Entry[Definition]] = {}
        for key, at, value in self.pairs(node, "functions"):
            head = re.fullmatch(r"\s*([^()\s]+)\s*\(([^()]*)\)\s*", key)
            if head is None:
                self.faults.add(
                    f"'{key[:60]}' is not the head of a function: write name(a): ... or, on a line of its own, name(a,"
                    " b): ...",
                    at,
                )
                continue
            name, args = head[1], [a.strip() for a in head[2].split(",")]
            fine = [self.good(n, "functions", at) for n in (name, *args)]
            if len(set(args)) < len(args):
                self.faults.add(f"the function '{name}' names an argument twice.", at)
            elif name in functions:
                self.faults.add(
                    f"'{name}' is given twice in functions: here and on line {functions[name].at.line}.", at
                )
            elif all(fine):
                try:
                    functions[name] = Entry(
                        Definition(tuple(args), parse_expression(self.text(value, f"the function '{name}'"))), at
                    )
                except SpecError as error:
                    self.wrong(f"in the function '{name}': {error.errors[0].message}", value)
        return {"functions": functions}

    def equations(self, node: Node) -> dict[str, object]:
        text = self.text(node, "equations (a block of text: 'equations: |')")
        if not isinstance(node, ScalarNode):
            return {}
        if node.style == ">" and len(re.findall(r"\]\s*=(?!=)", text)) > 1:
            self.wrong("'>' joins the lines of the equations into one. Write 'equations: |'.", node)
            return {"broken": _targets(text)}
        equations, problems = self.placed(node, text)
        for p in problems:
            self.faults.add(p.message, Place(p.line, p.column, p.width, self.sheet.file))
        first: dict[str, tuple[Equation, ...]] = {}
        for equation in equations:
            name, known = equation.target, first.get(equation.target, ())
            if known and (known[0].index is None or equation.index is None):
                self.faults.add(f"'{name}' is defined twice: here and on line {known[0].at.line}.", equation.at)
            elif known and known[0].timed != equation.timed:
                before, here = ("no time", "one") if equation.timed else ("a time", "none")
                self.faults.add(
                    f"'{name}' has {before} on line {known[0].at.line} and {here} here. Give both one form.",
                    equation.at,
                )
            elif known or self.good(name, "the equations", equation.at):
                first[name] = (*known, equation)
        if not equations and not problems:
            self.wrong("there is no equation. Write one a line, like h[t] = tanh(W @ x[t] + U @ h[t-1] + b).", node)
        return {"equations": first, "broken": _targets(text) - set(first) if problems else frozenset()}

    def placed(self, node: ScalarNode, text: str) -> tuple[list[Equation], list[Problem]]:
        """The equations with their places in the file, whatever YAML style they are written in."""
        if node.style == "|":
            return parse_equations(text, *locate_block(node, self.sheet), self.sheet.file)
        where, starts = align(node, self.sheet), [0]
        for row in text.split("\n"):
            starts.append(starts[-1] + len(row) + 1)

        def moved(line: int, column: int, width: int) -> Place:
            index = min(starts[line - 1] + column - 1, len(where) - 1)
            return self.sheet.at(where[index] if where else node.start_mark.index, width)

        equations, problems = parse_equations(text)
        problems = [
            dataclasses.replace(p, line=at.line, column=at.column)
            for p in problems
            for at in [moved(p.line, p.column, p.width)]
        ]
        return [_moved(e, moved) for e in equations], problems

    def defaults(self, node: Node) -> dict[str, object]:
        found: dict[str, Entry[Default]] = {}
        for name, at, value in self.named(node, "defaults"):
            text = self.text(value, f"the default of '{name}'").strip()
            number = decimal(text)
            if number is None and text != "t":
                self.wrong(f"the default of the input '{name}' is a number, like 1, or t, the step's number.", value)
            else:
                found[name] = Entry(None if number is None else float(number), at)
        return {"defaults": found}

    def noise(self, node: Node) -> dict[str, object]:
        found: dict[str, Entry[Stated]] = {}
        for name, at, value in self.named(node, "noise"):
            says = stated(self.text(value, f"the noise '{name}'"))
            if isinstance(says, str):
                self.wrong(says, value)
            else:
                found[name] = Entry(says, at)
        return {"noise": found}

    def init(self, node: Node) -> dict[str, object]:
        found = {}
        for name, at, value in self.pairs(node, "init"):
            text = self.text(value, f"the initialiser of '{name}'")
            init = initialiser(text)
            if init is None:
                names = [*INITIALISERS, "zeros", "ones"]
                self.wrong(
                    f"unknown initialiser '{text[:40]}'.{did_you_mean(text.split('(')[0].strip(), names)} Known here:"
                    f" {FORMS}.",
                    value,
                )
            else:
                found[name] = Entry(init, at)
        return {"init": found}

    def layouts(self, node: Node) -> dict[str, object]:
        return {
            "layouts": {
                library: (
                    {}
                    if isinstance(blocks, ScalarNode)
                    and blocks.style is None
                    and blocks.value in ("null", "~")  # takes an inherited one away
                    else {
                        block: self.names(value, f"the block '{block}'")
                        for block, _, value in self.pairs(blocks, f"the layout '{library}'")
                    }
                )
                for library, _, blocks in self.pairs(node, "layouts")
            }
        }

    def same_as(self, node: Node) -> dict[str, object]:
        return {
            "same_as": {
                layer: {key: self.plain(value) for key, _, value in self.pairs(attributes, f"same_as {layer}")}
                for layer, _, attributes in self.pairs(node, "same_as")
            }
        }

    def plain(self, node: Node) -> object:
        """A library's attribute: a number, true or false, a text, a list; a mapping holds one value
        per option of a choice."""
        if isinstance(node, SequenceNode):
            return tuple(self.plain(item) for item in node.value)
        if isinstance(node, MappingNode):
            return {key: self.plain(value) for key, _, value in self.pairs(node, "an attribute")}
        text = self.text(node, "an attribute")
        if isinstance(node, ScalarNode) and node.style is None and text in ("true", "false"):
            return text == "true"
        value = decimal(text)
        if value is None:
            return text
        return int(value) if re.fullmatch("[+-]?[0-9]+", text) else float(value)

    def examples(self, node: Node) -> dict[str, object]:
        known = [f.name for f in dataclasses.fields(Example)]
        found = []
        for item in self.items(node, "examples"):
            parts: dict[str, object] = {"title": "", "sizes": {}, "parameters": {}, "inputs": {}}
            for key, at, value in self.pairs(item, "an example"):
                if key not in known:
                    self.faults.add(
                        f"unknown key '{key[:60]}'.{did_you_mean(key, known)} Known here: {listed(known)}.", at
                    )
                elif key == "title":
                    parts[key] = self.text(value, "the title")
                else:
                    parts[key] = {
                        n: self.example_value(key, n, v) for n, _, v in self.pairs(value, f"'{key}' of an example")
                    }
            found.append(Entry(Example(**parts), self.sheet.place(item)))  # type: ignore[arg-type]
        return {"examples": tuple(found)}

    def example_value(self, key: str, name: str, node: Node) -> object:
        if key != "sizes":
            return self.array(node, f"'{name}'")
        value = self.number(node, f"the size '{name}'")
        if value is not None and (value.denominator != 1 or not 0 < value < 10**6):
            self.wrong(f"the size '{name}' is a whole number from 1.", node)
        return int(value or 1)


_KEYS: dict[str, Callable[[Reader, Node], dict[str, object]]] = {
    "rnnspec": Reader.version,
    "name": Reader.name,
    "extends": Reader.extends,
    "title": lambda r, n: {"title": r.text(n, "title").strip()},
    "source": lambda r, n: {"source": r.text(n, "source").strip()},
    "notes": lambda r, n: {"notes": r.text(n, "notes").strip()},
    "sizes": Reader.sizes,
    "inputs": lambda r, n: {
        "inputs": {name: Entry(r.shape(v, f"'{name}'"), at) for name, at, v in r.named(n, "inputs")}
    },
    "states": lambda r, n: {
        "states": {name: Entry(r.shape(v, f"'{name}'"), at) for name, at, v in r.named(n, "states")}
    },
    "parameters": lambda r, n: {
        "parameters": {name: Entry(r.shape(v, f"'{name}'"), at) for name, at, v in r.named(n, "parameters")}
    },
    "constants": Reader.constants,
    "choices": Reader.choices,
    "functions": Reader.functions,
    "equations": Reader.equations,
    "outputs": lambda r, n: {"outputs": r.names(n, "outputs")},
    "no_gradient": lambda r, n: {"no_gradient": r.names(n, "no_gradient")},
    "defaults": Reader.defaults,
    "noise": Reader.noise,
    "apply": lambda r, n: {"apply": read_steps(r, n)},
    "init": Reader.init,
    "layouts": Reader.layouts,
    "same_as": Reader.same_as,
    "examples": Reader.examples,
}


def _targets(text: str) -> frozenset[str]:
    """The names that stand on left sides, whether or not the rest can be read."""
    return frozenset(re.findall(r"(?m)^\s*([A-Za-z]\w*)\s*(?:\[[^=\n]*)?=(?!=)", text))


def _moved(equation: Equation, place: Callable[[int, int, int], Place]) -> Equation:
    def at(old: Place) -> Place:
        return place(old.line, old.column, old.width)

    def tree(expr: Expr) -> Expr:
        match expr:
            case Ref():
                index, delay = (e and tree(e) for e in (expr.index, expr.delay))
                return dataclasses.replace(expr, at=at(expr.at), index=index, delay=delay)
        return dataclasses.replace(with_parts(expr, tree), at=at(expr.at))

    index, loop = (
        equation.index and tree(equation.index),
        equation.loop and dataclasses.replace(equation.loop, at=at(equation.loop.at)),
    )
    return dataclasses.replace(equation, value=tree(equation.value), at=at(equation.at), index=index, loop=loop)
