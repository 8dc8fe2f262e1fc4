"""Cells that learn in C: outputs and gradients are those of the equations and their adjoint, and a
cell learns with the caller's memory alone."""

from __future__ import annotations

import ctypes
import re
import subprocess

import numpy as np
import pytest
from c_library import COMPILER, SANE, STRICT

import rnnspec
from rnnspec.check.sampling import size_values
from rnnspec.commands.cli import main
from rnnspec.engine.initialise import initialise
from rnnspec.errors import UnsupportedError
from rnnspec.export import Learner, learner
from rnnspec.language.load import load, spec_names

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
# one stage, whole rows and a matrix as state, inner loops with pieces of parameters, a surrogate,
# branches not taken, and from states of zero always where a slope jumps
KINDS = ("lstm", "fast_weights", "mogrifier_lstm", "alif", "ltc", "phased_lstm", "slstm_floored")


def learning(name: str, dtype: str) -> Learner:
    spec = load(name)
    sizes = size_values(spec, (9, 13, 5))
    return learner(spec, initialise(spec, sizes, 1, np.dtype(dtype)), sizes=sizes, dtype=dtype, name=f"a_{name}")


def built(made: Learner, folder, *flags: str):
    made.write(folder, selftest=True)
    files = [f"{made.cell.name}.c", f"{made.cell.name}_selftest.c", "-o", made.cell.name, "-lm"]
    done = subprocess.run([COMPILER, *STRICT, *flags, *files], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / made.cell.name


def assert_right(made: Learner, folder, *flags: str) -> str:
    done = subprocess.run([built(made, folder, *flags)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_those_of_the_adjoint(name, tmp_path):
    said = assert_right(learning(name, "float32"), tmp_path, *SANE)
    assert "params " in said and "output " in said


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", spec_names())
def test_gradients_of_all_cells(name, dtype, tmp_path):
    try:
        made = learning(name, dtype)
    except UnsupportedError as error:
        assert load(name).noise or "computed once per sequence" in str(error)
        return
    assert_right(made, tmp_path, *SANE)


@pytest.mark.parametrize("flags", [["-DWITHOUT_VECTORS"], ["-O3", "-march=native"]])
def test_other_ways_to_compile(flags, tmp_path):
    assert_right(learning("gru", "float64"), tmp_path, *flags)


@pytest.mark.parametrize("wrong", ["gradient", "adjoint", "tape"])
def test_the_check_finds_what_is_wrong(wrong, tmp_path):
    made = learning("lstm", "float32")
    program = built(made, tmp_path)
    right = made.source
    changed = {
        "gradient": right.replace("s->value.d_a_i[i] * t->x[j]", "s->value.d_a_f[i] * t->x[j]"),
        "adjoint": right.replace("d_g * (1.0f - g * g)", "d_g * (1.0f - g)"),
        "tape": right.replace("memcpy(t->c_history,", "memcpy(t->h_history,"),
    }[wrong]
    assert changed != right
    (tmp_path / f"{made.cell.name}.c").write_text(changed)
    files = [f"{made.cell.name}.c", f"{made.cell.name}_selftest.c", "-o", program, "-lm"]
    subprocess.run([COMPILER, *files], cwd=tmp_path, check=True)
    assert subprocess.run([program], capture_output=True).returncode == 1


LEARNING = """
#include "net.h"
#include <stdio.h>
static net s;
static net_params p, g;
static net_tape tape[NET_TAPE(20)];
int main(void)
{
    float x[20], h[20 * 6], d_h[20 * 6], first = 0, last = 0;
    p = net_initial;
    net_init(&s, &p);
    for (int round = 0; round < 1500; round++) {
        float loss = 0, *numbers = (float *)&p, *slopes = (float *)&g;
        for (int n = 0; n < 20; n++)
            x[n] = (float)((n * 7 + round * 3) % 5) / 5 - 0.4f;
        for (int i = 0; i < NET_NUMBERS; i++)
            slopes[i] = 0;
        net_reset(&s);
        net_forward(&s, 20, x, tape, h);
        for (int n = 0; n < 20; n++)
            for (int i = 0; i < 6; i++) {
                d_h[n * 6 + i] = i || !n ? 0 : h[n * 6] - x[n - 1];
                loss += d_h[n * 6 + i] * d_h[n * 6 + i];
            }
        net_backward(&s, 20, tape, d_h, &g, NULL);
        for (int i = 0; i < NET_NUMBERS; i++)
            numbers[i] -= 0.05f * slopes[i];
        net_use(&s, &p);
        first = round ? first : loss;
        last = loss;
    }
    printf("%g %g\\n", (double)first, (double)last);
    return 0;
}
"""


def test_a_cell_learns_to_say_what_came_before(tmp_path):
    learner(rnnspec.Recurrent("gru", 1, 6, seed=0, threads=1), name="net").write(tmp_path)
    (tmp_path / "learn.c").write_text(LEARNING)
    command = [COMPILER, *STRICT, *SANE, "net.c", "learn.c", "-o", "learn", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./learn"], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, last = map(float, done.stdout.split())
    assert last < 0.2 * first


def test_gradients_are_added_to_and_all_else_is_written_anew(tmp_path):
    made = learner(rnnspec.Recurrent("rnn", 2, 3, seed=0, threads=1), name="net")
    made.write(tmp_path)
    subprocess.run([COMPILER, *STRICT, "-shared", "-fPIC", "net.c", "-o", "net.so", "-lm"], cwd=tmp_path, check=True)
    library, memory, tape = ctypes.CDLL(str(tmp_path / "net.so")), np.zeros(4096), np.zeros(4096)
    initial = ctypes.c_void_p.in_dll(library, "net_initial")
    gradients, x, h, d_x = np.zeros(64, np.float32), np.ones((4, 2), np.float32), *np.zeros((2, 4, 3), np.float32)
    d_h = np.ones((4, 3), np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (memory, x, tape, h, d_h, gradients, d_x)]
    s, px, pt, ph, pdh, pg, pdx = pointers
    library.net_init(s, ctypes.byref(initial))
    library.net_forward(s, ctypes.c_size_t(4), px, pt, ph)
    for _ in range(2):
        library.net_backward(s, ctypes.c_size_t(4), pt, pdh, pg, None)
    twice = gradients.copy()
    gradients[:] = 0
    library.net_backward(s, ctypes.c_size_t(4), pt, pdh, pg, pdx)
    np.testing.assert_allclose(twice, 2 * gradients, rtol=1e-6)
    assert np.any(gradients) and np.any(d_x)


def test_the_files_allocate_nothing():
    made = learning("lstm", "float32")
    assert not re.search(r"malloc|calloc|alloca|\bgoto\b", made.source)
    assert (made.source, made.header) == (
        learning("lstm", "float32").source,
        learning("lstm", "float32").header,
    )


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: learner(rnnspec.Recurrent("gru", 2, 3, num_layers=2)), UnsupportedError, "each layer of a stack"),
        (lambda: learner(rnnspec.Recurrent("gru", 2, 3, learn_initial=True)), UnsupportedError, "states of zero"),
        (lambda: learner(rnnspec.Recurrent("zoneout_lstm", 2, 3)), UnsupportedError, "C draws none"),
        (lambda: learner(load("gru")), TypeError, "give params and sizes"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_command(tmp_path, capsys):
    given = ["export", "rnn", "--to", "c", "--with", "backward", "--hidden", "5", "--selftest", "--out", str(tmp_path)]
    assert main(given) == 0
    names = {f"rnn{part}{end}" for part in ("", "_learn") for end in (".c", ".h", "_selftest.c")}
    assert {p.name for p in tmp_path.iterdir()} == names
    subprocess.run([COMPILER, "rnn_learn.c", "rnn_learn_selftest.c", "-o", "t", "-lm"], cwd=tmp_path, check=True)
    subprocess.run(["./t"], cwd=tmp_path, check=True, capture_output=True)
    capsys.readouterr()
    for wrong in (["--to", "wasm", "--with", "backward"], ["--to", "onnx", "--with", "backward"]):
        assert main(["export", "rnn", *wrong, "--out", str(tmp_path)]) == 2
        assert "--with" in capsys.readouterr().err
