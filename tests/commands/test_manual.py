"""What README and manual show of files and commands is what there is: the whole language in one
block, and what commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import rnnspec
from rnnspec.commands.cli import main

TOP = Path(__file__).resolve().parents[2]
LANGUAGE = (TOP / "docs" / "language.md").read_text(encoding="utf-8")
MANUAL = "\n".join(p.read_text(encoding="utf-8") for p in [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))])


def whole() -> str:
    found = re.search(r"in a cell\s+that\s+has one of each:\n\n```yaml\n(.*?)```", LANGUAGE, re.DOTALL)
    assert found, "the manual no longer shows the whole language"
    return found.group(1)


def test_the_whole_language_loads_and_runs(tmp_path):
    """As a text, and as a file of its name, with its constant and its choice."""
    spec = rnnspec.loads(whole())
    assert spec.outputs == ("h", "s", "q") and "keep_h" in spec.noise
    (tmp_path / "whole.yaml").write_text(whole(), encoding="utf-8")
    other = rnnspec.load(tmp_path / "whole.yaml", alpha=0.5, phi="relu")
    assert other.equations != spec.equations
    kernel = rnnspec.compile(spec, dtype="float64")
    given = {"x": np.ones((3, 2, 2)), "u": np.ones((3, 2, 4))}
    run = kernel.forward(kernel.init(D=2, H=3, seed=0), given, noise=1)
    grad = kernel.backward(run, {n: np.ones_like(a) for n, a in run.outputs.items()})
    assert "M" not in grad.params and "u" not in grad.inputs and np.isfinite(grad.params["V"]).all()


def test_the_whole_language_has_every_key():
    keys = {line.split(":")[0] for line in whole().splitlines() if re.match(r"[a-z_]+:", line)}
    with pytest.raises(rnnspec.SpecError, match="unknown key 'zz'") as told:
        rnnspec.loads("rnnspec: 1\nname: a\nzz: 1\n")
    known = re.search(r"Known here: (.*?)\.", str(told.value))
    assert known and keys == set(known[1].split(", "))


PRINTED = [(command, shown) for command, shown in re.findall(r"```\n\$ (rnnspec [^\n]*)\n(.*?)```", MANUAL, re.DOTALL)]


@pytest.mark.parametrize(("command", "shown"), PRINTED, ids=[c for c, _ in PRINTED])
def test_commands_print_what_is_shown(command, shown, capsys):
    """To the line of three dots, where there is one."""
    main(shlex.split(command)[1:])
    lines, expected = capsys.readouterr().out.splitlines(), shown.splitlines()
    if expected[-1] == "...":
        expected = expected[:-1]
        lines = lines[: len(expected)]
    assert lines == expected


def test_what_is_shown_of_commands_is_found():
    assert "rnnspec diff gru gru_reset_before" in [command for command, _ in PRINTED]


def test_bench_is_said_to_need_a_checkout():
    training = (TOP / "docs" / "training.md").read_text(encoding="utf-8")
    first = training.index("`python -m bench ...`")
    assert "needs a checkout of the repository" in training[first : first + 100]
