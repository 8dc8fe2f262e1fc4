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

from rnnspec.errors import SpecError
from rnnspec.language.draws import Stated, stated
from rnnspec.language.reading.constrained import constrained
from rnnspec.language.reading.document import AppliedTransform, Argument, Definition, Document, Entry
from rnnspec.language.reading.initialisers import FORMS, INITIALISERS, initialiser
from rnnspec.language.reading.integrated import integration
from rnnspec.language.reading.placed import placed, targets
from rnnspec.language.reading.sources import source
from rnnspec.language.reading.values import Values
from rnnspec.language.sizes import reads_as_size
from rnnspec.language.spec import Default, Example, Size
from rnnspec.language.syntax.faults import Faults, bad_name, did_you_mean, listed
from rnnspec.language.syntax.parse import decimal, parse_expression
from rnnspec.language.syntax.tree import Equation, Place
from rnnspec.language.syntax.yamltext import compose

MAX_TRANSFORMS = 16
MAX_ARGUMENTS = 200


def read(text: str, file: str = "<text>") -> Document:
    """What the text says. Raises SpecError only where nothing can be read at all; other faults are
    in `.problems`."""
    root, sheet = compose(text, file)
    faults = Faults({file: sheet.rows})
    if not isinstance(root, MappingNode):
        raise sheet.problem(
            "a spec is a mapping of keys to values: rnnspec: 1, name: ..., equations: ...", root.start_mark.index
        )
    reader = Reader(Values(sheet, faults))
    keys: dict[str, Place] = {}
    fields: dict[str, object] = {}
    for key, at, node in reader.values.pairs(root, "the file"):
        if key not in _KEYS:
            faults.add(f"unknown key '{key[:60]}'.{did_you_mean(key, _KEYS)} Known here: {listed(_KEYS, 30)}.", at)
            continue
        keys[key] = at
        fields |= _KEYS[key](reader, node)
    needed = ("rnnspec", "name") if "extends" in keys else ("rnnspec", "name", "states", "equations", "outputs")
    for key in needed:
        if key not in keys:
            faults.add(f"the key '{key}' is missing. Write {_SAMPLES[key]}", Place(0, 0, 1, file))
    found = tuple(faults.found)
    return Document(file=file, lines={file: sheet.rows}, keys=keys, problems=found, **fields)  # type: ignore[arg-type]


_SAMPLES = {
    "rnnspec": "'rnnspec: 1', the version of the format.",
    "name": "'name: my_cell', the name of the file without .yaml.",
    "states": "'states: {h: H}', what is carried from step to step.",
    "equations": "'equations: |' and below it one equation a line.",
    "outputs": "'outputs: [h]', what is emitted every step.",
}


class Reader:
    """Reads one key after another: a method gives the fields of the Document that its key says."""

    def __init__(self, values: Values):
        self.values = values

    def version(self, node: Node) -> dict[str, object]:
        if self.values.text(node, "rnnspec").strip() != "1":
            self.values.wrong("this version reads format 1: write 'rnnspec: 1'.", node)
        return {}

    def name(self, node: Node) -> dict[str, object]:
        name = self.values.text(node, "name").strip()
        if message := bad_name(name):
            self.values.wrong(message, node)
        return {"name": name}

    def extends(self, node: Node) -> dict[str, object]:
        return {"extends": Entry(self.values.text(node, "extends").strip(), self.values.sheet.place(node))}

    def sizes(self, node: Node) -> dict[str, object]:
        sizes = {}
        for name, at, value in self.values.named(node, "sizes"):
            size = Size()
            if isinstance(value, MappingNode):
                for key, where, part in self.values.pairs(value, f"the size {name}"):
                    if key not in ("meaning", "default"):
                        self.values.faults.add(
                            f"unknown key '{key[:60]}'.{did_you_mean(key, ['meaning', 'default'])} Known here: meaning,"
                            " default.",
                            where,
                        )
                        continue
                    size = dataclasses.replace(size, **{key: self.values.text(part, key).strip()})
            else:
                text = self.values.text(value, f"the size {name}").strip()
                size = Size(default=text) if reads_as_size(text) else Size(meaning=text)
            sizes[name] = Entry(size, at)
        return {"sizes": sizes}

    def constants(self, node: Node) -> dict[str, object]:
        pairs = [
            (name, at, self.values.number(value, f"the constant '{name}'"))
            for name, at, value in self.values.named(node, "constants")
        ]
        return {
            "constants": {name: Entry(value if value is not None else Fraction(0), at) for name, at, value in pairs}
        }

    def choices(self, node: Node) -> dict[str, object]:
        choices = {}
        for name, at, value in self.values.named(node, "choices"):
            options = tuple(entry.value for entry in self.values.names(value, f"the choice '{name}'"))
            if not options and isinstance(value, SequenceNode):
                self.values.faults.add(f"the choice '{name}' has no options.", at)
            choices[name] = Entry(options, at)
        return {"choices": choices}

    def functions(self, node: Node) -> dict[str, object]:
        functions: dict[str, Entry[Definition]] = {}
        for key, at, value in self.values.pairs(node, "functions"):
            head = re.fullmatch(r"\s*([^()\s]+)\s*\(([^()]*)\)\s*", key)
            if head is None:
                self.values.faults.add(
                    f"'{key[:60]}' is not the head of a function: write name(a): ... or, on a line of its own, name(a,"
                    " b): ...",
                    at,
                )
                continue
            name, args = head[1], [a.strip() for a in head[2].split(",")]
            fine = [self.values.good(n, "functions", at) for n in (name, *args)]
            if len(set(args)) < len(args):
                self.values.faults.add(f"the function '{name}' names an argument twice.", at)
            elif name in functions:
                self.values.faults.add(
                    f"'{name}' is given twice in functions: here and on line {functions[name].at.line}.", at
                )
            elif all(fine):
                try:
                    functions[name] = Entry(
                        Definition(tuple(args), parse_expression(self.values.text(value, f"the function '{name}'"))), at
                    )
                except SpecError as error:
                    self.values.wrong(f"in the function '{name}': {error.errors[0].message}", value)
        return {"functions": functions}

    def equations(self, node: Node) -> dict[str, object]:
        text = self.values.text(node, "equations (a block of text: 'equations: |')")
        if not isinstance(node, ScalarNode):
            return {}
        if node.style == ">" and len(re.findall(r"\]\s*=(?!=)", text)) > 1:
            self.values.wrong("'>' joins the lines of the equations into one. Write 'equations: |'.", node)
            return {"broken": targets(text)}
        equations, problems = placed(node, text, self.values.sheet)
        for p in problems:
            self.values.faults.add(p.message, Place(p.line, p.column, p.width, self.values.sheet.file))
        first: dict[str, tuple[Equation, ...]] = {}
        for equation in equations:
            name, known = equation.target, first.get(equation.target, ())
            if known and (known[0].index is None or equation.index is None):
                self.values.faults.add(f"'{name}' is defined twice: here and on line {known[0].at.line}.", equation.at)
            elif known and known[0].timed != equation.timed:
                before, here = ("no time", "one") if equation.timed else ("a time", "none")
                self.values.faults.add(
                    f"'{name}' has {before} on line {known[0].at.line} and {here} here. Give both one form.",
                    equation.at,
                )
            elif known or self.values.good(name, "the equations", equation.at):
                first[name] = (*known, equation)
        if not equations and not problems:
            self.values.wrong(
                "there is no equation. Write one a line, like h[t] = tanh(W @ x[t] + U @ h[t-1] + b).", node
            )
        return {"equations": first, "broken": targets(text) - set(first) if problems else frozenset()}

    def defaults(self, node: Node) -> dict[str, object]:
        found: dict[str, Entry[Default]] = {}
        for name, at, value in self.values.named(node, "defaults"):
            text = self.values.text(value, f"the default of '{name}'").strip()
            number = decimal(text)
            if number is None and text != "t":
                self.values.wrong(
                    f"the default of the input '{name}' is a number, like 1, or t, the step's number.", value
                )
            else:
                found[name] = Entry(None if number is None else float(number), at)
        return {"defaults": found}

    def noise(self, node: Node) -> dict[str, object]:
        found: dict[str, Entry[Stated]] = {}
        for name, at, value in self.values.named(node, "noise"):
            says = stated(self.values.text(value, f"the noise '{name}'"))
            if isinstance(says, str):
                self.values.wrong(says, value)
            else:
                found[name] = Entry(says, at)
        return {"noise": found}

    def apply(self, node: Node) -> dict[str, object]:
        """The transforms that a file asks for, in their order.

            apply: [layer_norm, drop_gate: i, couple_gates: [f, i], zoneout: {h: 0.1, c: 0.05}]

        Names and arguments stay text: what they mean is for `transforms/apply.py`.
        """
        found: list[AppliedTransform] = []
        for item in self.values.items(node, "apply"):
            if isinstance(item, ScalarNode):
                found.append(AppliedTransform(str(item.value).strip(), (), self.values.sheet.place(item)))
                continue
            for name, at, value in self.values.pairs(item, "an entry of apply"):
                found.append(AppliedTransform(name.strip(), self.arguments(name, value), at))
        if len(found) > MAX_TRANSFORMS:
            self.values.faults.add(
                f"apply has {len(found)} entries; at most {MAX_TRANSFORMS} are offered.", found[MAX_TRANSFORMS].at
            )
        return {"apply": tuple(found[:MAX_TRANSFORMS])}

    def arguments(self, name: str, node: Node) -> tuple[Argument, ...]:
        """The arguments of one transform: a mapping gives them by keyword, a list by position."""
        values, what = self.values, f"an argument of {name[:40]}"
        if isinstance(node, MappingNode):
            given = [(keyword, at, value) for keyword, at, value in values.pairs(node, f"the arguments of {name[:40]}")]
        elif isinstance(node, SequenceNode):
            given = [("", values.sheet.place(item), item) for item in node.value]
        else:
            given = [("", values.sheet.place(node), node)]
        if len(given) > MAX_ARGUMENTS:
            values.wrong(f"{name[:40]} has {len(given)} arguments; at most {MAX_ARGUMENTS} are offered.", node)
        return tuple(
            Argument(keyword.strip(), values.text(value, what).strip(), values.sheet.place(value), at)
            for keyword, at, value in given[:MAX_ARGUMENTS]
        )

    def init(self, node: Node) -> dict[str, object]:
        found = {}
        for name, at, value in self.values.pairs(node, "init"):
            text = self.values.text(value, f"the initialiser of '{name}'")
            init = initialiser(text)
            if init is None:
                names = [*INITIALISERS, "zeros", "ones"]
                self.values.wrong(
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
                        block: self.values.names(value, f"the block '{block}'")
                        for block, _, value in self.values.pairs(blocks, f"the layout '{library}'")
                    }
                )
                for library, _, blocks in self.values.pairs(node, "layouts")
            }
        }

    def same_as(self, node: Node) -> dict[str, object]:
        return {
            "same_as": {
                layer: {key: self.plain(value) for key, _, value in self.values.pairs(attributes, f"same_as {layer}")}
                for layer, _, attributes in self.values.pairs(node, "same_as")
            }
        }

    def plain(self, node: Node) -> object:
        """A library's attribute: a number, true or false, a text, a list; a mapping holds one value
        per option of a choice."""
        if isinstance(node, SequenceNode):
            return tuple(self.plain(item) for item in node.value)
        if isinstance(node, MappingNode):
            return {key: self.plain(value) for key, _, value in self.values.pairs(node, "an attribute")}
        text = self.values.text(node, "an attribute")
        if isinstance(node, ScalarNode) and node.style is None and text in ("true", "false"):
            return text == "true"
        value = decimal(text)
        if value is None:
            return text
        return int(value) if re.fullmatch("[+-]?[0-9]+", text) else float(value)

    def examples(self, node: Node) -> dict[str, object]:
        known = [f.name for f in dataclasses.fields(Example)]
        found = []
        for item in self.values.items(node, "examples"):
            parts: dict[str, object] = {"title": "", "sizes": {}, "parameters": {}, "inputs": {}}
            for key, at, value in self.values.pairs(item, "an example"):
                if key not in known:
                    self.values.faults.add(
                        f"unknown key '{key[:60]}'.{did_you_mean(key, known)} Known here: {listed(known)}.", at
                    )
                elif key == "title":
                    parts[key] = self.values.text(value, "the title")
                else:
                    parts[key] = {
                        n: self.example_value(key, n, v)
                        for n, _, v in self.values.pairs(value, f"'{key}' of an example")
                    }
            found.append(Entry(Example(**parts), self.values.sheet.place(item)))  # type: ignore[arg-type]
        return {"examples": tuple(found)}

    def example_value(self, key: str, name: str, node: Node) -> object:
        if key != "sizes":
            return self.values.array(node, f"'{name}'")
        value = self.values.number(node, f"the size '{name}'")
        if value is not None and (value.denominator != 1 or not 0 < value < 10**6):
            self.values.wrong(f"the size '{name}' is a whole number from 1.", node)
        return int(value or 1)


_KEYS: dict[str, Callable[[Reader, Node], dict[str, object]]] = {
    "rnnspec": Reader.version,
    "name": Reader.name,
    "extends": Reader.extends,
    "title": lambda r, n: {"title": r.values.text(n, "title").strip()},
    "source": lambda r, n: {"source": source(r.values, n)},
    "notes": lambda r, n: {"notes": r.values.text(n, "notes").strip()},
    "sizes": Reader.sizes,
    "inputs": lambda r, n: {
        "inputs": {name: Entry(r.values.shape(v, f"'{name}'"), at) for name, at, v in r.values.named(n, "inputs")}
    },
    "states": lambda r, n: {
        "states": {name: Entry(r.values.shape(v, f"'{name}'"), at) for name, at, v in r.values.named(n, "states")}
    },
    "parameters": lambda r, n: {
        "parameters": {
            name: Entry(r.values.shape(v, f"'{name}'"), at) for name, at, v in r.values.named(n, "parameters")
        }
    },
    "constants": Reader.constants,
    "choices": Reader.choices,
    "functions": Reader.functions,
    "equations": Reader.equations,
    "outputs": lambda r, n: {"outputs": r.values.names(n, "outputs")},
    "no_gradient": lambda r, n: {"no_gradient": r.values.names(n, "no_gradient")},
    "fixed": lambda r, n: {"fixed": r.values.names(n, "fixed")},
    "constrain": lambda r, n: {"constrain": constrained(r.values, n)},
    "integrate": lambda r, n: {"integrate": integration(r.values, n)},
    "defaults": Reader.defaults,
    "noise": Reader.noise,
    "apply": Reader.apply,
    "init": Reader.init,
    "layouts": Reader.layouts,
    "same_as": Reader.same_as,
    "examples": Reader.examples,
}
