"""bench tiles: ours and NumPy's values agree in every line, and a wrong one is found out. Nothing
here depends on how fast anything is."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import results, tile_work, tiles
from rnnspec.backends.cpu.machine import host

SMALL = {"outer": (64, 40, 48), "pack": (32, 20, "units"), "gather": (7,), "product": (5, 20, 3, 2)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", SMALL)
def test_values_agree_with_numpys(kind: str, dtype: str) -> None:
    ours, wanted = tile_work.work(kind, SMALL[kind], dtype).results()
    assert ours.shape == wanted.shape and np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(ours, wanted, atol=1e-4 if dtype == "float32" else 1e-12)


def test_a_wrong_value_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tile_work.work("one row", (1, 32, 4, 2), "float32")
    wrong = replace(right, results=lambda: (right.results()[0], right.results()[1] + np.float32(0.1)))
    monkeypatch.setattr(tile_work, "work", lambda *_: wrong)
    with pytest.raises(ValueError, match=r"values differ by 0\.1"):
        next(tiles.measure(["one row"], "float32", 1))


def test_every_kind_has_lines() -> None:
    for lanes in (2, 4, 8, 16):
        found = list(tiles.shapes(tiles.KINDS, lanes))
        assert {kind for kind, _ in found} == set(tiles.KINDS) and len(found) == len(set(found))


def test_a_report_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    tiles.add_arguments(parser)
    file = tmp_path / "tiles.json"
    assert tiles.main(parser.parse_args(["gather", "one row", "--rounds", "1", "--json", str(file)])) == 0
    out, report = capsys.readouterr().out, json.loads(file.read_text())
    assert report["kind"] == "tiles" and {row["kind"] for row in report["rows"]} == {"one row", "gather"}
    assert f"{host().registers} registers of {8 * host().register_bytes} bits" in out and "of peak" in out
    assert all(row["ratio"] > 0 and row["share"] > 0 for row in report["rows"] if row["kind"] == "one row")
    assert "## Products" in results.document([report], ["tiles.json"])
    assert tiles.main(parser.parse_args(["none"])) == 2
    assert "no lines of kind none; there are product" in capsys.readouterr().err
