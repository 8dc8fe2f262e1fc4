"""Adapters of packs for other worlds: JAX, Keras, C, programs that speak JSON; and what is said
when they fail, or give less than is required."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rnnspec
from rnnspec.check.packs import adapters, runner
from rnnspec.check.packs import write as packs
from rnnspec.check.packs.cases import PLANS
from rnnspec.check.packs.verify import verify
from rnnspec.check.sampling import NoSampleError
from rnnspec.commands.cli import main


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """The pack of the simplest network."""
    folder = tmp_path_factory.mktemp("packs") / "rnn_pack"
    packs.write_pack(rnnspec.load("rnn"), folder)
    return folder


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def statuses(results) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in results:
        found[result["status"]] = found.get(result["status"], 0) + 1
        assert result["status"] != "FAILED", result
    return found


# --- JAX and Keras


def test_a_step_in_jax_passes_with_all_gradients(pack):
    jnp = pytest.importorskip("jax.numpy")

    def step(p, inputs, states):
        h = jnp.tanh(inputs["x"] @ p["W"].T + states["h"] @ p["U"].T + p["b"])
        return {"h": h}, {"h": h}

    adapter, require = adapters.jax_step(step), ["gradients", "steps", "final"]
    assert statuses(verify(pack, adapter, ["float64"], require)) == {"ok": len(PLANS)}
    assert statuses([next(verify(pack, adapter, ["float32"], require))]) == {"ok": 1}


def test_a_wrong_step_in_jax_is_caught_in_its_gradients(pack):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def step(p, inputs, states):
        h = jnp.tanh(inputs["x"] @ p["W"].T + jax.lax.stop_gradient(states["h"] @ p["U"].T) + p["b"])
        return {"h": h}, {"h": h}

    result = next(verify(pack, adapters.jax_step(step), ["float64"]))
    assert {text.split(" is ")[0] for text in result["wrong"]} >= {"gradients/params/U", "gradients/inputs/x"}
    assert not any(text.startswith(("outputs", "steps", "final")) for text in result["wrong"])


def test_kerass_weights_are_laid_out_as_its_variables_are():
    blocks = {"kernel.T": np.ones((8, 3)), "bias[1]": np.full(4, 1.0), "bias[0]": np.zeros(4), "gamma": np.ones(2)}
    found = adapters.unpacked(blocks)
    assert found["kernel"].shape == (3, 8) and found["gamma"].shape == (2,)
    np.testing.assert_array_equal(found["bias"], [[0.0] * 4, [1.0] * 4])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_keras_passes(name, tmp_path):
    """Where it is installed."""
    from rnnspec.check.peers import import_keras

    pytest.importorskip("keras")
    keras = import_keras()
    packs.write_pack(rnnspec.load(name), tmp_path / name)
    kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[name]
    adapter = adapters.keras_layer(lambda sizes, **more: kind(sizes["H"], **more), f"keras.{name.upper()}")
    found = statuses(verify(tmp_path / name, adapter))
    assert found == {"ok": len(PLANS), "not tried": len(PLANS)}


# --- C

C = """
#include <math.h>
#include <stdint.h>

#define RNN(REAL, NAME, TANH)                                                                      \\
  int64_t NAME(int64_t T, int64_t B, const int64_t *sizes, const int64_t *lengths,                 \\
               const REAL *const *given, REAL *const *found) {                                     \\
    int64_t D = sizes[0], H = sizes[1];                                                            \\
    const REAL *W = given[0], *U = given[1], *b = given[2], *x = given[3];                         \\
    REAL *h = (REAL *)given[4];                                                                    \\
    for (int64_t t = 0; t < T; t++)                                                                \\
      for (int64_t r = 0; r < B; r++) {                                                            \\
        REAL *y = found[0] + (t * B + r) * H;                                                      \\
        for (int64_t i = 0; i < H; i++) {                                                          \\
          REAL sum = b[i];                                                                         \\
          for (int64_t j = 0; j < D; j++) sum += W[i * D + j] * x[(t * B + r) * D + j];            \\
          for (int64_t j = 0; j < H; j++) sum += U[i * H + j] * h[r * H + j];                      \\
          y[i] = t < lengths[r] ? TANH(sum) : 0;                                                   \\
        }                                                                                          \\
        for (int64_t i = 0; i < H && t < lengths[r]; i++) h[r * H + i] = y[i];                     \\
      }                                                                                            \\
    for (int64_t i = 0; i < B * H; i++) found[1][i] = h[i];                                        \\
    return 0;                                                                                      \\
  }
RNN(float, rnn_float32, tanhf)
RNN(double, rnn_float64, tanh)

int64_t refuses_float64(void) { return 1; }
int64_t fails_float64(void) { return -7; }
int64_t writes_nothing_float64(void) { return 0; }
"""
GIVEN, FOUND = ["params/W", "params/U", "params/b", "inputs/x", "states/h"], ["outputs/h", "final/h"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A shared library, by the C compiler that is there."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("c")
    (folder / "rnn.c").write_text(C)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", folder / "rnn.so", folder / "rnn.c", "-lm"]
    subprocess.run(command, check=True)
    return folder / "rnn.so"


def test_a_c_library_passes(pack, library):
    adapter = adapters.c_library(library, "rnn", GIVEN, FOUND, ["D", "H"])
    assert statuses(verify(pack, adapter)) == {"ok": 2 * len(PLANS)}


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        ("refuses", "not tried", "refuses_float64 does not try this case"),
        ("fails", "FAILED", "fails_float64 gave -7, and not 0"),
        ("writes_nothing", "FAILED", "outputs/h is inf off"),
        ("nowhere", "not tried", "rnn.so has no nowhere_float64"),
    ],
)
def test_what_a_c_function_says_is_told(pack, library, function, status, words):
    result = next(verify(pack, adapters.c_library(library, function, GIVEN, FOUND, ["D", "H"]), ["float64"]))
    assert result["status"] == status and words in result["wrong"][0] and not result["traceback"]


def test_what_of_c_can_not_be_called_is_told(pack, library):
    result = next(verify(pack, adapters.c_library("nothing.so", "rnn", GIVEN, FOUND, ["D", "H"])))
    assert result["status"] == "FAILED" and "the library can't be loaded" in result["wrong"][0]
    result = next(verify(pack, adapters.c_library(library, "rnn", ["params/V"], FOUND, ["D", "H"])))
    assert "no case of this pack has 'params/V'" in result["wrong"][0]


# --- a program that speaks JSON

PROGRAM = """
import json, math, sys
case = json.load(sys.stdin)
W, U, b, x = case["params/W"], case["params/U"], case["params/b"], case["inputs/x"]
T, B, H = case["steps"], case["rows"], case["sizes"]["H"]
h = case.get("states/h") or [[0.0] * H for _ in range(B)]
lengths, y = case.get("lengths") or [T] * B, []
for t in range(T):
    y.append([[0.0] * H for _ in range(B)])
    for r in range(B):
        if t < lengths[r]:
            read = x[t][r] + h[r]
            h[r] = y[t][r] = [math.tanh(b[i] + sum(w * v for w, v in zip(W[i] + U[i], read))) for i in range(H)]
json.dump({"outputs/h": y, "final/h": h}, sys.stdout)
"""


def test_a_program_passes(pack, capsys):
    Path("program.py").write_text(PROGRAM)
    assert main(["verify", str(pack), "--command", f"{sys.executable} program.py"]) == 0
    assert f"{2 * len(PLANS)} passed, 0 failed" in capsys.readouterr().out


TROUBLES = {
    "dies": (
        "import sys; print('no licence', file=sys.stderr); sys.exit(3)",
        "ended with exit status 3; it said:\nno licence",
    ),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
    "hangs": ("import time; time.sleep(60)", "gave no answer in 1 s, and was stopped"),
    "hangs in a child": (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])",
        "gave no answer in 1 s, and was stopped",
    ),
    "rubbish": ("print('\\x1b[31mhello')", "answered with what is no JSON"),
    "nothing": ("", "gave no answer"),
    "half": ("print('{\"outputs/h\": [[1, 2')", "answered with what is no JSON"),
    "no object": ("print([1, 2])", "answered with no object: '[1, 2]"),
    "no numbers": ("print('{\"outputs/h\": [[1], [2, 3]]}')", "'outputs/h' is no array of numbers"),
    "deep": ("print('[' * 100000)", "answered with what is no JSON"),
    "other shape": ("print('{\"outputs/h\": [[1.0]]}')", "outputs/h has the shape (1, 1), not (5, 3, 4)"),
    "NaN": (
        "print('{\"outputs/h\": ' + str([[[float('nan')] * 4] * 3] * 5).replace('nan', 'NaN') + '}')",
        "is inf off",
    ),
    "unread": ("import os; os.close(0); print('{}')", "outputs/h is missing"),
}


@pytest.mark.parametrize("what", TROUBLES)
def test_a_program_in_trouble_is_told_of(pack, what):
    text, words = TROUBLES[what]
    start = time.monotonic()
    timeout = 1.0 if "hangs" in what else 60.0
    adapter = adapters.json_program([sys.executable, "-S", "-c", text], timeout)
    result = next(verify(pack, adapter, ["float64"]))
    assert result["status"] == "FAILED" and words in "\n".join(result["wrong"]) and not result["traceback"], result
    assert "the adapter raised" not in result["wrong"][0] and time.monotonic() - start < 30


def test_a_program_that_prints_without_end_is_stopped(pack, monkeypatch):
    monkeypatch.setattr(adapters, "MOST_OUTPUT", 2**20)
    adapter = adapters.json_program([sys.executable, "-S", "-c", "while True: print('0' * 10_000)"], 60.0)
    assert "printed more than 1 MiB, and was stopped" in next(verify(pack, adapter))["wrong"][0]


def test_what_a_hanging_program_started_is_ended_with_it(pack):
    """Its child would write a file later."""
    child = "import time; time.sleep(3); open('late', 'w')"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    next(verify(pack, adapters.json_program([sys.executable, "-S", "-c", text], 0.5)))
    time.sleep(3.5)
    assert not os.path.exists("late")


def test_a_program_may_leave_cases_out_or_not_be_there(pack, capsys):
    text = 'print(\'{"not_tried": "only on Sundays"}\')'
    result = next(verify(pack, adapters.json_program([sys.executable, "-S", "-c", text])))
    assert result["status"] == "not tried" and result["wrong"] == ["only on Sundays"]
    assert main(["verify", str(pack), "--command", "./nothing_of_this_name"]) == 1
    assert "'./nothing_of_this_name' can't be started: No such file or directory" in capsys.readouterr().out
    for wrong, words in (("'", "No closing quotation"), (" ", "--command is empty")):
        assert main(["verify", str(pack), "--command", wrong]) == 2 and words in capsys.readouterr().err
    assert main(["verify", str(pack), "--timeout", "3"]) == 2 and "give it with --command" in capsys.readouterr().err


# --- what is required, and what is shown

STEP = """
import numpy as np
from rnnspec.check.packs.adapters import numpy_step, part

def step(p, inputs, states):
    h = np.tanh(inputs["x"] @ p["W"].T + states["h"] @ p["U"].T + p["b"])
    return {"h": h}, {"h": h}

mine = numpy_step(step)

def some(case):
    found = mine(case)
    return found if case["steps"] == 1 else {"outputs/h": found["outputs/h"]}

def fails(case):
    def inner():
        return part(case, "params")["V"]
    try:
        return inner()
    except KeyError as error:
        raise RuntimeError("no such \\x1b[31mgate") from error
"""


def test_what_was_not_given_is_said(pack, capsys):
    Path("my.py").write_text(STEP)
    assert main(["verify", str(pack), "--adapter", "my:mine", "--dtype", "float64"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "not given, so not tried: gradients/params in any case; gradients/inputs in any case; gradients/states in any"
        " case (--require gradients makes that a failure)"
    )
    assert main(["verify", str(pack), "--adapter", "my:some", "--dtype", "float64"]) == 0
    assert f"steps in {len(PLANS) - 1} of them" in capsys.readouterr().out
    assert main(["verify", str(pack)]) == 0 and "not given" not in capsys.readouterr().out


def test_what_is_required_and_missing_fails(pack, capsys):
    Path("my.py").write_text(STEP)
    assert main(["verify", str(pack), "--adapter", "my:mine", "--require", "gradients,steps"]) == 1
    out = capsys.readouterr().out
    assert f"0 passed, {2 * len(PLANS)} failed" in out and "gradients/params is required and not given" in out
    assert "steps is required" not in out
    assert main(["verify", str(pack), "--adapter", "my:mine", "--require", "steps,final"]) == 0
    capsys.readouterr()
    assert (
        main(["verify", str(pack), "--adapter", "my:some", "--require", "final", "--json", "--dtype", "float64"]) == 1
    )
    found = json.loads(capsys.readouterr().out)
    assert found["required"] == ["final"]
    assert {r["case"] for r in found["results"] if r["status"] == "ok"} == {"one_step"}
    assert main(["verify", str(pack), "--require", "gradients,steps"]) == 0  # our own kernels give all
    capsys.readouterr()
    assert main(["verify", str(pack), "--require", "gradient"]) == 2
    assert "'gradient' can't be required: choose of steps, final, gradients" in capsys.readouterr().err


def test_the_runner_in_the_pack_requires_too(pack):
    Path("my.py").write_text(STEP)
    path = {"PYTHONPATH": os.pathsep.join([os.getcwd(), str(Path(rnnspec.__file__).parents[1])])}
    command = [sys.executable, str(pack / "runner.py"), "my:mine"]

    def ran(*more: str) -> tuple[int, str]:
        done = subprocess.run([*command, *more], capture_output=True, text=True, env=os.environ | path)
        return done.returncode, done.stdout + done.stderr

    assert ran()[0] == 0 and "(--require gradients makes that a failure)" in ran()[1]
    code, text = ran("--require", "gradients/inputs")
    assert code == 1 and "gradients/inputs is required and not given" in text and "params is required" not in text
    assert ran("--require", "everything")[0] == 2


def test_an_adapter_that_raises_is_shown_where(pack, capsys):
    """The last lines of its traceback, without ours, and without what would control a terminal."""
    Path("my.py").write_text(STEP)
    assert main(["verify", str(pack), "--adapter", "my:fails", "--dtype", "float64"]) == 1
    out = capsys.readouterr().out
    assert "the adapter raised RuntimeError: no such \\u001b[31mgate" in out
    assert 'return part(case, "params")["V"]' in out and "KeyError: 'V'" in out and "runner.py" not in out
    result = next(verify(pack, lambda case: 1 / 0))
    lines = result["traceback"].splitlines()
    assert lines[0].startswith("Traceback") and "1 / 0" in "".join(lines) and lines[-1].startswith("ZeroDivisionError")


def test_what_fails_alike_in_all_cases_is_told_once(pack, capsys):
    Path("my.py").write_text(STEP + "\n\ndef untried(case):\n    raise NotImplementedError('only on Sundays')\n")
    assert main(["verify", str(pack), "--adapter", "my:fails"]) == 1
    out = capsys.readouterr().out
    assert out.count("KeyError: 'V'") == out.count("the adapter raised RuntimeError: no such") == 1
    assert out.count("          the same as in plain (float32)\n") == 2 * len(PLANS) - 1
    path = {"PYTHONPATH": os.pathsep.join([os.getcwd(), str(Path(rnnspec.__file__).parents[1])])}
    for adapter, line in (("fails", "FAILED    plain"), ("untried", "not tried plain")):
        command = [sys.executable, str(pack / "runner.py"), f"my:{adapter}"]
        said = subprocess.run(command, capture_output=True, text=True, env=os.environ | path).stdout
        assert said.startswith(f"{line}\n          ") and "0.0e+00" not in said  # which nothing was compared for
        assert said.count("the same as in plain (float64)") == (len(PLANS) - 1) * (adapter == "fails")


def test_a_long_traceback_is_cut(pack):
    def deep(case, n=50):
        return deep(case, n - 1) if n else case["nothing"]

    def other(case):
        try:
            return deep(case)
        except KeyError as error:
            raise ValueError("first") from error

    lines = next(verify(pack, other))["traceback"].splitlines()
    assert len(lines) == runner.TRACED + 1 and lines[0] == "..." and lines[-1] == "ValueError: first"


# --- cases


def test_every_pack_has_a_wide_and_a_long_case(pack):
    about = {c["name"]: c for c in json.loads((pack / "pack.json").read_text())["cases"]}
    assert about["long"]["steps"] == 200 and about["wide"]["rows"] > 16
    assert all(size > 16 for size in about["wide"]["sizes"].values())


def test_an_engine_that_forgets_what_lies_beyond_its_vectors_is_caught(pack):
    """The last units of the 17th on are computed without their biases."""

    def step(p, inputs, states):
        b = np.where(np.arange(len(p["b"])) < 16, p["b"], 0)
        h = np.tanh(inputs["x"] @ p["W"].T + states["h"] @ p["U"].T + b)
        return {"h": h}, {"h": h}

    results = verify(pack, adapters.numpy_step(step), ["float64"])
    assert [r["case"] for r in results if r["status"] == "FAILED"] == ["wide"]


def test_an_engine_that_forgets_after_many_steps_is_caught(pack):
    """As one whose chunks of 64 steps begin from zeros."""
    inner = adapters.numpy_step(
        lambda p, i, s: (lambda h: ({"h": h}, {"h": h}))(np.tanh(i["x"] @ p["W"].T + s["h"] @ p["U"].T + p["b"]))
    )

    def adapter(case):
        if case["steps"] < 64:
            return inner(case)
        first = {**case, "steps": 64, "inputs/x": case["inputs/x"][:64]}
        last = {k: v for k, v in case.items() if not k.startswith("states/")}
        last = inner({**last, "steps": 136, "inputs/x": case["inputs/x"][64:]})
        return {"outputs/h": np.concatenate([inner(first)["outputs/h"], last["outputs/h"]])}

    results = verify(pack, adapter, ["float64"])
    assert [r["case"] for r in results if r["status"] == "FAILED"] == ["long"]


# --- all cells


def test_packs_of_all_cells_go_on_where_they_stopped(monkeypatch, capsys):
    cells = ["rnn", "irnn", "lif"]
    monkeypatch.setattr("rnnspec.commands.pack.spec_names", lambda: cells)
    monkeypatch.setattr(packs, "PLANS", PLANS[:1])
    written = []

    def write(spec, folder, seed):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(spec.name)
        return packs.write_pack(spec, folder, seed)

    with monkeypatch.context() as patch:
        patch.setattr("rnnspec.commands.pack.write_pack", write)
        assert main(["pack", "--all", "all"]) == 130
    assert sorted(os.listdir("all")) == sorted(cells[:2])
    assert main(["pack", "--all", "all"]) == 0
    assert "all: 1 packs written, 2 were there; " in capsys.readouterr().out
    Path("all", "irnn", "spec.yaml").write_text("another one")
    assert main(["pack", "--all", "all"]) == 1
    said = capsys.readouterr()
    assert "'all/irnn' holds something else and is left as it is" in said.err and "1 folders hold something" in said.out
    assert main(["pack", "--all", "all", "--seed", "1"]) == 1 and capsys.readouterr().err.count("left as it is") == 3
    assert main(["pack", "lstm", "--all", "all"]) == 2 and "without a cell" in capsys.readouterr().err
    Path("file").touch()
    assert main(["pack", "--all", "file"]) == 2 and "can't be made" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["pack"])
    assert left.value.code == 2 and "or --all DIR" in capsys.readouterr().err


def test_a_cell_without_a_pack_leaves_the_others(monkeypatch, capsys):
    monkeypatch.setattr("rnnspec.commands.pack.spec_names", lambda: ["rnn", "lif"])
    monkeypatch.setattr(packs, "PLANS", PLANS[:1])

    def write(spec, folder, seed):
        if spec.name == "rnn":
            raise NoSampleError("'rnn', case 'plain': no point found")
        return packs.write_pack(spec, folder, seed)

    monkeypatch.setattr("rnnspec.commands.pack.write_pack", write)
    assert main(["pack", "--all", "all"]) == 1
    said = capsys.readouterr()
    assert (
        "no pack of 'rnn', case 'plain'" in said.err and "1 packs written, 0 were there, 1 cells have none" in said.out
    )
