"""The gallery: whole pages, every link, nothing from outside, and foreign text as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rnnspec.commands.cli import main
from rnnspec.gallery import usage
from rnnspec.gallery.build import Built, GalleryError, build, entries_in
from rnnspec.gallery.curve import curve
from rnnspec.gallery.drift import peers
from rnnspec.gallery.frame import DARK, DARK_MARKS, LIGHT, script, style
from rnnspec.gallery.index import OTHER, families, row_from
from rnnspec.gallery.known import units
from rnnspec.language.load import load, spec_names
from rnnspec.layers.sizes import layer_sizes
from rnnspec.show import markup
from rnnspec.show.drawing.svg import COLOURS, INK
from rnnspec.show.html.mathml import equations
from rnnspec.show.markup import VOID
from rnnspec.show.tex.document import formulas

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
HOSTILE = f"""
rnnspec: 1
name: hostile
title: "{EVIL.replace('"', chr(92) + '"')} title"
source:
  authors: ["A <b>", others]
  title: "{EVIL.replace('"', chr(92) + '"')} paper"
  year: 2020
  doi: 10.1000/x"onmouseover="alert(3)
sizes:
  H: "units </section><script>alert(4)</script>"
inputs: {{x: H}}
states: {{h: H}}
parameters: {{a: H}}
constants: {{k: 0.5}}
equations: |
  h[t] = tanh(a * h[t-1] + k * x[t])
outputs: [h]
layouts:
  "<svg onload=alert(5)>.Layer":
    "w": [a]
notes: |
  As in gru, </p><script>alert(6)</script> and no_such_cell.
examples:
  - title: "<script>alert(7)</script>"
    sizes: {{H: 1}}
    parameters: {{a: [0.5]}}
    inputs: {{x: [[0.0]]}}
    outputs: {{h: [[0.0]]}}
"""


class Page(HTMLParser):
    """A page, taken strictly: every element is closed, in order, and no name of an element is
    there that ours have not."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data


@pytest.fixture(scope="module")
def spec_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cells") / "hostile.yaml"
    path.write_text(HOSTILE)
    return path


@pytest.fixture(scope="module")
def folder(spec_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery") / "site"
    built = build(["gru", "lru", str(spec_file)], out)
    assert built == Built(("gru", "hostile", "lru"), (), (), ())
    return out


def pages(folder: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}


def test_pages_are_whole_and_every_link_leads_somewhere(folder: Path) -> None:
    found = pages(folder)
    assert [path.name for path in found] == ["gru.html", "hostile.html", "lru.html", "index.html"]
    for path, page in found.items():
        assert len(set(page.ids)) == len(page.ids)
        for tag, attributes in page.elements:
            href = attributes.get("href")
            if href is None or href == "data:,":
                continue
            assert tag == "a"
            if href.startswith("https://"):
                assert href.startswith(("https://doi.org/10.", "https://arxiv.org/abs/"))
                continue
            target, _, anchor = href.partition("#")
            assert not target.startswith(("/", "http")) and ":" not in target
            other = found[(path.parent / target).resolve()] if target else page
            assert not anchor or anchor in other.ids, href


def test_pages_load_nothing_and_allow_nothing_else(folder: Path) -> None:
    for path, page in pages(folder).items():
        for tag, attributes in page.elements:
            assert not {"src", "srcset", "action", "data", "poster", "style", "background"} & set(attributes)
            assert not any(name.startswith("on") for name in attributes)
            assert tag not in ("iframe", "object", "embed", "img", "base", "audio", "video", "image", "use")
        policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
        assert policy and policy.startswith("default-src 'none'")
        scripts = [t for t, _ in page.elements if t == "script"]
        assert scripts == (["script"] if path.name == "index.html" else [])
        for tag in ("style", *scripts):
            digest = base64.b64encode(hashlib.sha256(page.texts[tag].encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        assert "url(" not in page.texts["style"] and "@import" not in page.texts["style"]
    assert "fetch(" not in script() and "innerHTML" not in script() and "</" not in script() + style()


def test_text_of_others_stays_text(folder: Path) -> None:
    text = (folder / "cells" / "hostile.html").read_text()
    page = Page(text)
    shown = "".join(page.texts.values())
    for number in (1, 4, 6, 7):
        assert f"<script>alert({number})</script>" in shown, number
    assert "<svg onload=alert(5)>.Layer" in shown and 'onmouseover="alert(3)' in shown
    assert "<script" not in text.replace("&lt;script", "")
    links = [a["href"] for t, a in page.elements if t == "a"]
    assert "gru.html" in links and "no_such_cell.html" not in links
    index = Page((folder / "index.html").read_text())
    row = next(a for t, a in index.elements if t == "tr" and a.get("data-name") == "hostile")
    assert "alert(1)" in str(row["data-find"])


def test_what_a_page_says(folder: Path) -> None:
    page = Page((folder / "cells" / "gru.html").read_text())
    shown = "".join(page.texts.values())
    for part in ("98,816", "torch.nn.GRU", "keras.layers.GRU", "@article" if "@article" in shown else "@misc",
                 'rnnspec.Recurrent("gru", D, H)', "derivatives agree: error", "rnnspec: 1", "equinox"):  # fmt: skip
        assert part in shown, part
    tags = [t for t, _ in page.elements]
    assert tags.count("math") > 3 and tags.count("svg") == 2 and "polyline" in tags
    assert {"equations", "gradients", "flow", "use", "cost", "reach", "checks", "equal", "file"} <= set(page.ids)


def test_only_what_changed_is_made_again(folder: Path, spec_file: Path) -> None:
    cells = ["gru", "lru", str(spec_file)]
    before = (folder / "cells" / "gru.html").read_bytes()
    assert build(cells, folder) == Built((), ("gru", "hostile", "lru"), (), ())
    spec_file.write_text(HOSTILE.replace("no_such_cell", "no_other_cell"))
    assert build(cells, folder).made == ("hostile",)
    (folder / "cells" / "hostile.html").write_text("somebody else's")
    assert build(cells, folder).made == ("hostile",)
    assert (folder / "cells" / "gru.html").read_bytes() == before
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"format": 1}', '{"format": 1, "cells": {"../../x": {}}}', '{"format": 1, "cells": [1]}',
     '{"format": 1, "cells": {"lru": {"key": 1, "page": "", "row": {}}}}', "[" * 99_999],
)  # fmt: skip
def test_what_was_kept_and_is_damaged_counts_for_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "gallery.json").write_text(content)
    assert entries_in(tmp_path / "gallery.json") == {}
    (tmp_path / "gallery.json").unlink()
    (tmp_path / "gallery.json").mkdir()
    assert entries_in(tmp_path / "gallery.json") == {}


def test_a_gallery_whose_list_is_damaged_is_made_again(tmp_path: Path, spec_file: Path) -> None:
    out = tmp_path / "site"
    out.mkdir()
    (out / "gallery.json").write_text('{"format": 1, "cells": {"../../x": {}}}')
    assert build([str(spec_file)], out).made == ("hostile",)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "cells",
        "gallery.json",
        "hostile.html",
        "index.html",
        "site",
    ]


def test_a_row_that_is_none() -> None:
    row = {"name": "a", "title": "", "year": None, "parameters": 1, "stages": 0, "states": ["h"], "gates": [],
           "jacobian": [], "agree": [], "source": "", "passed": True}  # fmt: skip
    assert row_from(row).states == ("h",)
    for name, wrong in (("year", True), ("parameters", "<b>"), ("states", "h"), ("gates", [1]), ("passed", 1)):
        with pytest.raises(ValueError, match=name):
            row_from({**row, name: wrong})
    with pytest.raises(ValueError, match="no row"):
        row_from({**row, "more": 1})


def test_pages_of_other_cells_go_unless_somebody_changed_them(tmp_path: Path, spec_file: Path) -> None:
    out = tmp_path / "site"
    build(["lru", str(spec_file)], out)
    assert build([str(spec_file)], out).removed == ("lru",)
    build(["lru", str(spec_file)], out)
    (out / "cells" / "lru.html").write_text("mine")
    assert build([str(spec_file)], out).removed == () and (out / "cells" / "lru.html").read_text() == "mine"
    assert list(json.loads((out / "gallery.json").read_text())["cells"]) == ["hostile"]


def test_folders_that_are_no_gallery(tmp_path: Path, spec_file: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(GalleryError, match="has files, and no gallery"):
        build([str(spec_file)], tmp_path)
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "site"
    elsewhere.mkdir()
    out.mkdir()
    (out / "gallery.json").write_text("{}")
    (out / "cells").symlink_to(elsewhere)
    with pytest.raises(GalleryError, match="no link in it called cells"):
        build([str(spec_file)], out)
    assert not list(elsewhere.iterdir())
    other = tmp_path / "gru.yaml"
    other.write_text(HOSTILE.replace("name: hostile", "name: gru"))
    with pytest.raises(GalleryError, match="would have one page"):
        build(["gru", str(other)], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_check_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(HOSTILE.replace("outputs: {h: [[0.0]]}", "outputs: {h: [[0.25]]}"))
    assert main(["gallery", str(tmp_path / "site"), str(path)]) == 1
    printed = capsys.readouterr()
    assert "1 pages made" in printed.out and "a check failed" in printed.err
    assert "1 of 4 checks failed" in (tmp_path / "site" / "cells" / "hostile.html").read_text()
    assert "a check failed" in (tmp_path / "site" / "index.html").read_text()


def test_a_bad_cell_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", str(tmp_path / "site"), "gru", "no_such"]) == 2
    assert "no cell is called" in capsys.readouterr().err and not (tmp_path / "site").exists()


def test_families_are_of_names() -> None:
    found = families(spec_names())
    assert found["lstm_peephole"] == found["nested_lstm"] == "lstm" and found["zoneout_gru"] == "gru"
    assert found["indrnn"] == "rnn" and found["adex"] == OTHER
    assert families(["a_cell", "b_cell"]) == {"a_cell": OTHER, "b_cell": OTHER}


def test_the_script_knows_the_form(folder: Path) -> None:
    index = Page((folder / "index.html").read_text())
    names = {str(a["name"]) for t, a in index.elements if t in ("input", "select")}
    kept = {n.removeprefix("data-") for t, a in index.elements if t == "tr" for n in a if n.startswith("data-")}
    assert names - {"sort", "find", "since"} <= kept and {"find", "year", "name"} <= kept
    assert set(re.findall(r'name === "(\w+)"', script())) <= names


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(colours: dict[str, str]) -> None:
    """At least 4.5 to 1, as level AA of WCAG 2 asks for text."""
    for text in ("ink", "quiet", "link", "good", "bad"):
        for paper in ("paper", "raised"):
            assert contrast(colours[text], colours[paper]) >= 4.5, (text, paper)
    assert contrast(colours["curve"], colours["paper"]) >= 3
    for fill in COLOURS.values() if colours is LIGHT else DARK_MARKS.values():
        assert contrast(INK if colours is LIGHT else colours["ink"], fill) >= 4.5, fill
    assert set(DARK_MARKS) == set(COLOURS)


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_how_each_cell_is_used() -> None:
    """The sizes that a page gives are enough for a layer of the cell, whatever it reads."""
    for name in spec_names()[::3]:
        spec = load(name)
        width, hidden, more = usage.layer_arguments(spec)
        projected = more.get("P", 0)
        assert layer_sizes(spec, width, hidden, projected, more)
        compile(usage.layer(spec), name, "exec")
        compile(usage.torch(spec), name, "exec")


def test_the_snippets_run() -> None:
    scope: dict[str, object] = {}
    exec(usage.layer(load("gru")), scope)
    assert getattr(scope["y"], "shape", None) == (50, 4, 16)
    pytest.importorskip("torch")
    exec(usage.torch(load("gru")), scope)
    assert tuple(getattr(scope["y"], "shape", ())) == (50, 4, 16)


def test_what_was_found_beside_other_packages() -> None:
    found = peers()
    assert {p.package for p in found["gru"]} >= {"torch", "keras", "flax"}
    assert all(p.result in ("equal", "different", "gradients differ") for rows in found.values() for p in rows)
    assert all(p.equal or p.why for rows in found.values() for p in rows) and set(found) <= set(spec_names())


def test_a_curve_of_what_vanishes_at_once() -> None:
    assert "Nothing of the gradient" in curve([1.0, 0.0, 0.0], "t")
    for norms in ([float("nan"), 1.0], [0.0, 1.0, float("inf"), 1e-300], [0.0] + [2.0] * 61):
        assert "polyline" in curve(norms, "t") and "nan" not in curve(norms, "t")


def test_markup_takes_text_as_text() -> None:
    tag = markup.tag
    assert tag("p", "<b>", tag("b", "&"), None, class_="a", data_x='"', hidden=True, id=None) == (
        '<p class="a" data-x="&quot;" hidden>&lt;b&gt;<b>&amp;</b></p>'
    )
    assert markup.escaped("\u202e\x07") == "\\u202e\\u0007"
    assert markup.join("<", "&", between=">") == "&lt;&gt;&amp;"


def test_formulas_of_all_cells_are_written_whole() -> None:
    """Every command of their LaTeX is known; of what is not, nothing is shown."""
    for name in spec_names()[::4]:
        written = formulas(load(name))
        for lines in (written.forward, written.backward):
            Page(equations(lines))
    with pytest.raises(KeyError, match="no MathML"):
        equations([r"a &= \unknown"])


def test_a_curve_of_large_states_is_of_fewer_units() -> None:
    assert units(load("gru")) == 16 and 1 <= units(load("s4d")) < 16
