"""Text of others reaches the terminal as text: nothing in it moves the cursor, rings, turns the
direction of writing or hides."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.check.packs.write import write_pack
from rnnspec.commands import output, progress, train
from rnnspec.commands.cli import main
from rnnspec.errors import RnnspecError, visible

ROOT = Path(__file__).resolve().parents[2]
BAD = "\x1b[2J\x07\x08\r\x7f\x9b31m\u202e\u2066\u200f\u061c\u2028\ufeff\U000e0041"
PLAIN = "é ü 漢字 עברית ❤️ \u200d ∑ 𝛼 \t\n"


def is_clean(text: str) -> bool:
    return not set(BAD) & set(text) - set("[2J31m")


@pytest.fixture
def clean(capfd):
    """What was printed, after a look that nothing of others is in it."""

    def printed() -> str:
        text = "".join(capfd.readouterr())
        assert is_clean(text), ascii(text)
        return text

    return printed


def test_what_is_seen_stays_and_what_is_not_is_written_out():
    assert visible(PLAIN) == PLAIN
    assert is_clean(visible(BAD)) and visible("\x1b[31m") == "\\u001b[31m"
    assert visible("\U000e0041\ud800") == "\\udb40\\udc41\\ud800"
    for character in map(chr, (*range(0x110), *range(0x2000, 0x2070))):
        seen = visible(character)
        assert seen == character or json.loads(f'"{seen}"') == character


def test_json_means_the_same(clean):
    output.say(json.dumps({"a": BAD}, ensure_ascii=False))
    assert json.loads(clean()) == {"a": BAD}


def test_errors_are_visible_wherever_they_are_shown():
    assert is_clean(str(RnnspecError(BAD))) and is_clean(f"{RnnspecError(BAD)}")
    with pytest.raises(rnnspec.SpecError) as error:
        rnnspec.loads(cell("h[t] = x[t]") + f"# {BAD}\nkey: 1\n{BAD}: 2\n")
    assert is_clean(str(error.value)) and is_clean(str(error.value.errors[0]))
    with pytest.raises(rnnspec.SpecError) as error:
        rnnspec.loads(cell("h[t] = x[t] # \x1b[31m \u202e abc\nh[t] = nothing[t] \x1b"))
    assert is_clean(str(error.value))


def test_the_mark_below_a_line_stays_below_its_place():
    from rnnspec.errors import Problem

    _, line, mark = str(Problem("wrong.", 1, 7, "f", "ab\x1bcd\u202eef", 2)).splitlines()
    assert line[mark.index("^") : mark.index("^") + 2] == "ef"


def test_names_of_files_and_arguments(tmp_path, clean, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b\x1b[31m\u202e.yaml").write_text(cell("h[t] = x[t]"))
    assert main(["show", "b\x1b[31m\u202e.yaml"]) == 2
    assert main(["show", "none\x1b[31m"]) == 2
    assert main(["train", "rnn", "--data", "none\x1b[31m"]) == 2
    assert main(["list", "\x1b[31m"]) == 0
    with pytest.raises(SystemExit):
        main(["show", "rnn", "\x1b[31m"])
    assert "\\u001b[31m" in clean()


def test_packs(tmp_path, clean, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tested.yaml").write_text(cell("h[t] = tanh(w * x[t])", parameters="{w: []}"))
    write_pack(rnnspec.load("tested.yaml"), Path("p"))
    about = json.loads(Path("p/pack.json").read_text())
    name = about["cases"][0]["name"] = "plain\x1b[31m\u202e"
    shutil.move("p/cases/plain.npz", f"p/cases/{name}.npz")
    Path("p/pack.json").write_text(json.dumps(about))
    Path("noisy.py").write_text('def one(case):\n    raise ValueError("\\x1b[2J \\u202e")\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["verify", "p", "--adapter", "noisy:one"]) == 1
    assert "plain\\u001b[31m\\u202e" in clean()
    assert main(["verify", "p", "--adapter", "noisy:one", "--json"]) == 1
    assert json.loads(clean())["results"][0]["case"] == name
    for change in ({"rnnspec_pack": BAD}, {"cases": [{"name": BAD}]}, {"tolerances": {"float32": {"relative": BAD}}}):
        Path("p/pack.json").write_text(json.dumps(about | change))
        assert main(["verify", "p", "--adapter", "noisy:one", "--dtype", "float32"]) == 2
        clean()
    about["cases"][0]["name"] = name
    Path("p/pack.json").write_text(json.dumps(about))
    done = subprocess.run([sys.executable, "p/runner.py", "noisy:one"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and is_clean(done.stdout + done.stderr)


def test_weights(tmp_path):
    np.savez(tmp_path / "w.npz", **{"a\x1b[31m\u202e": np.zeros(2, np.float32)})
    with pytest.raises(ValueError) as error:
        rnnspec.Recurrent("rnn", 2, 3).load(tmp_path / "w.npz")
    assert is_clean(str(error.value))
    (tmp_path / "w\x1b[31m.npz").write_bytes(b"")
    with pytest.raises(ValueError) as error:
        rnnspec.Recurrent("rnn", 2, 3).load(tmp_path / "w\x1b[31m.npz")
    assert is_clean(str(error.value))


def test_samples_and_summaries_of_a_run(clean, tmp_path):
    problem = SimpleNamespace(
        metric=SimpleNamespace(name="loss", unit="nats"), loss_unit="nats", baseline=(BAD, 1.0), summary=lambda: BAD
    )
    report = SimpleNamespace(
        step=1, seconds=0.0, tokens=1, fraction=0.5, loss=1.0, scores={"loss": 1.0}, sample=BAD, trouble=BAD
    )
    assert is_clean(progress.line(report, progress.Pace(), problem))
    with progress.training(BAD, problem) as show:
        show(report)
    with progress.waiting(BAD):
        pass
    config = SimpleNamespace(cell=f"{BAD}.yaml", layers=1, hidden=2, task_name=BAD, patience=0, steps=3, retain=4)
    run = SimpleNamespace(
        config=config,
        problem=problem,
        model=SimpleNamespace(params={}, fixed={}),
        step=1,
        seconds=1.0,
        skipped=0,
        best=None,
    )
    train.announce(run, tmp_path / BAD, (BAD,))
    final = {
        "sample": BAD,
        "score": 1.0,
        "scores": {"loss": 1.0, BAD: 1.0},
        "weights_only": True,
        "tokens_per_second": 1.0,
        "compile_seconds": 0.0,
        "files": [BAD],
        "not_finite": [],
    }
    train.conclude(run, tmp_path, final)
    assert clean().count("\\u001b[2J") >= 6


def test_commands_print_by_one_function():
    for path in (ROOT / "rnnspec" / "commands").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                assert path.name == "output.py", f"{path.name}, line {node.lineno}: `say` shows text of others"
