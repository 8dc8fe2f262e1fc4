"""LaTeX: every symbol is said before it is used, no name of the engine appears, lines fit."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import cell

from rnnspec.commands.cli import main
from rnnspec.language.load import load, loads, spec_names
from rnnspec.show.counts import size_names_of
from rnnspec.show.tex import CONSTANTS, PARTS
from rnnspec.show.tex.document import latex
from rnnspec.show.tex.lines import PAGE, broken, width
from rnnspec.show.tex.names import Names

LETTER = r"(?:\\mathrm\{(?:[^{}]|\\_)*\}|\\[a-zA-Z]+|[A-Za-z])"
BELOW, ABOVE = r"_\{(?:[^{}]|\{[^{}]*\})*\}", r"\^\{(?:\(\d+\)|\\leftarrow|\\downarrow)\}"
SYMBOL = re.compile(rf"(?:\\(?:bar|overline)\{{{LETTER}\}}|{LETTER})(?:{BELOW})?(?:{ABOVE})?")
# what is no symbol: functions, signs, brackets, text
OTHER = re.compile(
    r"\\(?:operatorname|text|begin|end|mathbf)\{[^{}]*\}(?:\[t\])?"
    r"|\\(?:left|right|[bB]igl|[bB]igr|odot|cdot|frac|sqrt|top|quad|le|ge|ne|land|lor|lnot|lvert|rvert|lVert|rVert"
    r"|exp|log|tanh|sin|cos|min|max)(?![A-Za-z])|\\sum_\{t\}|\\[,;]|\\sigma(?=\\left|\\[bB]igl)"
)


def rows(text: str) -> Iterator[tuple[str, str]]:
    """The left and the right sides of the equations."""
    for body in re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end\{align\*\}", text, re.DOTALL):
        left = right = ""
        for line in re.split(r" \\\\\n  ", body.strip()):
            if line.startswith("&\\quad"):
                right += " " + line.removeprefix("&\\quad")
                continue
            if left:
                yield left, right
            left, right = line.split(" &= ", 1)
        yield left, right


def symbols(text: str) -> set[str]:
    return set(SYMBOL.findall(OTHER.sub(" ", text)))


def is_of(symbol: str, name: str, names: Names) -> bool:
    """Whether a symbol is a name of the file, at a step, or a piece of it."""
    plain = names.write(name)
    start = f"{plain[:-1]}, " if plain.endswith("}") and "_{" in plain else f"{plain}_{{"
    below = symbol.removeprefix(start).removesuffix("}")
    at = r"t(-\d+)?|\d+(, t(-\d+)?)?|(\d+, )?(:, )?[^,]* : [^,]*"
    return symbol == plain or (symbol.startswith(start) and re.fullmatch(at, below) is not None)


def unsaid(spec, text: str) -> list[str]:
    """Symbols that are no names of the file and that no row above says, and rows that say one
    again."""
    names = Names([*spec.shapes, *spec.constants, *size_names_of(spec)])
    given = [*spec.inputs, *spec.parameters, *spec.constants, *size_names_of(spec)]
    said, bad = {"t"}, []
    for left, right in rows(text):
        for symbol in symbols(right) - said:
            flows = symbol.startswith("\\bar") or symbol.startswith("\\overline")
            arrow = flows and re.search(r"\bt\}\^\{\\(leftarrow|downarrow)\}$", symbol)
            before = re.search(r"t-\d+\}$", symbol) and not flows
            if not (arrow or before or any(is_of(symbol, n, names) for n in given)):
                bad.append(symbol)
        bad += [left] if left in said else []
        said.add(left)
    return bad


FEW = ("ln_gru", "rwkv7", "adex", "statistical_ru", "izhikevich", "lipschitz_rnn", "antisymmetric_rnn")


@pytest.mark.parametrize("name", spec_names())
def test_every_symbol_is_said_and_none_is_of_the_engine(name: str) -> None:
    spec = load(name)
    for constants in CONSTANTS if name in FEW else CONSTANTS[:1]:
        text = latex(spec, constants=constants)
        assert unsaid(spec, text) == []
        assert not re.search(r"_arg|_sum|_prev|\\_part|d\\_|\de-\d", text)
        assert not re.search(r"(\d|\\frac\{\d+\}\{\d+\}) \\, \d", text), "2 . 0.2, not 2 0.2"


def test_what_the_test_finds() -> None:
    spec = load("lstm")
    text = latex(spec)
    assert unsaid(spec, text.replace(r"  a_{f, t} &=", r"  q_{t} &=")) == []
    assert unsaid(spec, text.replace(r"\bar{a}_{f, t} &=", r"\bar{q}_{t} &=")) == [r"\bar{a}_{f, t}"] * 5
    assert unsaid(spec, text.replace("W_{i} x_{t}", "V_{i} x_{t}")) == ["V_{i}"] * 2


def test_parts_of_a_lstm() -> None:
    spec = load("lstm")
    forward, backward, parameters = (latex(spec, part) for part in PARTS[:3])
    assert r"i_{t} &= \sigma\left(W_{i} x_{t} + U_{i} h_{t-1} + b_{i}\right)" in forward
    assert r"c_{t} &= f_{t} \odot c_{t-1} + i_{t} \odot g_{t}" in forward and r"\bar" not in forward
    assert r"a_{o, t} &= W_{o} x_{t} + U_{o} h_{t-1} + b_{o} \\" in backward
    assert r"\bar{U}_{f} &= \sum_{t} \bar{a}_{f, t} \, h_{t-1}^{\top}" in backward
    assert r"$U_{i}$, $U_{f}$, $U_{g}$, $U_{o}$ & $\mathbb{R}^{H \times H}$ & parameters" in parameters
    document = latex(spec, "document")
    assert all(part in document for part in (forward, backward, parameters)) and document.endswith("\\end{document}")
    assert latex(spec) == f"{forward}\n\n{backward}"


def test_constants_are_symbols_or_numbers() -> None:
    text = cell("h[t] = (1 - alpha) * h[t-1] + 2 * 0.2 * alpha * x[t]").replace(
        "name:", "constants: {alpha: 0.25}\nname:"
    )
    spec = loads(text)
    named, plain = latex(spec), latex(spec, constants="numbers")
    assert r"\left(1 - \alpha\right)" in named and r"2 \cdot 0.2 \, \alpha" in named and r"$\alpha = 0.25$" in named
    assert re.search(r"h\}_\{t-1\}\^\{\\leftarrow\} &= .*1 - \\alpha", named)
    assert r"2 \cdot 0.2 \cdot 0.25 \, x_{t}" in plain and "alpha" not in plain


def test_no_two_names_are_written_alike() -> None:
    names = Names(["b1", "b_1", "beta1_f", "W_f", "W_phi", "time", "a_b_c", "b__1"])
    made = [names.write(n) for n in names.taken]
    assert len(set(made)) == len(made)
    assert made[:6] == ["b_{1}", r"\mathrm{b\_1}", r"\beta_{1, f}", "W_{f}", r"W_{\phi}", r"\mathrm{time}"]
    assert names.part not in names.heads and names.gradient not in names.heads


def test_lines_are_cut_before_operators() -> None:
    term = r"W_{i} x_{t}"
    lines = broken(" + ".join([term] * 12), 200.0, 180.0)
    assert len(lines) > 2 and all(line.startswith("{} + ") for line in lines[1:])
    assert all(width(line) <= 200 for line in lines) and "".join(lines).count(term) == 12
    inside = broken(r"\sigma\left(" + " + ".join([term] * 12) + r"\right)", 200.0, 180.0)
    assert inside[0].startswith(r"\sigma\bigl(") and inside[-1].endswith(r"\bigr)") and r"\left" not in "".join(inside)
    assert broken(term, PAGE, PAGE) == [term]


def test_the_command_prints_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--latex", "lstm"]) == 0 and capsys.readouterr().out == latex(load("lstm")) + "\n"
    assert main(["show", "alif", "--latex", "forward", "--constants", "numbers"]) == 0
    assert capsys.readouterr().out == latex(load("alif"), "forward", "numbers") + "\n"
    assert main(["show", "lstm", "--latex", "bckward"]) == 2 and "'backward'" in capsys.readouterr().err
    assert main(["show", "lstm", "--constants", "numbers"]) == 2 and "with --latex" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["show"])
    assert "usage: rnnspec show" in (said := capsys.readouterr().err) and "NAME|PATH" in said


ENGINE = next((e for e in ("pdflatex", "tectonic") if shutil.which(e)), None)


@pytest.mark.slow
@pytest.mark.skipif(ENGINE is None, reason="no LaTeX engine is installed")
@pytest.mark.parametrize("constants", CONSTANTS)
def test_every_cell_compiles_and_fits_its_page(constants: str, tmp_path: Path) -> None:
    """One document of all cells: their bodies, each on a page of its own."""
    assert ENGINE is not None
    head, bodies = "", []
    for name in spec_names():
        head, body = latex(load(name), "document", constants).split(r"\begin{document}")
        bodies.append(f"\\typeout{{cell {name}}}" + body.removesuffix(r"\end{document}"))
    text = head + r"\begin{document}" + "\n\\clearpage\n".join(bodies) + r"\end{document}"
    (tmp_path / "all.tex").write_text(text)
    options = ["-interaction=nonstopmode", "-halt-on-error"] if ENGINE == "pdflatex" else ["--keep-logs"]
    made = subprocess.run([ENGINE, *options, "all.tex"], cwd=tmp_path, capture_output=True, timeout=600)
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert made.returncode == 0, log[-2000:]
    assert not re.findall(r"Overfull .*", log)
