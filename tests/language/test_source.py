"""Where cells are from: papers by their parts or a text, their lines and their BibTeX, and that a
cell that starts from another says its own."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tiny import cell

from rnnspec.commands.cli import main
from rnnspec.commands.list import row
from rnnspec.errors import SpecError
from rnnspec.language.load import load, loads, spec_names, specs_folder
from rnnspec.language.reading.reader import read
from rnnspec.language.source import SHAPES, Source
from rnnspec.transform import to_yaml

NO_PAPER = {"comfi_fastgrnn", "ctrnn"}  # what is known of them is a sentence
PARTS = (
    "{authors: [Gers, von Brecht, others], title: 'A, b', venue: J, volume: 9, year: 2000, doi: 10.1000/x_1,"
    " note: eq. 2}"
)
AUTHORS = ("Gers", "von Brecht", "others")
WHOLE = Source(AUTHORS, "A, b", venue="J", volume="9", year=2000, doi="10.1000/x_1", note="eq. 2")


@cache
def stated() -> dict[str, Source]:
    """What every file says itself, by its cell."""
    return {n: read((specs_folder() / f"{n}.yaml").read_text(encoding="utf-8")).source for n in spec_names()}


def from_source(text: str) -> Source:
    return loads(cell("h[t] = x[t]", source=text)).source


@pytest.mark.parametrize("name", spec_names())
def test_every_cell_says_where_it_is_from(name: str) -> None:
    """By its parts, in its own file; none has it from the cell it extends."""
    source = stated()[name]
    assert source.authors or source.title or source.arxiv or name in NO_PAPER
    assert source.year is None or 1980 <= source.year <= 2030
    assert all("(" not in a and not re.search(r"\d|et al", a) for a in source.authors)
    assert " - " not in source.title and "arXiv" not in source.venue
    assert not re.search(r"\d", source.venue), "volume, number and pages have keys of their own"


@pytest.mark.parametrize("name", ["lstm", "leaky_esn", "modrelu_rnn", "variational_dropout_lstm", "ctrnn"])
def test_a_source_is_written_and_read_again(name: str) -> None:
    assert loads(to_yaml(load(name))).source == load(name).source


def test_numbers_of_papers_are_of_one_paper() -> None:
    """Two cells of one title have the same numbers and year, and two titles never share one."""
    papers: dict[str, set[tuple[object, ...]]] = {}
    for source in stated().values():
        if source.title:
            papers.setdefault(source.title, set()).add((source.authors, source.year, source.doi, source.arxiv))
    assert all(len(those) == 1 for those in papers.values())
    for which in (2, 3):
        numbers = [next(iter(those))[which] for those in papers.values()]
        numbers = [n for n in numbers if n and n != "1709.02755"]  # whose version 1 had another title
        assert len(numbers) == len(set(numbers))


def test_a_source_by_its_parts_and_as_a_text() -> None:
    assert from_source(PARTS) == WHOLE
    assert WHOLE.to_text() == "Gers, von Brecht et al. 2000, A, b (J 9, doi 10.1000/x_1), eq. 2"
    assert Source(("A", "B"), year=1999, arxiv="1406.1078").to_text() == "A & B 1999 (arXiv 1406.1078)"
    parts = "{title: T, venue: Electronics, volume: 13, number: 16, pages: 3204-9, year: 2024}"
    assert from_source(parts).to_text() == "2024, T (Electronics 13(16), 3204-9)"
    assert "volume = {13},\n  number = {16},\n  pages = {3204-9}" in from_source(parts).to_bibtex("e", "E")
    assert from_source("Jordan 1986, Serial Order") == Source(note="Jordan 1986, Serial Order")
    assert from_source("Jordan 1986").to_text() == "Jordan 1986" and not from_source("")
    assert WHOLE.to_dict()["authors"] == ["Gers", "von Brecht", "others"] and "arxiv" not in WHOLE.to_dict()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{author: [A]}", "unknown key 'author'. Did you mean 'authors'?"),
        ("{authors: Gers}", "authors is a list, like [a, b]."),
        ("{year: 00}", "the year of the source is a year, like 1997."),
        ("{year: [1]}", "the year of the source is a year"),
        ("{doi: 'https://doi.org/10.1/x'}", "the doi of the source is its number alone, like 10.1162/"),
        ("{arxiv: arXiv 1406.1078}", "the arxiv of the source is its number alone, like 1406.1078."),
        ("{title: A, title: B}", "'title' is given twice in source"),
        ("[a, b]", "source (a text, or {authors: [...], title: ..., year: ...}) is a text."),
    ],
)
def test_what_is_wrong_with_a_source_is_told(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_source(text)
    assert said in str(caught.value)


def test_samples_of_numbers_are_right() -> None:
    assert all(shape.fullmatch(sample) for shape, sample in SHAPES.values())
    assert from_source("{arxiv: cs.LG/0101001}").arxiv == "cs.LG/0101001"


def test_a_child_does_not_inherit_the_source(tmp_path: Path) -> None:
    path = tmp_path / "child.yaml"
    path.write_text("rnnspec: 1\nname: child\nextends: lstm\n")
    assert load("lstm").source and not load(path).source
    path.write_text("rnnspec: 1\nname: child\nextends: lstm\nsource: {authors: [Me], year: 2026}\n")
    assert load(path).source == Source(("Me",), year=2026)


def printed(capsys: pytest.CaptureFixture[str], *names: str) -> str:
    assert main(["cite", *names]) == 0
    return capsys.readouterr().out


def test_cite_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "lstm") == (
        "% lstm: Long short-term memory with forget gate\n"
        "@article{gers2000learning,\n"
        "  author = {Gers and Schmidhuber and Cummins},\n"
        "  title = {{Learning to Forget: Continual Prediction with LSTM}},\n"
        "  journal = {Neural Computation},\n"
        "  volume = {12},\n"
        "  year = {2000},\n"
        "  doi = {10.1162/089976600300015015}\n"
        "}\n"
    )


def test_cite_names_a_paper_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "gru", "gru_concat", "gru", "rnnspec")
    assert re.findall(r"^@\w+{(.*),$", text, re.MULTILINE) == ["cho2014learning", "rnnspec"]
    assert re.findall(r"^% (\w+): ", text, re.MULTILINE) == ["gru", "gru_concat"]
    assert "author = {Cho and others}" in text and "author = {{The rnnspec developers}}" in text


def test_every_cell_can_be_cited() -> None:
    """Braces match, and two papers never have one key."""
    entries = {source.to_bibtex(name, "title") for name, source in stated().items()}
    keys = [re.match(r"@\w+{(.*),\n", entry)[1] for entry in entries]  # type: ignore[index]
    assert len(keys) == len(set(keys)) > 100 and all(re.fullmatch("[a-z0-9_]+", key) for key in keys)
    for entry in entries:
        assert entry.count("{") == entry.count("}") and "\\" not in entry.replace("\\&", "").replace("\\_", "")


def test_special_characters_of_latex_are_escaped() -> None:
    entry = Source(("A & B",), "50 % of C_1", note="x").to_bibtex("mine", "Mine")
    assert "author = {A \\& B}" in entry and "title = {{50 \\% of C\\_1}}" in entry and "note" not in entry


def test_a_cell_without_a_source_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tested.yaml"
    path.write_text(cell("h[t] = x[t]"))
    assert main(["cite", str(path)]) == 2 and "'tested' says no source." in capsys.readouterr().err
    path.write_text(cell("h[t] = x[t]", source="from my notes"))
    assert "note = {from my notes}" in printed(capsys, str(path))


def test_a_row_of_the_list_has_the_parts() -> None:
    found = row(load("mgu"))
    assert found["source"]["arxiv"] == "1603.09420" and found["source"]["text"] == load("mgu").source.to_text()
    assert found["year"] == 2016
