"""`rnnspec doctor` and `rnnspec cache`: what is there, what is missing and what to do, in 80
columns and as JSON."""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from rnnspec.commands import cache as command
from rnnspec.commands import doctor
from rnnspec.commands.cli import main
from rnnspec.storage import cache

KEPT = "py3.11-numba0.61.0-llvmlite0.44-skylake-0123456789abcdef"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache with two files of ours and one that is none."""
    folder = tmp_path / "kept"
    (folder / KEPT).mkdir(parents=True)
    folder.chmod(0o700)
    for name, size in (("a_01.kernel", 3000), ("a_01.py", 96), ("of_others.txt", 50)):
        (folder / KEPT / name).write_bytes(b"x" * size)
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(folder))
    return folder


def out(capsys, *argv):
    assert main(argv) == 0
    return capsys.readouterr().out


def test_the_doctor_tells_what_is_there(place, capsys):
    text = out(capsys, "doctor")
    assert all(len(line) <= 80 for line in text.splitlines() if str(place) not in line and "/" not in line)
    found = json.loads(out(capsys, "doctor", "--json"))
    assert found["processor"]["lanes"]["float32"] == 2 * found["processor"]["lanes"]["float64"]
    assert found["processor"]["threads"] <= found["processor"]["cores"]
    names = {row["name"]: row for row in found["packages"]}
    assert {"numpy", "numba", "sympy"} <= set(names) and names["numpy"]["version"]
    assert not {"pytest", "jax"} & set(names)  # for who develops rnnspec
    assert found["cache"] == {"folder": str(place), "files": 2, "bytes": 3096, "trouble": ""}
    assert f"{names['numpy']['name']} {names['numpy']['version']}" in text and "3.0 KiB" in text


def test_the_doctor_says_how_to_get_what_is_missing(monkeypatch, capsys):
    real = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name in ("torch", "numba-cuda") else real(name))
    text = out(capsys, "doctor")
    assert "torch -               not installed: pip install 'rnnspec[torch]'" in text
    assert "what it takes: an NVIDIA GPU" in text


def test_the_doctor_tells_of_a_gpu(monkeypatch):
    class Gpu:
        capability = (9, 0)

    monkeypatch.setattr("rnnspec.backends.cuda.launch.driver.first_device", Gpu)
    found = doctor.gpu()
    assert found["capability"] == "9.0" and found["trouble"] == ""
    assert "compute capability 9.0" in doctor.text(doctor.examined() | {"gpu": found})


def test_rnnspec_that_is_not_installed(monkeypatch, capsys):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", absent)
    assert "runs from its source and is not installed" in out(capsys, "doctor")


def test_the_size_of_the_cache(place, capsys):
    assert out(capsys, "cache", "--size") == "3.0 KiB\n"
    text = out(capsys, "cache")
    assert text.splitlines()[:2] == [str(place), "2 files, 3.0 KiB"]
    assert json.loads(out(capsys, "cache", "--json"))["files"] == 2


def test_clearing_the_cache(place, capsys):
    assert out(capsys, "cache", "--clear").startswith("deleted 2 files, 3.0 KiB")
    assert [p.name for p in place.rglob("*") if p.is_file()] == ["of_others.txt"]
    (place / KEPT / "a_02.kernel").write_bytes(b"x")
    assert json.loads(out(capsys, "cache", "--clear", "--json")) == command.as_dict(cache.contents())
    assert cache.contents().files == 0


def test_a_cache_that_is_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "not" / "yet"))
    assert cache.contents() == cache.Contents(tmp_path / "not" / "yet", 0, 0, "") and not (tmp_path / "not").exists()


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_a_cache_that_can_not_be_used(place, monkeypatch, capsys):
    place.chmod(0o777)
    assert "not used: " in out(capsys, "cache") and "NOT USED" in out(capsys, "doctor")
    assert main(["cache", "--clear"]) == 2
    assert "nothing is deleted" in capsys.readouterr().err and (place / KEPT / "a_01.kernel").exists()
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(Path(__file__) / "below"))
    assert "can't be written to" in cache.contents().trouble


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1004974, "981 KiB"),
        (2**20, "1.0 MiB"),
        (2**41, "2048 GiB"),
    ],
)
def test_sizes_for_people(size, text):
    assert command.size_text(size) == text


def test_a_wrong_number_of_threads_is_said_without_a_traceback(place, capsys, monkeypatch):
    monkeypatch.setenv("RNNSPEC_THREADS", "many")
    assert main(["doctor"]) == 2
    assert "rnnspec doctor: RNNSPEC_THREADS must be a whole number" in capsys.readouterr().err
