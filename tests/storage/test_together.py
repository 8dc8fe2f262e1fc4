"""Several files that belong together are all written, or none is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rnnspec.commands.cli import main
from rnnspec.storage import atomic

OLD, NEW = b"old", b"new"


@pytest.fixture
def files(tmp_path):
    """Three files of a folder, of which the middle one is there already, with another content."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    paths[1].write_bytes(OLD)
    return dict.fromkeys(paths, NEW)


def found(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_all_are_written(files, tmp_path):
    assert atomic.write_all(files) == tuple(files)
    assert found(tmp_path) == {"a": NEW, "b": NEW, "c": NEW}


def test_a_folder_in_the_way(files, tmp_path):
    (tmp_path / "c").mkdir()
    with pytest.raises(IsADirectoryError):
        atomic.write_all(files)
    assert found(tmp_path) == {"b": OLD}


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("which", ["a", "b", "c"])
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_whichever_can_not_be_written(call, which, links, files, tmp_path, monkeypatch):
    right, number = getattr(os, call), "abc".index(which) + 1
    calls = []

    def wrong(*given):
        calls.append(given)
        if len(calls) == number and (call == "replace" or len(calls) < 4):
            raise OSError(28, "No space left on device")
        return right(*given)

    def no_links(*given, **more):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, call, wrong)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_all(files)
    assert found(tmp_path) == {"b": OLD}


@pytest.mark.parametrize(
    "options, in_the_way",
    [(("--selftest",), "gru_selftest.c"), (("--apart",), "gru.h"), (("--with", "backward"), "gru_learn.h")],
)
def test_the_command_leaves_no_part(options, in_the_way, tmp_path, capsys):
    (tmp_path / in_the_way).mkdir()
    given = ["export", "gru", "--to", "c", "--inputs", "1", "--hidden", "3", "--out", str(tmp_path)]
    assert main([*given, *options]) == 2
    assert in_the_way in capsys.readouterr().err
    assert os.listdir(tmp_path) == [in_the_way]


def test_the_command_prints_a_path_as_one_word(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "two words & 'more'"
    folder.mkdir()
    given = ["export", "gru", "--to", "c", "--inputs", "1", "--hidden", "3", "--selftest", "--out", str(folder)]
    assert main(given) == 0
    said = dict(line.split(" with: ") for line in capsys.readouterr().out.splitlines() if " with: " in line)
    assert str(folder / "gru.c") in shlex.split(said["compile"])
    assert str(folder / "gru_selftest.c") in shlex.split(said["check"])
    monkeypatch.chdir(tmp_path)
    if subprocess.run(["which", "cc"], capture_output=True).returncode == 0:
        subprocess.run(said["check"].replace("-O3", "-O0"), shell=True, check=True, capture_output=True)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_killed_process_that_nobody_has_asked_for_writes_no_more(tmp_path):
    """Its parent may go on for long, and what it had begun to write is in the way until then."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = tmp_path / f".metrics.json.0123456789abcdef.{child.pid}.tmp"
    left.touch()
    atomic.sweep(tmp_path / "metrics.json")
    assert left.exists()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is there still
    atomic.sweep(tmp_path / "metrics.json")
    assert not left.exists()
    child.communicate()
