"""What a roof is drawn from: work counted from programs, held against counts by hand."""

import pytest

import rnnspec
from bench import machine
from bench.cells import render
from bench.roof import roof
from bench.work import Work, operations, work
from rnnspec.lowering.pipeline import stages
from rnnspec.symbolic.expressions import FUNCTION_CLASSES
from rnnspec.symbolic.operations import power, symbol, total

D, H = 3, 5


@pytest.mark.parametrize(
    ("cell", "gates", "functions"), [("lstm", 4, {"sigmoid": 3, "tanh": 2}), ("rnn", 1, {"tanh": 1})]
)
def test_multiply_adds_of_a_step_are_those_of_its_matrices_and_twice_as_many_backwards(cell, gates, functions):
    made, sizes = stages(rnnspec.load(cell)), {"D": D, "H": H}
    forward, backward = work(made.forward, sizes), work(made.backward, sizes)
    assert forward.multiply_adds == gates * H * (D + H)
    assert backward.multiply_adds == 2 * forward.multiply_adds  # of the gradients' sums too, once
    assert forward.functions == {name: times * H for name, times in functions.items()}
    assert not backward.functions


def test_what_stands_twice_in_an_expression_is_counted_once():
    x, tanh = symbol("x"), FUNCTION_CLASSES["tanh"]
    assert operations(tanh(x) * tanh(x)) == {"tanh": 1, "operations": 1}
    assert operations(total(x, tanh(x), x)) == {"tanh": 1, "operations": 2}
    assert operations(power(x, 4)) == {"operations": 2}


def test_a_roof_is_what_takes_longer():
    little, much = Work(1000, 0, {}, 1), Work(1000, 0, {"exp": 10}, 10_000_000)
    assert roof(little, 1, "float32", 100.0).bound == "arithmetic"
    assert roof(little, 1, "float32", 100.0).seconds == pytest.approx(2000 / 100e9)
    bound = roof(much, 1, "float32", 100.0)
    assert bound.bound == "memory" and bound.seconds == bound.moving > bound.computing > 2000 / 100e9


def test_the_table_counts_the_cells_that_reach_their_roof():
    row = {"seconds": 1.0, "gflops": 1.0, "share": 0.1, "bound": "memory", "stages": 0, "rowwise": 0, "narrowest": 8}
    rows = [row | {"cell": "a", "of_roof": 0.7}, row | {"cell": "b", "of_roof": 0.5}]
    text = render(machine.describe() | {"rows": rows})
    assert "1 of 2 cells at 60 % of their roof" in text
    assert text.index("\nb ") < text.index("\na ")
