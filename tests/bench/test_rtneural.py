"""bench export --rtneural without RTNeural: the driver's text, the order of weights, and what is
said where something is missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import export, rtneural


def checkout(folder: Path) -> Path:
    for name in rtneural.NEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_driver_stacks_layers_of_the_case() -> None:
    text = rtneural.driver("lstm", 2, 16)
    assert "@" not in text
    assert "RTNeural::LSTMLayerT<float, 1, 16> l0;" in text and "RTNeural::LSTMLayerT<float, 16, 16> l1;" in text
    assert text.index("stack.l0.forward(in);") < text.index("stack.l1.forward(stack.l0.outs);")
    assert "gates = 3, biases = 2;" in rtneural.driver("gru", 1, 8)


def test_weights_are_in_keras_order() -> None:
    def params(gates: int) -> dict[str, np.ndarray]:
        number = np.repeat(np.arange(gates, dtype=np.float32), 2)
        sides = {"weight_ih_l0": number[:, None], "weight_hh_l0": np.stack([number, number], 1)}
        return {**sides, "bias_ih_l0": number, "bias_hh_l0": 10 + number}

    z_r_h, i_f_c_o = [1, 1, 0, 0, 2, 2], [0, 0, 1, 1, 2, 2, 3, 3]
    biases = [*z_r_h, *(10 + n for n in z_r_h)]
    assert rtneural.weights("gru", params(3), 1).tolist() == [*z_r_h * 3, *biases]
    assert rtneural.weights("lstm", params(4), 1).tolist() == [*i_f_c_o * 3, *(10 + 2 * n for n in i_f_c_o)]


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"no RTNeural/lstm/lstm.h and no RTNeural/gru/gru.h"):
        rtneural.folder(str(tmp_path))
    checkout(tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        with pytest.raises(argparse.ArgumentTypeError, match=r"there is no g\+\+"):
            rtneural.folder(str(tmp_path))
    monkeypatch.setattr(rtneural, "backends", lambda checkout: [])
    monkeypatch.setattr(rtneural.shutil, "which", lambda name: name)
    with pytest.raises(argparse.ArgumentTypeError, match=r"neither Eigen/Dense nor xsimd/xsimd.hpp"):
        rtneural.folder(str(tmp_path))


def test_column_is_there_where_it_was_asked_for() -> None:
    times = dict.fromkeys(("C", "ORT step", "torch step", "ORT", "torch"), 2e-06)
    row = {"cell": "gru", "layers": 1, "hidden": 8, "native": True, "object": 1, "params": 1}
    with_both = {**times, "RTNeural eigen": 8e-6, "RTNeural xsimd": 5e-6}

    def text(seconds: dict[str, float], folder: str | None) -> str:
        return export.render(report([{**row, "seconds": seconds}], folder))

    assert "RTNeural" not in text(times, None)
    assert "RTNeural / C" in text(with_both, "DIR") and "2.5" in text(with_both, "DIR")


def report(rows: list[dict[str, object]], folder: str | None) -> dict[str, object]:
    from bench import machine

    return machine.describe() | {"rows": rows, "settings": {"checkout": folder}}
