"""The pytest plugin: items, selection, xdist, JUnit, failures that say what to do; and nothing at
all unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny import cell

from rnnspec.check.run import table_of

RIGHT = cell("h[t] = tanh(w * x[t] + h[t-1] / 2)", name="right", parameters="{w: []}")
CHOOSES = cell("h[t] = phi(w * x[t]) + h[t-1] / 2", name="chooses", parameters="{w: []}", choices="{phi: [tanh, relu]}")
WRONG = (
    RIGHT.replace("name: right", "name: wrong")
    + """examples:
  - {title: wrong by hand, sizes: {}, parameters: {w: 1}, inputs: {x: [0]}, outputs: {h: [0.5]}}
"""
)
BROKEN = cell("h[t] = tahn(x[t])", name="broken")


def pytest_run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, without this project's settings; the plugin as its entry
    point loads it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    plugin = ["-p", "rnnspec.check.pytest_plugin"] if "rnnspec" not in _entry_points() else []
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir",
            str(folder),
            "-p",
            "no:cacheprovider",
            *plugin,
            *args,
        ],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _entry_points() -> list[str]:
    from importlib.metadata import entry_points

    return [e.name for e in entry_points(group="pytest11")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    for text in (RIGHT, CHOOSES, WRONG, BROKEN):
        (tmp_path / "specs" / f"{text.splitlines()[1].removeprefix('name: ')}.yaml").write_text(text)
    (tmp_path / "specs" / "settings.yaml").write_text("other: 1\n")
    return tmp_path


def test_every_property_is_an_item(folder):
    done = pytest_run(folder, "--rnnspec", "specs", "--collect-only", "-q", "--rnnspec-dtype", "float64")
    items = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(items) == 4 * len(table_of(["float64"])) + 1 and "settings" not in done.stdout
    for name in (
        "right.yaml::against the reference[float64]",
        "chooses.yaml::padding[float64, phi=relu]",
        "broken.yaml::schema[reference]",
    ):
        assert f"specs/{name}" in items


def test_failures_skips_and_junit(folder):
    done = pytest_run(
        folder,
        "--rnnspec",
        "specs",
        "-k",
        "reference] and not complex",
        "--junitxml",
        "out.xml",
        "-rs",
        "-n",
        "2",
        "-q",
    )
    assert done.returncode == 1, done.stdout
    assert (
        "wrong by hand" in done.stdout
        and "result = check_property('" in done.stdout
        and "Did you mean 'tanh'?" in done.stdout
    )
    assert "the spec has no examples" in done.stdout and "Traceback" not in done.stdout
    cases = list(ElementTree.parse(folder / "out.xml").iter("testcase"))
    assert {c.attrib["name"] for c in cases if c.find("failure") is not None} == {
        "schema[reference]",
        "examples[reference]",
    }


def test_a_kernel_property_runs(folder):
    done = pytest_run(folder, "--rnnspec", "specs/right.yaml", "-k", "step and float64", "-q")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_without_the_option_nothing_is_collected(folder):
    done = pytest_run(folder, "specs", "-q")
    assert done.returncode == 5 and "no tests ran" in done.stdout, done.stdout


def test_the_plugin_costs_nothing_to_load():
    code = (
        "import sys, rnnspec.check.pytest_plugin; print([m for m in ('numpy', 'sympy', 'numba', 'yaml') if m in"
        " sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
