"""Where marks stand: layers from above, each no wider than a page.

In: marks. Out: the same with places, and lines that pass layers as marks of no kind. Each mark
stands below what it reads; a layer that would be too wide is cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnspec.show.drawing.marks import WAY, Mark

PAGE = 760.0  # pixels: with margins, an A4 page at 96 to the inch
SLOT, GAP, ROUNDS = 14.0, 30.0, 12  # between marks of a layer, between layers


def placed(marks: dict[str, Mark]) -> list[list[str]]:
    """Gives marks their layers and places, adds lines that pass layers; the names in each layer
    from the left."""
    _layers(marks)
    _pass(marks)
    layers: list[list[str]] = [[] for _ in range(1 + max(mark.layer for mark in marks.values()))]
    for name, mark in marks.items():
        layers[mark.layer].append(name)
    _order(marks, layers)
    y = 0.0
    for layer in layers:
        tall = max(marks[n].height for n in layer)
        for name in layer:
            marks[name].y, marks[name].above, marks[name].below = y + tall / 2, y, y + tall
        y += tall + GAP
    return layers


def _layers(marks: dict[str, Mark]) -> None:
    """The first layer below all that a mark reads in which there is room; what is left of the cell
    stands last."""
    readers: dict[str, list[str]] = {name: [] for name in marks}
    for name, mark in marks.items():
        for read in mark.reads:
            readers[read].append(name)
    order = _sorted(marks)
    below = dict.fromkeys(marks, 0)  # how long the way from a mark down is
    for name in reversed(order):
        below[name] = max((below[r] + 1 for r in readers[name]), default=0)
    missing = {name: len(mark.reads) for name, mark in marks.items()}
    unread = {name: len(r) for name, r in readers.items()}
    ready, passing, last, number = [n for n in order if not missing[n]], 0, list[str](), 0
    while ready or last:
        if not ready:
            ready, last = last, []
        kept, free = _filled(marks, sorted(ready, key=lambda n: -below[n]), PAGE - passing * (WAY + SLOT))
        ready = free
        for name in kept:
            marks[name].layer = number
            passing += bool(readers[name])
            for read in marks[name].reads:
                unread[read] -= 1
                passing -= not unread[read]
        for reader in [r for name in kept for r in readers[name]]:
            missing[reader] -= 1
            if not missing[reader]:
                (last if marks[reader].kind == "output" else ready).append(reader)
        number += 1


def _filled(marks: Mapping[str, Mark], ready: Sequence[str], room: float) -> tuple[list[str], list[str]]:
    """What fits a layer, one mark at least, and the rest."""
    kept: list[str] = []
    free: list[str] = []
    for name in ready:
        width = marks[name].width + SLOT
        if kept and width > room:
            free.append(name)
        else:
            kept.append(name)
            room -= width
    return kept, free


def _sorted(marks: Mapping[str, Mark]) -> list[str]:
    """Each after what it reads."""
    found: dict[str, None] = {}
    waiting = [(name, False) for name in reversed(list(marks))]
    while waiting:
        name, ready = waiting.pop()
        if ready:
            found.setdefault(name)
        elif name not in found:
            waiting.append((name, True))
            waiting += [(read, False) for read in reversed(list(marks[name].reads)) if read not in found]
    return list(found)


def _pass(marks: dict[str, Mark]) -> None:
    """In each layer that a line passes, a mark of no kind keeps its way free."""
    for mark in list(marks.values()):
        for read, line in list(mark.reads.items()):
            previous = read
            for layer in range(marks[read].layer + 1, mark.layer):
                way = f"{read} > {layer}"
                if way not in marks:
                    marks[way] = Mark("", layer=layer, reads={previous: line})
                elif line == "matrix":
                    marks[way].reads[previous] = line
                previous = way
            if previous != read:
                del mark.reads[read]
                mark.reads[previous] = line


def _order(marks: Mapping[str, Mark], layers: Sequence[list[str]]) -> None:
    """The order within layers that leaves few crossings (barycentres, Sugiyama et al. 1981), and
    places without overlaps."""
    linked: dict[str, list[str]] = {name: [*mark.reads] for name, mark in marks.items()}
    for name, mark in marks.items():
        for read in mark.reads:
            linked[read].append(name)
    for layer in layers:
        _place(marks, layer, dict.fromkeys(layer, PAGE / 2))
    for number in range(ROUNDS):
        for layer in layers if number % 2 == 0 else reversed(layers):
            sides = {
                n: [marks[o].x for o in linked[n] if (marks[o].layer < marks[n].layer) == (number % 2 == 0)]
                for n in layer
            }
            wanted = {n: sum(xs) / len(xs) if xs else marks[n].x for n, xs in sides.items()}
            layer.sort(key=wanted.__getitem__)
            _place(marks, layer, wanted)


def _place(marks: Mapping[str, Mark], layer: Sequence[str], wanted: Mapping[str, float]) -> None:
    """Middles of the marks' cores, in the order of the layer, as near to what is wanted as leaves
    them apart and on the page."""
    groups: list[tuple[list[str], float]] = []  # marks that touch, and where the first of them would begin
    for name in layer:
        group, start = [name], wanted[name] - marks[name].core / 2
        while groups and groups[-1][1] + _wide(marks, groups[-1][0]) > start:
            before, at = groups.pop()
            moved = start - _wide(marks, before)
            start = (at * len(before) + moved * len(group)) / (len(before) + len(group))
            group = before + group
        groups.append((group, start))
    end = PAGE
    for number in range(len(groups) - 1, -1, -1):  # from the right: none beyond the page
        group, start = groups[number]
        start = min(start, end - _wide(marks, group))
        groups[number], end = (group, start), start
    left = 0.0
    for group, start in groups:
        start = max(start, left)
        for name in group:
            marks[name].x = start + marks[name].core / 2
            start += marks[name].width + SLOT
        left = start


def _wide(marks: Mapping[str, Mark], group: Sequence[str]) -> float:
    return sum(marks[n].width + SLOT for n in group)
