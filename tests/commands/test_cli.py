"""The command line: help, exit codes, messages, and what is left on disk. A small NumPy layer
stands in for the kernels."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from train_parts import TEXT, MiniLayer

from rnnspec.check.report import Result
from rnnspec.commands.cli import main, make_parser
from rnnspec.commands.list import table
from rnnspec.language.load import load, loads, spec_names

COMMANDS = (
    "list",
    "show",
    "check",
    "train",
    "probe",
    "dynamics",
    "new",
    "diff",
    "pack",
    "verify",
    "gallery",
    "help",
    "cite",
    "completion",
    "doctor",
    "cache",
)
SMALL = ("--hidden", "8", "--embed", "4", "--batch", "4", "--length", "8", "--steps", "30", "--sample", "40")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    Path("text.txt").write_text(TEXT)
    return tmp_path


def run(*argv):
    """Exit code of a command line, argparse's own exits included."""
    try:
        return main(argv)
    except SystemExit as stop:
        return stop.code


def train_small(*more):
    return run("train", "lstm", "--text", "text.txt", *SMALL, *more)


# --- help, version, bad use ---


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert f"examples:\n  rnnspec {command}" in text and all(len(line) <= 100 for line in text.splitlines())


def test_help_and_version(capsys):
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert [c for c in COMMANDS if re.search(rf"^ +{c}\s+\w", text, re.M)] == list(
        COMMANDS
    )  # a long one has a line of its own
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("rnnspec ")


def test_no_command_is_answered_by_the_help(capsys):
    assert run() == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: rnnspec") and "list the cells that come with rnnspec" in out and not err


@pytest.mark.parametrize(
    "argv, usage, said",
    [
        (("train", "lstm", "--hid", "3"), "train", "--hid is not written in full. Did you mean --hidden?"),
        (("train", "lstm", "--re", "3"), "train", "Did you mean --retain or --resume?"),
        (("train", "lstm", "--opimizer", "sgd"), "train", "Did you mean --optimizer?"),
        (("train", "--help", "--x"), "train", None),
        (("train", "lstm", "--bogus"), "train", "unrecognized arguments: --bogus."),
        (("show", "lstm", "--steps", "3"), "show", "It is an option of `rnnspec train`"),
        (("show", "lstm", "gru"), "show", "unrecognized arguments: gru."),
        (("show", "lstm", "--stage", "grap"), "show", "not 'grap'. Did you mean 'graph'?"),
        (("--json", "list"), "[-h] [--version] COMMAND", "It is an option of `rnnspec list`"),
        (("lst",), "[-h] [--version] COMMAND", "no command 'lst'. Did you mean 'list'? The commands are: list, show"),
        (("lstm",), "[-h] [--version] COMMAND", "It is a cell: rnnspec show lstm"),
        (("my.yaml",), "[-h] [--version] COMMAND", "It is a cell: rnnspec show my.yaml"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_what_is_not_known_is_answered_by_usage_and_what_may_be_meant(argv, usage, said, capsys):
    code = run(*argv)
    out, err = capsys.readouterr()
    assert f"usage: rnnspec {usage}" in (out if said is None else err)
    assert (code, err) == (0, "") if said is None else code == 2 and said in err


def test_no_option_is_known_by_its_beginning():
    """Of every command: what begins like an option is none, today and when there are more."""
    assert all(not parser.allow_abbrev for parser in make_parser().beside.values())


@pytest.mark.parametrize("spelling", ["--optimiser", "--optimizer"])
def test_both_spellings_are_one_option(spelling):
    assert make_parser().parse_args(["train", "lstm", spelling, "sgd"]).optimiser == "sgd"


@pytest.mark.parametrize(
    "argv", [("lst",), ("train", "lstm", "--bogus"), ("show",), ("show", "lstm", "--stage", "nonsense")]
)
def test_bad_use_exits_2(argv, capsys):
    assert run(*argv) == 2
    assert "usage: rnnspec" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("--hidden", "0", "whole number from 1, not '0'"),
        ("--hidden", "2.5", "whole number from 1, not '2.5'"),
        ("--batch", "-3", "whole number from 1"),
        ("--steps", "99999999999", "whole number from 0"),
        ("--seed", "-1", "whole number from 0"),
        ("--lr", "0", "a number above 0, not '0'"),
        ("--lr", "nan", "a number above 0, not 'nan'"),
        ("--lr", "inf", "a number above 0, not 'inf'"),
        ("--seconds", "soon", "a number above 0, not 'soon'"),
        ("--clip", "-1", "a number above 0, or inf"),
        ("--temperature", "-0.5", "0 or more"),
        ("--choice", "phi", "NAME=VALUE, like phi=relu"),
        ("--size", "P", "NAME=N, like P=64"),
        ("--size", "P=x", "whole number from 1, not 'x'"),
    ],
)
def test_bad_numbers_are_named(option, value, message, capsys):
    assert run("train", "lstm", f"{option}={value}") == 2
    error = capsys.readouterr().err
    assert f"argument {option}" in error and message in error


@pytest.mark.parametrize("command", ["show", "train", "check"])
def test_an_unknown_cell_names_the_nearest(command, capsys):
    if command == "check":
        pytest.importorskip("rnnspec.check")
    assert run(command, "lsmt") == 2
    error = capsys.readouterr().err
    assert "no cell is called 'lsmt'" in error and "Did you mean 'lstm'?" in error and "Traceback" not in error


def test_a_bad_spec_shows_its_place(capsys):
    Path("bad.yaml").write_text(loads_text().replace("tanh", "tahn"))
    for command in ("show", "train", "check"):
        assert run(command, "bad.yaml") == 2
        error = capsys.readouterr().err
        assert "bad.yaml:8:" in error and "^" in error and "tanh" in error


def loads_text():
    return (
        "rnnspec: 1\nname: bad\ninputs: {x: D}\nstates: {h: H}\nparameters: {W: [H, D], U: [H, H]}\n"
        "outputs: [h]\nequations: |\n  h[t] = tanh(W @ x[t] + U @ h[t-1])\n"
    )


# --- list, show, check ---


def test_list_as_a_table(capsys):
    assert run("list") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert (
        head.split()[:5] == ["name", "year", "states", "gates", "parameters"]
        and [line.split()[0] for line in lines] == spec_names()
    )
    assert "131,584" in next(
        line for line in lines if line.startswith("lstm ")
    )  # 4 gates: two matrices [128, 128] and a bias


@pytest.mark.parametrize("columns", [80, 100, 160])
@pytest.mark.parametrize("more", [(), ("--sort", "year"), ("minimal gated",)], ids=" ".join)
def test_list_keeps_name_and_title_whole_in_any_width(columns, more, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run("list", *more) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= columns for line in [head, *lines])
    start, found = head.index("title"), {}
    for line in lines:
        name = line.split()[0] if not line.startswith(" ") else name  # noqa: F821, set by the line before
        found[name] = f"{found.get(name, '')} {line[start:]}".strip()
    assert len(found) > 3 and all(found[name] == load(name).title for name in found)
    assert "year" in head or "--sort" not in more  # what was asked for has room before the rest


def test_list_drops_numbers_first():
    row = {"name": "a", "year": 2000, "states": ["h"], "gates": ["f"], "parameters": 1, "flop": 2}
    rows = [row | {"libraries": [], "title": "T"}]
    heads = {width: table(rows, width).splitlines()[0].split() for width in (200, 44, 20, 5)}
    assert heads[200][:4] == ["name", "year", "states", "gates"] and "parameters" in heads[200]
    assert heads[44] == ["name", "year", "states", "gates", "libraries", "title"]
    assert heads[20] == ["name", "states", "title"] and heads[5] == ["name", "title"]


def test_list_as_json(capsys):
    assert run("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == spec_names()
    assert rows["lstm"] == {
        "name": "lstm",
        "title": load("lstm").title,
        "year": 2000,
        "states": ["h", "c"],
        "gates": ["i", "f", "o"],
        "parameters": 131584,
        "flop": (
            8 * 2 * 128 * 128 + 17 * 128
        ),  # eight products, two sums and a function in each of four gates, and five operations
        "libraries": ["flax.LSTMCell", "keras.LSTM", "onnx.LSTM", "torch.LSTM"],
        "outputs": ["h"],
        "source": load("lstm").source.to_dict(),
    }
    assert {name for name, row in rows.items() if not row["parameters"]} == {n for n in rows if not load(n).trained}


def test_list_finds_and_sorts(capsys):
    assert run("list", "minimal gated unit") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["name", "mgu", "mgu1", "mgu2", "mgu3"]
    assert run("list", "--sort", "year", "--json") == 0
    years = [row["year"] for row in json.loads(capsys.readouterr().out)]
    assert years == sorted(years, key=lambda y: y or 9999) and min(y for y in years if y) >= 1980
    assert run("list", "--sort", "parameters", "--json", "lstm") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 3 and [r["parameters"] for r in rows] == sorted(r["parameters"] for r in rows)


def test_list_with_stages(capsys):
    for _ in range(2):  # made, then kept
        assert run("list", "independently", "--stats", "--json") == 0
        assert {r["name"]: r["stages"] for r in json.loads(capsys.readouterr().out)}["indrnn"] == 0
    assert run("list", "minimal gated", "--sort", "stages", "--json") == 0
    assert {r["name"]: r["stages"] for r in json.loads(capsys.readouterr().out)}["mgu"] == 2


def test_list_of_nothing_and_by_nothing(capsys):
    assert run("list", "zzz") == 0 and "no cell has 'zzz'" in capsys.readouterr().err
    assert run("list", "--sort", "yeer") == 2
    assert "Did you mean 'year'?" in capsys.readouterr().err


def test_show_passes_on_what_was_asked(monkeypatch, capsys):
    asked = []
    module = types.SimpleNamespace(show=lambda spec, **options: asked.append((spec.name, options)) or "text")
    monkeypatch.setitem(sys.modules, "rnnspec.show.page", module)
    assert run("show", "lstm") == 0 and run("show", "gru", "--stage", "graph", "--latex", "--json") == 0
    assert asked == [
        ("lstm", {"stage": None, "latex": False, "as_json": False, "width": None}),
        ("gru", {"stage": "graph", "latex": True, "as_json": True, "width": None}),
    ]
    assert capsys.readouterr().out == "text\ntext\n"


class Battery:
    """Stands in for the battery: yields these results, and keeps what it was asked."""

    def __init__(self, monkeypatch, *results):
        self.results, self.asked = results, []
        monkeypatch.setattr("rnnspec.check.run.check_each", self)

    def __call__(self, cells, progress, dtypes, **chosen):
        self.asked.append((list(cells), tuple(dtypes), chosen))
        progress("gradients", 1, 2)
        variant = types.SimpleNamespace(name="rnn")
        for result in self.results:
            if isinstance(result, BaseException):
                raise result
            yield variant, result if isinstance(result, tuple) else (result,)


def result(name="schema", dtype="reference", passed=True):
    return Result(name, dtype, passed, None if passed else 1.0, None if passed else 0.0, "why", 1.0)


@pytest.mark.parametrize("passed, code", [(True, 0), (False, 1)])
def test_check_exits_with_the_verdict(passed, code, monkeypatch, capsys):
    battery = Battery(monkeypatch, result(), result("padding", "float32", passed))
    assert run("check", "lstm", "gru") == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["rnn", "  schema".ljust(26) + "ok", "  kernels".ljust(26) + "float32"]
    assert lines[-1].startswith(f"{1 + passed} passed, {1 - passed} failed")
    assert run("check", "--json") == code
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] == passed and found["complete"] and len(found["cells"][0]["results"]) == 2
    both = ("float32", "float64")
    assert battery.asked == [
        (cells, both, {"properties": [], "settings": {}}) for cells in (["lstm", "gru"], spec_names())
    ]


def test_check_of_many_cells_has_a_line_for_each(monkeypatch, capsys):
    Battery(monkeypatch, result(), result("padding", "float32", False))
    assert run("check", "lstm", "gru", "rnn", "mgu") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rnn", "1", "passed", "0", "skipped", "1", "FAILED", "2.0", "s"]
    assert lines[1] == "  padding, float32: why"


def test_check_passes_on_what_was_asked(monkeypatch):
    battery = Battery(monkeypatch, result())
    assert run("check", "rnn", "--quick", "--choice", "phi=relu") == 0
    assert run("check", "rnn", "--dtype", "float64", "--property", "padding", "--property", "schema") == 0
    assert battery.asked == [
        (["rnn"], (), {"properties": [], "settings": {"phi": "relu"}}),
        (["rnn"], ("float64",), {"properties": ["padding", "schema"], "settings": {}}),
    ]
    assert run("check", "lstm", "--choice", "phi=relu") == 2  # lstm has no such choice


@pytest.mark.parametrize("what", ["text", "json"])
def test_what_was_found_before_ctrl_c_is_told(what, monkeypatch, tmp_path, capsys):
    Battery(monkeypatch, result(), result("padding", "float32", False), KeyboardInterrupt())
    junit = tmp_path / "out.xml"
    assert run("check", "lstm", "--junit", str(junit), *(["--json"] if what == "json" else [])) == 130
    out = capsys.readouterr().out
    if what == "json":
        found = json.loads(out)
        assert not found["complete"] and [r["property"] for r in found["cells"][0]["results"]] == ["schema", "padding"]
    else:
        assert "FAILED rnn, padding, float32: why" in out
        assert out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped, in 2 s; stopped before all was checked"
    assert "padding[float32]" in junit.read_text()


def test_results_are_printed_as_they_come(monkeypatch, capsys):
    """Also where nobody has a terminal: a pipe gets each line when it is known."""
    seen = []

    class Slow(Battery):
        def __call__(self, *args, **chosen):
            for one in super().__call__(*args, **chosen):
                yield one
                seen.append(capsys.readouterr().out)

    Slow(monkeypatch, result(), result("examples"))
    assert run("check", "rnn") == 0
    assert [text.split() for text in seen] == [["rnn", "schema", "ok"], ["examples", "ok"]]


def test_check_writes_junit_or_nothing(monkeypatch, tmp_path, capsys):
    Battery(monkeypatch, result())
    assert run("check", "lstm", "--junit", str(tmp_path / "out.xml")) == 0
    assert "<testsuites>" in (tmp_path / "out.xml").read_text()
    # what can't be written is said before anything is checked
    battery = Battery(monkeypatch, result())
    for path in (tmp_path / "no" / "out.xml", tmp_path):
        assert run("check", "lstm", "--junit", str(path)) == 2 and "--junit: " in capsys.readouterr().err
    assert not list(tmp_path.glob("**/*.tmp")) and not battery.asked


def test_a_report_is_shown_where_its_junit_can_not_be_written(monkeypatch, tmp_path, capsys):
    class Removes(Battery):
        def __call__(self, *args, **chosen):
            (tmp_path / "here").rmdir()
            return super().__call__(*args, **chosen)

    Removes(monkeypatch, result())
    (tmp_path / "here").mkdir()
    assert run("check", "lstm", "--junit", str(tmp_path / "here" / "out.xml")) == 2
    assert "1 passed" in capsys.readouterr().out


@pytest.mark.parametrize("path", [".", ""])
def test_a_folder_is_no_picture(path, capsys):
    assert run("show", "rnn", "--svg", path) == 2 and "it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args, message",
    [
        (["--functions"], "--functions goes with --accuracy"),
        (["lstm", "--accuracy", "--functions"], "leave the cells out"),
        (["lstm", "--random", "3"], "makes its own cells"),
        (["--compiled", "3"], "--compiled K goes with --random N"),
        (["--random", "3", "--junit", "f"], "--junit is for the properties"),
        (["lstm", "--accuracy", "--junit", "f"], "--junit is for the properties"),
        (["lstm", "--accuracy", "--quick"], "--quick is for the properties"),
        (["--random", "3", "--dtype", "float32"], "--dtype is for the properties"),
        (["lstm", "--quick", "--dtype", "float32"], "--quick looks at no kernel"),
        (["--choice", "phi=relu"], "--choice is of a cell"),
        (["rnn", "--property", "paddin"], "Did you mean 'padding'?"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_check_refuses_options_that_do_not_go_together(args, message, capsys):
    assert run("check", *args) == 2
    assert message in capsys.readouterr().err


def test_check_of_random_specs(capsys):
    assert run("check", "--random", "3", "--seed", "40") == 0
    assert capsys.readouterr().out.startswith("3 random specs, 0 of them compiled, 0 failed")


# --- new ---


def test_new_writes_a_commented_cell_that_loads(capsys):
    assert run("new", "mine") == 0
    text = Path("mine.yaml").read_text()
    assert loads(text).name == "mine" and text.count("#") > 8
    assert "rnnspec check mine.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("parent", spec_names())
def test_new_from_any_cell(parent):
    assert run("new", "mine", "--from", parent) == 0
    mine, old = load("mine.yaml"), load(parent)
    assert [e.text for e in mine.equations] == [e.text for e in old.equations] and mine.parameters == old.parameters
    assert mine.name == "mine" and parent in mine.title
    text = Path("mine.yaml").read_text()
    assert "# " in text and not re.search(r"^(same_as|layouts|examples|notes)\s*:", text, re.M)


def test_new_refuses_to_overwrite(capsys):
    Path("mine.yaml").write_text("precious")
    assert run("new", "mine") == 2
    assert Path("mine.yaml").read_text() == "precious" and "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, message",
    [
        ("lstm", "comes with rnnspec"),
        ("1st", "name"),
        ("a/b", "name"),
        ("../up", "name"),
        ("lambda", "keyword"),
        ("", "name"),
    ],
)
def test_new_refuses_bad_names(name, message, workplace, capsys):
    before = sorted(workplace.iterdir())
    assert run("new", name) == 2
    assert message in capsys.readouterr().err and sorted(workplace.iterdir()) == before


def test_new_from_nothing_known(capsys):
    assert run("new", "mine", "--from", "lsmt") == 2
    assert "Did you mean 'lstm'?" in capsys.readouterr().err and not Path("mine.yaml").exists()


# --- train ---


def test_train_leaves_a_run_folder(capsys):
    assert train_small() == 0
    out, err = capsys.readouterr()
    assert sorted(p.name for p in Path("runs/lstm").iterdir()) == [
        "loss.png",
        "metrics.json",
        "metrics.jsonl",
        "weights.npz",
    ]
    metrics = json.loads(Path("runs/lstm/metrics.json").read_text())
    assert (
        metrics["config"]["hidden"] == 8
        and metrics["config"]["equations"][0].startswith("i[t]")
        and len(metrics["history"]["loss"]) == 30
    )
    final = metrics["final"]
    assert final["step"] == 30 and final["finished"] and len(final["sample"]) == 40
    assert (
        f"held-out    {final['score']:.3f} bits per character (unigram entropy"
        f" {metrics['data']['unigram_bits']:.3f})" in out
    )
    assert final["sample"] in out
    assert [line.split()[1] for line in err.splitlines() if line.startswith("step")] == [
        "0",
        "25",
        "30",
    ]  # plain lines where there is no terminal


def test_the_same_seed_gives_the_same_run():
    for folder in ("a", "b"):
        assert train_small("--out", folder) == 0
    a, b = (np.load(f"{folder}/weights.npz") for folder in "ab")
    assert all(np.array_equal(a[name], b[name]) for name in a.files if name != "meta")
    bits = [json.loads(Path(folder, "metrics.json").read_text())["history"]["loss"] for folder in "ab"]
    assert bits[0] == bits[1]


def test_a_free_folder_is_found_and_a_taken_one_refused(capsys):
    assert train_small() == 0 and train_small() == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["lstm", "lstm-2"]
    capsys.readouterr()
    assert train_small("--out", "runs/lstm") == 2
    error = capsys.readouterr().err
    assert "runs/lstm holds another run already" in error and "--resume runs/lstm" in error
    assert train_small("--out", "text.txt") == 2 and "is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no file"),
        (b"", "is empty"),
        (b"too short", "is too short: it has 9 characters"),
        (b"caf\xe9 " * 500, "row 1: not UTF-8: byte 0xe9 at position 3"),
    ],
)
def test_bad_text_is_refused_before_anything_is_written(content, message, workplace, capsys):
    if content is not None:
        Path("bad.txt").write_bytes(content)
    before = sorted(workplace.iterdir())
    assert run("train", "lstm", "--text", "bad.txt", *SMALL) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and sorted(workplace.iterdir()) == before


@pytest.mark.parametrize(
    "argv, message",
    [
        (("train",), "give a cell"),
        (("train", "--resume", "nowhere"), "nowhere holds no run to resume"),
        (("train", "lstm", "--choice", "phi=relu"), "no choice or constant 'phi'"),
        (("train", "rnn", "--choice", "phi=rellu"), "Did you mean 'relu'?"),
    ],
)
def test_other_bad_input(argv, message, workplace, capsys):
    before = sorted(workplace.iterdir())
    assert run(*argv, "--text", "text.txt", *SMALL) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and sorted(workplace.iterdir()) == before


def test_resume_goes_on(capsys):
    assert train_small("--out", "whole", "--steps", "40") == 0
    assert train_small("--out", "part") == 0
    assert run("train", "--resume", "part") == 2
    assert "is finished at step 30" in capsys.readouterr().err
    assert run("train", "--resume", "part", "--steps", "40") == 0
    metrics = json.loads(Path("part/metrics.json").read_text())
    assert (
        metrics["final"]["step"] == 40
        and len(metrics["history"]["loss"]) == 40
        and metrics["config"]["data"].endswith("text.txt")
    )
    assert run("train", "gru", "--resume", "part", "--steps", "50", "--hidden", "9") == 2
    error = capsys.readouterr().err
    assert "hidden is 9; the run was trained with 8" in error and "gru is not the lstm" in error
    Path("text.txt").write_text(TEXT + "more")
    assert run("train", "--resume", "part", "--steps", "50") == 2
    assert "the text is not the one" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_saves_and_says_how_to_go_on(number, monkeypatch, capsys):
    class Stops(MiniLayer):
        calls = 0

        def backward(self, dy, dstate=None):
            Stops.calls += 1
            if Stops.calls == 6:
                os.kill(os.getpid(), number)
            return super().backward(dy)

    assert train_small("--out", "whole") == 0
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", Stops)
    assert train_small("--out", "part") == 128 + number
    error = capsys.readouterr().err
    assert "stopped at step 5. Go on with: rnnspec train --resume part" in error
    assert json.loads(Path("part/metrics.json").read_text())["final"]["finished"] is False
    monkeypatch.setattr("rnnspec.train.layers.Recurrent", MiniLayer)
    assert run("train", "--resume", "part", "--sample", "40") == 0
    whole, part = (np.load(f"{folder}/weights.npz") for folder in ("whole", "part"))
    assert all(np.array_equal(whole[name], part[name]) for name in whole.files if name != "meta")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_divergence_exits_1_and_keeps_finite_weights(monkeypatch, capsys):
    class Breaks(MiniLayer):
        calls = 0

        def backward(self, dy, dstate=None):
            Breaks.calls += 1
            dx, d = super().backward(dy)
            return (dx * np.nan if Breaks.calls > 8 else dx), d

    monkeypatch.setattr("rnnspec.train.layers.Recurrent", Breaks)
    assert train_small() == 1
    assert "not finite for 20 steps in a row" in capsys.readouterr().err
    saved = np.load("runs/lstm/weights.npz")
    assert all(np.isfinite(saved[name]).all() for name in saved.files)
    assert None in json.loads(Path("runs/lstm/metrics.json").read_text())["history"]["loss"]


# --- as a process ---


def test_a_reader_that_went_away():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "rnnspec", "list"], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment()
    )
    os.close(writer)
    assert done.returncode == 141 and done.stderr == ""


def test_the_command_starts_without_numpy_or_rich():
    heavy = {"numpy", "rich", "matplotlib", "numba", "sympy"}
    code = (
        f"import sys, rnnspec.commands.cli; rnnspec.commands.cli.make_parser(); print(sorted({heavy} &"
        " set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def test_a_character_that_the_terminal_lacks_is_no_failure(monkeypatch):
    """A trained model's sample may hold any character, and the results are written already."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setattr("rnnspec.commands.list.run", lambda args: print("caf\xe9") or 0)
    assert main(["list"]) == 0 and stdout.buffer.getvalue() == b"caf?\n"


def test_closed_streams_are_no_failure():
    code = (
        "import sys; sys.stderr = None; sys.stdout = None; from rnnspec.commands.cli import main;"
        " sys.exit(main(['train', '--tasks']))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


@pytest.mark.parametrize("command", ["train", "probe", "dynamics"])
def test_an_empty_name_for_results_is_refused(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "rnn", "--out", ""])
    assert "argument --out: must not be empty" in capsys.readouterr().err
