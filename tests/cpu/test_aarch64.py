"""Kernels with NEON's vectors, on an emulated aarch64 machine where one is set up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import aarch64
import pytest

import rnnspec
from rnnspec.check import check_cells

FOLDER = os.environ.get("RNNSPEC_AARCH64")
emulated = pytest.mark.skipif(not FOLDER, reason=aarch64.missing(None))


@pytest.fixture
def folder() -> Path:
    assert not aarch64.missing(FOLDER), aarch64.missing(FOLDER)
    return Path(str(FOLDER)).resolve()


@emulated
@pytest.mark.slow
def test_vectors_are_those_of_neon(folder):
    asked = "from rnnspec.backends.cpu.machine import host; print(sorted(host().lanes.items()), host().registers)"
    assert aarch64.run(folder, ["-c", asked]).stdout == "[('float32', 4), ('float64', 2)] 32\n"


@emulated
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cell", aarch64.CELLS)
def test_cells_pass_their_check(folder, cell):
    row = aarch64.check(folder, cell)
    assert row.code == 0 and row.passed and not row.failures, str(row)


def test_the_cells_are_there():
    assert set(aarch64.CELLS) - set(aarch64.TEXTS) <= set(rnnspec.spec_names())
    assert all(rnnspec.loads(text).name == name for name, text in aarch64.TEXTS.items())


def test_it_says_what_it_does():
    done = subprocess.run([sys.executable, aarch64.__file__, "--help"], capture_output=True, text=True, check=True)
    assert "FOLDER" in done.stdout and "autonomous" in done.stdout


def test_a_folder_that_is_not_set_up_is_named(tmp_path):
    assert "aarch64.py FOLDER" in aarch64.missing(None) and str(tmp_path) in aarch64.missing(str(tmp_path))
    (tmp_path / "ready").touch()
    assert not aarch64.missing(str(tmp_path))


def test_a_machine_without_debians_tools_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(aarch64.Failed, match="apt-get is missing"):
        aarch64.set_up(tmp_path / "machine")


def test_a_check_that_says_nothing_has_failed(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho no >&2\nexit 0\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    row = aarch64.check(tmp_path, "lstm")
    assert row.code == 1 and "no" in str(row)


def test_a_report_is_counted(tmp_path):
    """As `rnnspec check --json` writes it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "report.json").write_text(check_cells(["lstm"], dtypes=()).to_json())
    (tmp_path / "bin" / "python").write_text(f"#!/bin/sh\ncat {tmp_path}/report.json\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    row = aarch64.check(tmp_path, "lstm")
    assert (row.code, row.passed, row.failures, row.skipped) == (0, 10, (), 1)
