"""The picture of a step: everything is in it, and nothing lies on anything else."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rnnspec.commands.cli import main
from rnnspec.language.load import load
from rnnspec.show.diagram import data_flow, layout, svg


@pytest.mark.parametrize(
    "name", ["rnn", "gru_reset_before", "mogrifier_lstm", "rhn", "ei_rnn", "tau_gru", "clockwork_rnn"]
)
def test_the_picture_has_all_of_a_step_and_no_overlaps(name):
    spec = load(name)
    root = ElementTree.fromstring(svg(spec))
    space = "{http://www.w3.org/2000/svg}"
    frame, *rects = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in root.iter(f"{space}rect")]
    texts = [t.text for t in root.iter(f"{space}text")]
    for e in spec.equations:
        assert (f"{e.target}[t]" if e.timed else e.target) in texts
    for name_ in (*spec.states, *spec.outputs):
        assert f"{name_}, to the next step" in texts or f"{name_}, emitted" in texts
    for i, (x, y, w, h) in enumerate(rects):
        assert frame[0] <= x and frame[1] <= y and x + w <= frame[0] + frame[2] and y + h <= frame[1] + frame[3], (
            "inside the picture"
        )
        for other_x, other_y, other_w, other_h in rects[:i]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y, (
                "boxes lie apart"
            )


def test_lines_of_the_picture_go_around_boxes():
    """A line over several columns has a place of its own in each: c of an LSTM passes all gates."""
    boxes, columns = layout(load("lstm"))
    assert any(not b.kind for b in boxes.values())
    for column in columns:
        for upper, lower in pairwise(sorted((boxes[n] for n in column), key=lambda b: b.y)):
            assert upper.y + upper.height / 2 <= lower.y - lower.height / 2


def test_products_are_thick_lines():
    boxes = data_flow(load("lstm"))
    assert boxes["i"].reads == {"x[t]": True, "h[t-1]": True} and boxes["h"].reads == {"o": False, "c": False}
    assert boxes["c"].reads == {"f": False, "c[t-1]": False, "i": False, "g": False}


def test_the_command_writes_the_picture(tmp_path, capsys):
    file = tmp_path / "lstm.svg"
    assert main(["show", "lstm", "--svg", str(file)]) == 0 and file.read_text() == svg(load("lstm"))
    assert (
        main(["show", "lstm", "--svg", str(file), "--latex"]) == 2
        and "without --stage, --latex and --json" in capsys.readouterr().err
    )
    assert (
        main(["show", "lstm", "--svg", str(tmp_path / "absent" / "lstm.svg")]) == 2
        and "absent" in capsys.readouterr().err
    )
