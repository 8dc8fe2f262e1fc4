"""Training leaves fixed parameters as they are: no step, no decay, no moment, and they are saved
and come back."""

from __future__ import annotations

import numpy as np
import pytest

from rnnspec.commands.cli import main
from rnnspec.train import checkpoint

FEW = ["--task", "adding", "--steps", "4", "--every", "2", "--hidden", "4", "--batch", "4", "--length", "6"]
DECAY = ["--optimiser", "adamw", "--decay", "5", "--lr", "0.1"]


@pytest.mark.parametrize("cell, held", [("ei_rnn", {"M", "d"}), ("leaky_esn", {"W", "R"})])
def test_decay_does_not_move_it(cell, held, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", cell, *FEW, *DECAY, "--seed", "3", "--out", str(folder)]) == 0
    said = " ".join(capsys.readouterr().err.split())  # lines end where the screen ends
    saved = checkpoint.load(folder / "weights.npz")
    names = {f"layer.{n}_l0" for n in held}
    assert names <= set(saved.group("model")) and not any(
        n.partition(".")[2] in names for n in saved.group("optimiser")
    )
    count = sum(saved.group("model")[n].size for n in names)
    trained = sum(a.size for n, a in saved.group("model").items() if n not in names)
    assert f"{trained:,} parameters" in said and f", {count:,} fixed numbers beside them" in said
    assert main(["train", cell, *FEW, *DECAY, "--seed", "3", "--steps", "0", "--out", str(tmp_path / "begin")]) == 0
    begin = checkpoint.load(tmp_path / "begin" / "weights.npz").group("model")
    for name, array in saved.group("model").items():
        assert (array == begin[name]).all() == (name in names), name


def test_it_is_read_from_the_file_when_a_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    assert main(["train", "ei_rnn", *FEW, *DECAY, "--out", str(folder)]) == 0
    with np.load(folder / "weights.npz") as file:
        arrays = {n: file[n] for n in file.files}
    arrays["model/layer.M_l0"][...] = np.eye(4)
    np.savez(folder / "weights.npz", **arrays)
    assert main(["train", "--resume", str(folder), "--steps", "6"]) == 0
    assert (checkpoint.load(folder / "weights.npz").group("model")["layer.M_l0"] == np.eye(4)).all()
    assert main(["probe", "--run", str(folder), "--length", "4", "--out", str(tmp_path / "p.png")]) == 0
