"""A STUDY.yaml to a `Study`: every fault of the file at its place, all at once.

In: a path. Out: a Study whose cells and tasks are there and whose settings fit them, or a
SpecError. The file is plain YAML, read as the files of cells are; a Python file that it names as a
task is run.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rnnspec.errors import Problem, RnnspecError, SpecError
from rnnspec.language.load import is_path, load
from rnnspec.language.syntax.faults import Faults, did_you_mean, listed
from rnnspec.language.syntax.yamltext import MAX_BYTES, Sheet, compose
from rnnspec.storage import guarded
from rnnspec.study.plan import SAMPLERS, Axis, Group, Halving, Study
from rnnspec.train.own_task import SUFFIX, find_task
from rnnspec.train.request import KINDS, NAMES, Request, trouble
from rnnspec.train.setup import configured

KEYS = ("study", "name", "cells", "tasks", "settings", "seeds", "sampler", "points", "seed", "pruner")
SETTINGS = tuple(name for name in NAMES if name not in ("cell", "task", "seed"))
PARTS = ("choices", "sizes", "options")  # settings that are mappings themselves
RANGE = ("low", "high", "log", "step")
MOST_TRIALS = 100_000
WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
LABEL = re.compile(r"[\w.+-]+", re.ASCII)


def read_study(path: str | os.PathLike[str]) -> Study:
    """The study of a file. SpecError tells all that is wrong with it."""
    path = Path(path)
    try:
        text = guarded.text(path, MAX_BYTES)
    except guarded.Refused as error:
        raise SpecError(Problem(f"{error.reason}.", 0, 0, str(path))) from None
    except OSError as error:
        raise SpecError(Problem(f"it can't be read: {error.strerror}.", 0, 0, str(path))) from None
    return parse_study(text, path)


def parse_study(text: str, path: Path) -> Study:
    """The study of a text. path: of its file, beside which those that it names are looked for."""
    root, sheet = compose(text, str(path), "A study starts with 'study: 1' and 'cells: ...'.")
    reader = _Reader(sheet, path.absolute().parent)
    study = reader.study(root, text, path.stem)
    reader.faults.stop_if_any()
    assert study is not None
    return study


@dataclass(frozen=True)
class _Entry:
    """One of `cells` or of `tasks`: what it is called, and its own settings."""

    label: str
    settings: Mapping[str, tuple[Any, Node]]  # a value or an Axis, and where it stands
    node: Node


@dataclass
class _Reader:
    sheet: Sheet
    folder: Path
    faults: Faults = field(init=False)
    digests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = Faults({self.sheet.file: self.sheet.rows})

    def fault(self, message: str, node: Node) -> None:
        self.faults.add(message, self.sheet.place(node))

    # values

    def scalar(self, node: Node) -> Any:
        """Text, number, true or false; a quoted one is text."""
        if not isinstance(node, ScalarNode):
            self.fault("a text or a number is expected here.", node)
            return None
        text = str(node.value)
        if node.style in ("'", '"') or text == "":
            return text
        if text in ("true", "false"):
            return text == "true"
        if WHOLE.fullmatch(text) and len(text) < 20:
            return int(text)
        try:
            return float(text.replace(".inf", "inf")) if "_" not in text else text
        except ValueError:
            return text

    def mapping(self, node: Node, known: tuple[str, ...] | None, what: str) -> dict[str, Node]:
        """The entries of a mapping. known: the keys that it may have, None for any."""
        if not isinstance(node, MappingNode):
            self.fault(
                f"{what} is a mapping, like {{{', '.join(f'{k}: ...' for k in (known or ('name',))[:2])}}}.", node
            )
            return {}
        found: dict[str, Node] = {}
        for name_node, value in node.value:
            name = str(name_node.value) if isinstance(name_node, ScalarNode) else ""
            if name in found:
                self.fault(f"'{name}' stands here a second time.", name_node)
            elif known is not None and name not in known:
                self.fault(
                    f"{what} has no '{name[:60]}'.{did_you_mean(name, known)} It has {listed(known, 99)}.", name_node
                )
            else:
                found[name] = value
        return found

    def whole(self, node: Node | None, what: str, least: int, default: int) -> int:
        if node is None:
            return default
        value = self.scalar(node)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fault(f"{what} is a whole number from {least}.", node)
            return default
        return value

    def listed(self, node: Node | None) -> list[Node]:
        """The entries of a list; one alone need not be in one."""
        return [] if node is None else list(node.value) if isinstance(node, SequenceNode) else [node]

    # the file

    def study(self, root: Node, text: str, stem: str) -> Study | None:
        keys = self.mapping(root, KEYS, "a study")
        if not keys:
            return None
        self.head(keys, root)
        name = str(self.scalar(keys["name"])) if "name" in keys else stem
        sampler = self.word(keys.get("sampler"), "sampler", SAMPLERS, "grid")
        settings = self.settings(keys["settings"], sampler, "settings") if "settings" in keys else {}
        cells, tasks = (self.entries(keys, what, sampler) for what in ("cells", "tasks"))
        points = self.points(keys, sampler, root)
        groups = [group for c in cells for t in tasks if (group := self.group(settings, c, t))]
        study = Study(
            name, tuple(groups), self.seeds(keys.get("seeds")), sampler, points,
            self.whole(keys.get("seed"), "seed", 0, 0), self.pruner(keys.get("pruner")), self.digests, text,
        )  # fmt: skip
        if not self.faults.found and study.total > MOST_TRIALS:
            self.fault(f"these are {study.total:,} trials, and at most {MOST_TRIALS:,} are offered.", root)
        return study

    def head(self, keys: Mapping[str, Node], root: Node) -> None:
        """Which keys there must be, and that the format is one that is known."""
        for name in ("study", "cells", "tasks"):
            if name not in keys:
                self.fault(f"'{name}' is missing{': a study starts with study: 1' if name == 'study' else ''}.", root)
        if "study" in keys and self.scalar(keys["study"]) != 1:
            self.fault("this version reads study: 1.", keys["study"])

    def word(self, node: Node | None, what: str, known: tuple[str, ...], default: str) -> str:
        value = default if node is None else str(self.scalar(node))
        if value not in known:
            assert node is not None
            self.fault(f"{what} is one of {', '.join(known)}.{did_you_mean(value, known)}", node)
            return default
        return value

    def points(self, keys: Mapping[str, Node], sampler: str, root: Node) -> int:
        node = keys.get("points")
        if sampler == "grid":
            if node is not None:
                self.fault("a grid has the points of its lists: points is for random and tpe.", node)
            return 0
        if node is None:
            self.fault(f"'points' is missing: how many {sampler} tries for each cell on each task.", root)
        return self.whole(node, "points", 1, 1)

    def seeds(self, node: Node | None) -> tuple[int, ...]:
        """A list, or how many: 3 is [0, 1, 2]."""
        if node is None:
            return (0,)
        if not isinstance(node, SequenceNode):
            return tuple(range(min(self.whole(node, "seeds", 1, 1), MOST_TRIALS + 1)))
        found = tuple(self.whole(item, "a seed", 0, 0) for item in node.value)
        if len(set(found)) < len(found) or not found:
            self.fault("seeds are different whole numbers, one at least.", node)
        return found

    def pruner(self, node: Node | None) -> Halving | None:
        """halving, or {halving: {least: 100, factor: 3}}."""
        if node is None:
            return None
        if isinstance(node, ScalarNode):
            known = self.word(node, "pruner", ("halving", "none"), "none")
            return Halving(least=100) if known == "halving" else None
        inner = self.mapping(node, ("halving",), "pruner").get("halving")
        parts = {} if inner is None else self.mapping(inner, ("least", "factor"), "halving")
        return Halving(
            self.whole(parts.get("least"), "least (steps)", 1, 100), self.whole(parts.get("factor"), "factor", 2, 4)
        )

    def entries(self, keys: Mapping[str, Node], what: str, sampler: str) -> list[_Entry]:
        """Cells or tasks: names, files, or mappings with settings of their own."""
        kind, found = what[:-1], list[_Entry]()
        for node in self.listed(keys.get(what)):
            own: dict[str, tuple[Any, Node]] = {}
            named = node
            label = ""
            if isinstance(node, MappingNode):
                inner = self.mapping(node, (kind, "name", *SETTINGS), f"a {kind}")
                if kind not in inner:
                    self.fault(f"'{kind}' is missing: which {kind} this is.", node)
                    continue
                named = inner.pop(kind)
                label = str(self.scalar(inner.pop("name"))) if "name" in inner else ""
                own = self.settings_of(inner, sampler)
            value = self.scalar(named)
            if not isinstance(value, str) or not value:
                self.fault(f"a {kind} is a name or the path of a file.", named)
                continue
            label = label or Path(value).stem
            if not LABEL.fullmatch(label):
                self.fault("a name in a study is of letters, digits and _ . + -; give one by name: ...", named)
            elif label in (entry.label for entry in found):
                self.fault(f"there is a second {kind} called '{label}': give one of them another name: ...", named)
            path = self.file(value, kind, named)
            self.look_up(path, kind, named)
            found.append(_Entry(label, {**own, kind: (path, named)}, named))
        return found

    def look_up(self, name: str, kind: str, node: Node) -> None:
        """Notes what is wrong with a cell or a task itself; of a file that can't be read that is
        told already."""
        if os.path.isabs(name) and name not in self.digests:
            return
        try:
            load(name) if kind == "cell" else find_task(name)
        except SpecError as error:
            for problem in error.errors[:3]:
                self.fault(str(problem).splitlines()[0], node)
        except RnnspecError as error:
            self.fault(f"{error}.", node)

    def file(self, value: str, kind: str, node: Node) -> str:
        """A name as it is, a path as one that counts from the study's folder; its digest is
        kept."""
        if not (is_path(value) if kind == "cell" else value.endswith(SUFFIX) if kind == "task" else True):
            return value
        path = os.path.abspath(self.folder / value)
        try:
            self.digests[path] = hashlib.sha256(guarded.read(path)).hexdigest()
        except guarded.Refused as error:
            self.fault(f"{value}: {error.reason}.", node)
        except OSError as error:
            self.fault(f"{value} can't be read: {error.strerror}.", node)
        return path

    # settings

    def settings(self, node: Node, sampler: str, what: str) -> dict[str, tuple[Any, Node]]:
        return self.settings_of(self.mapping(node, SETTINGS, what), sampler)

    def settings_of(self, nodes: Mapping[str, Node], sampler: str) -> dict[str, tuple[Any, Node]]:
        """Settings by name, those within choices, sizes and options as "choices.phi"."""
        found: dict[str, tuple[Any, Node]] = {}
        for name, node in nodes.items():
            if name in PARTS:
                inner = self.mapping(node, None, name)
                found |= {
                    f"{name}.{part}": (self.setting(f"{name}.{part}", n, sampler), n) for part, n in inner.items()
                }
            elif name == "data":
                value = self.scalar(node)
                found[name] = (self.file(value, "data", node) if isinstance(value, str) else value, node)
            else:
                found[name] = (self.setting(name, node, sampler), node)
        return found

    def setting(self, name: str, node: Node, sampler: str) -> Any:
        """A value, or an Axis of a list or a range."""
        if isinstance(node, ScalarNode):
            return self.value(name, node)
        if isinstance(node, SequenceNode):
            values = tuple(self.value(name, item) for item in node.value)
            if not values or len(set(map(repr, values))) < len(values):
                self.fault("a list of settings has different values, one at least.", node)
            return Axis(name, values)
        parts = self.mapping(node, RANGE, "a range")
        if sampler == "grid" and parts:
            self.fault("a grid goes over lists, like [0.001, 0.01]: ranges are for the samplers random and tpe.", node)
        return self.range(name, {k: self.scalar(n) for k, n in parts.items()}, node)

    def value(self, name: str, node: Node) -> Any:
        value = self.scalar(node)
        whole, _, part = name.partition(".")
        if isinstance(node, ScalarNode) and (told := trouble(whole, {part: value} if part else value)):
            self.fault(f"{told.rstrip('.')}.", node)
        return value

    def range(self, name: str, parts: Mapping[str, Any], node: Node) -> Axis:
        low, high, log, step = (parts.get(k) for k in RANGE)
        numbers = [
            v for v in (low, high) if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
        ]
        if len(numbers) < 2 or not numbers[0] < numbers[1]:
            self.fault("a range has two numbers, low below high: {low: 0.001, high: 0.1, log: true}.", node)
            return Axis(name, (None,))
        low, high = numbers
        whole, _, part = name.partition(".")
        integral = not KINDS[whole]({part: 0.5} if part else 0.5) if whole != "options" else False
        integral = integral or (bool(part) and all(isinstance(v, int) for v in (low, high)))
        for end in (low, high):
            if told := trouble(whole, {part: end} if part else end):
                self.fault(f"{told.rstrip('.')}.", node)
        if log not in (None, True, False) or (log and low <= 0):
            self.fault("log is true or false; what is drawn by its logarithm starts above 0.", node)
        bad = step is not None and (isinstance(step, bool) or not isinstance(step, int | float) or not step > 0 or log)
        if bad or (integral and isinstance(step, float)):
            self.fault("step is a number above 0, a whole one for whole numbers, and not beside log.", node)
            step = None
        return Axis(name, None, low, high, bool(log), integral, step)

    # groups

    def group(self, settings: Mapping[str, tuple[Any, Node]], cell: _Entry, task: _Entry) -> Group | None:
        """A cell on a task, tried on its first point: what doesn't fit is told at the task."""
        found = {name: value for part in (settings, task.settings, cell.settings) for name, (value, _) in part.items()}
        axes = tuple(value for value in found.values() if isinstance(value, Axis))
        plain = {name: value for name, value in found.items() if not isinstance(value, Axis)}
        fixed = Group("", "", {}).config({"threads": 1, **plain}, 0)
        fixed.pop("seed")
        group = Group(cell.label, task.label, fixed, axes)
        if self.faults.found:
            return group
        self.attempt(group, cell, task)
        return group

    def attempt(self, group: Group, cell: _Entry, task: _Entry) -> None:
        """Notes what is wrong with a group's first point."""
        try:
            configured(Request(**group.config(group.first(), 0)))
        except SpecError as error:
            for problem in error.errors[:3]:
                self.fault(f"the cell {group.cell}: {str(problem).splitlines()[0]}", cell.node)
        except RnnspecError as error:
            self.fault(f"{group.name}: {error}.", task.node)
