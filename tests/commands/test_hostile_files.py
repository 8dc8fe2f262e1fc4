"""Run folders, packs, weights and data of others: each is taken or refused with one clear error;
none hangs, none takes the memory, none ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hostile_files import archive, bombs, changed, header, spoil
from tiny import cell

import rnnspec
from rnnspec.check.packs.write import write_pack
from rnnspec.commands.cli import main, make_parser
from rnnspec.commands.train import request_from
from rnnspec.errors import RnnspecError
from rnnspec.storage import archives, guarded
from rnnspec.storage.guarded import Refused
from rnnspec.train.config import TrainingConfig
from rnnspec.train.errors import TrainError
from rnnspec.train.loop import next_batch
from rnnspec.train.plots import loss_curve
from rnnspec.train.results import MetricsLog
from rnnspec.train.saved import CONFIG
from rnnspec.train.setup import set_up

TASKS = {
    "adding": ("--batch", "3", "--length", "5"),
    "text": ("--batch", "3", "--length", "5", "--embed", "3", "--data", "text.txt"),
}
SECONDS = 60  # of a busy machine


@contextmanager
def timed() -> Iterator[None]:
    """Its block may not take long; a hang in the system ends too."""
    if not hasattr(signal, "alarm"):
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Run folders of three tasks, and a pack, as they should be."""
    here = tmp_path_factory.mktemp("right")
    before = Path.cwd()
    os.chdir(here)
    try:
        Path("text.txt").write_text("to be or not to be, that is the question. " * 9)
        for task, more in TASKS.items():
            arguments = ["rnn", "--task", task, "--hidden", "4", "--steps", "1", "--threads", "1"]
            assert main(["train", *arguments, *more, "--out", task]) == 0
        Path("tested.yaml").write_text(cell("h[t] = tanh(w * x[t] + u * h[t-1])", parameters="{w: [], u: []}"))
        write_pack(rnnspec.load("tested.yaml"), Path("pack"))
    finally:
        os.chdir(before)
    return here


def spoiled_run(number: int, places: Path, here: Path) -> Path:
    draw = random.Random(number)
    folder = here / f"run{number}"
    shutil.copytree(places / draw.choice(list(TASKS)), folder)
    spoil(draw, folder / "weights.npz", lambda meta: changed(draw, meta), into="meta")
    if draw.random() < 0.1:
        with open(folder / "metrics.jsonl", "ab") as file:
            file.write(draw.choice((b"[" * 10_000, b"\xff\n", b'{"step": null}\n', b'{"step": 1}')))
    return folder


@timed()
def resume(folder: Path, here: Path) -> None:
    """All of `rnnspec train --resume` but the summary at the end, and `--from`."""
    args = make_parser().parse_args(["train", "--resume", str(folder), "--steps", "2", "--threads", "1"])
    run = set_up(request_from(args)).run
    with MetricsLog(folder / "metrics.jsonl", run.step):
        pass
    loss_curve(here / "loss.png", run.history, run.problem, "")
    run.model.gradients(next_batch(run), run.state)
    set_up(request_from(make_parser().parse_args(["train", "--from", str(folder), "--steps", "2", "--threads", "1"])))


@timed()
def verify_pack(folder: Path) -> int:
    return main(["verify", str(folder), "--adapter", "hostile_adapter:nothing", "--dtype", "float32"])


def spoiled_pack(number: int, places: Path, here: Path) -> Path:
    draw = random.Random(number)
    folder = here / f"pack{number}"
    shutil.copytree(places / "pack", folder)
    path = folder / "pack.json"
    if draw.random() < 0.5:
        spoil(draw, draw.choice(sorted((folder / "cases").glob("*.npz"))))
    elif draw.random() < 0.8:
        path.write_text(json.dumps(changed(draw, json.loads(path.read_text()))), errors="replace")
    else:
        content = bytearray((folder / "spec.yaml").read_bytes())
        content[draw.randrange(len(content))] = draw.randrange(256)
        (folder / "spec.yaml").write_bytes(content)
    return folder


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    """Gives nothing: what is tried is the reading."""
    (tmp_path / "hostile_adapter.py").write_text("def nothing(case):\n    return {}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def all_refused_or_taken(numbers, places: Path, here: Path) -> tuple[int, int]:
    """How many of so many run folders and packs were refused. Every other exception is a fault."""
    runs = packs = 0
    for number in numbers:
        folder = spoiled_run(number, places, here)
        try:
            resume(folder, here)
        except (RnnspecError, MemoryError) as error:
            assert str(error).isprintable() or "\n" in str(error)
            runs += 1
        shutil.rmtree(folder)
        folder = spoiled_pack(number, places, here)
        packs += verify_pack(folder) == 2
        shutil.rmtree(folder)
    return runs, packs


@pytest.mark.filterwarnings("ignore")
def test_a_hundred_hostile_run_folders_and_packs(places, tmp_path, adapter, monkeypatch, capsys):
    monkeypatch.chdir(places)
    runs, packs = all_refused_or_taken(range(50), places, tmp_path)
    assert runs > 25 and packs > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_thousand_hostile_run_folders_and_packs(places, tmp_path, adapter, monkeypatch, capsys):
    monkeypatch.chdir(places)
    runs, packs = all_refused_or_taken(range(1000, 2000), places, tmp_path)
    assert runs > 500 and packs > 200


@pytest.mark.parametrize("number", range(len(bombs("x"))))
@timed()
def test_bombs_are_refused_before_there_is_memory_for_them(tmp_path, number):
    path = tmp_path / "weights.npz"
    path.write_bytes(bombs("x")[number])
    layer = rnnspec.Recurrent("rnn", 2, 3)
    tracemalloc.start()
    try:
        for read in (archives.arrays, layer.load):
            with pytest.raises(ValueError, match=r"weights\.npz"):
                read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO")
@timed()
def test_what_is_no_file_is_refused_and_not_opened(tmp_path, places, capsys):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    layer = rnnspec.Recurrent("rnn", 2, 3)
    shutil.copytree(places / "pack", tmp_path / "pack")
    shutil.copytree(places / "adding", tmp_path / "run")
    for name, words in (("fifo", "no regular file, but a FIFO"), ("zero", "but a device"), ("folder", "a directory")):
        path = tmp_path / name
        for read in (layer.load, guarded.read, archives.arrays, archives.array):
            with pytest.raises(ValueError, match=words):
                read(path)
        for place in ("pack/pack.json", "pack/cases/plain.npz", "pack/spec.yaml"):
            real = tmp_path / f"{place}.real"
            (tmp_path / place).rename(real)
            (tmp_path / place).symlink_to(path)
            assert main(["verify", str(tmp_path / "pack")]) == 2 and words in capsys.readouterr().err
            (tmp_path / place).unlink()
            real.rename(tmp_path / place)
        (tmp_path / "cell.yaml").symlink_to(path)
        assert main(["show", str(tmp_path / "cell.yaml")]) == 2 and words in capsys.readouterr().err
        (tmp_path / "cell.yaml").unlink()
        assert main(["train", "rnn", "--data", str(path), "--out", str(tmp_path / "new")]) == 2
        assert name in capsys.readouterr().err
        (tmp_path / "run" / "metrics.jsonl").unlink()
        (tmp_path / "run" / "metrics.jsonl").symlink_to(path)
        with pytest.raises(TrainError, match=words):
            MetricsLog(tmp_path / "run" / "metrics.jsonl", 1)


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), -1e-9, 0.5, True, "1e-5", None, [1e-5]])
def test_a_pack_with_a_tolerance_that_allows_all_is_refused(places, tmp_path, capsys, tolerance, adapter):
    shutil.copytree(places / "pack", tmp_path / "pack")
    about = json.loads((tmp_path / "pack" / "pack.json").read_text())
    about["tolerances"]["float32"]["relative"] = tolerance
    (tmp_path / "pack" / "pack.json").write_text(json.dumps(about))
    assert verify_pack(tmp_path / "pack") == 2 and "tolerance for float32" in capsys.readouterr().err


def test_every_part_of_a_configuration_is_checked():
    assert set(CONFIG) == {field.name for field in fields(TrainingConfig)}


def test_arrays_come_back_as_numpy_wrote_them(tmp_path):
    right = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b/c": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 3), np.int64),
        "one": np.array(7, np.int8),
        "big": np.arange(3, dtype=">i4"),
        "flags": np.array([True, False]),
    }
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "x.npz", **right)
        found = archives.arrays(tmp_path / "x.npz")
        assert list(found) == list(right)
        for name, array in right.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype and found[name].flags.writeable
    np.save(tmp_path / "x.npy", right["b/c"])
    np.testing.assert_array_equal(archives.array(tmp_path / "x.npy"), right["b/c"])


def test_damage_of_every_kind_has_a_reason(tmp_path):
    path = tmp_path / "x.npz"
    whole = header("(2,)") + bytes(8)
    twice = io.BytesIO()
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(twice, "w") as made:
        made.writestr("a.npy", whole)
        made.writestr("a.npy", whole)
    right = archive([("a.npy", whole)])
    at = right.index(b"PK\x01\x02")

    def patched(place: int, content: bytes) -> bytes:
        return right[: at + place] + content + right[at + place + len(content) :]

    for content, words in (
        (twice.getvalue(), "two of its arrays have one name"),
        (patched(8, b"\x01"), "encrypted"),
        (patched(10, b"\x63"), "NumPy does not use"),
        (patched(16, b"\1\2\3\4"), "Bad CRC"),
        (patched(24, b"\xff\xff\xff\x0f"), "at most"),
        (right[:-8], "its end is missing|damaged"),
        (right[:at], "its end is missing"),
        (archive([("a.npy", whole[:-1])]), "has 8 bytes, and 7 are there"),
        (archive([("a.npy", b"hello")]), "damaged, or of another kind"),
        (archive([("../a.npy", whole)]), "can't be called"),
        (archive([("a.npy", header("(True,)") + bytes(4))]), "shape|damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(Refused, match=words):
            archives.arrays(path)
