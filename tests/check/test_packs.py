"""Conformance packs: what is written, and that right implementations pass and wrong ones are caught
by name."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cells import reference_stages
from tiny import cell
from tolerances import REFERENCE

import rnnspec
from rnnspec.backends import reference
from rnnspec.check.packs import adapters as pack_adapters
from rnnspec.check.packs import runner as pack_runner
from rnnspec.check.packs import write as packs
from rnnspec.check.packs.adapters import part
from rnnspec.check.packs.verify import verify as verify_pack
from rnnspec.check.sampling import NoSampleError
from rnnspec.check.tolerances import PACK
from rnnspec.commands.cli import main
from rnnspec.errors import RnnspecError

# a user's own LSTM, in NumPy; {...} are places for faults
LSTM = """
import numpy as np
from {module} import numpy_step

def sigmoid(v):
    return 1 / (1 + np.exp(-v))

def step(p, inputs, s):
    x, h, c = inputs["x"], s["h"], s["c"]
    i, f, g, o = (x @ p["W_" + k].T + h @ p["U_" + k].T + p["b_" + k] for k in {order!r})
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh({seen})
    return {{"h": h}}, {{"h": h, "c": new}}

lstm = numpy_step(step)
"""
RIGHT = {"order": "ifgo", "seen": "new", "module": "rnnspec.check.packs.adapters"}


@pytest.fixture(scope="module")
def lstm_pack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packs") / "lstm_pack"
    packs.write_pack(rnnspec.load("lstm"), folder)
    return folder


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def verify(*argv: str) -> int:
    return main(["verify", *map(str, argv)])


def test_json_and_npz_hold_the_same_numbers(lstm_pack):
    """17 digits tell a float64; what is given is exact in float32."""
    about = json.loads((lstm_pack / "pack.json").read_text())
    assert [c["name"] for c in about["cases"]] == [p.name for p in packs.PLANS] and about["digits"] == 50
    for case in about["cases"]:
        text = json.loads((lstm_pack / "cases" / f"{case['name']}.json").read_text())
        with np.load(lstm_pack / "cases" / f"{case['name']}.npz", allow_pickle=False) as file:
            assert {f"{g}/{k}" for g, group in text.items() for k in group} == set(file.files)
            for key in file.files:
                group, _, name = key.partition("/")
                np.testing.assert_array_equal(np.array(text[group][name]), file[key])
                if group == "given":
                    np.testing.assert_array_equal(file[key].astype(np.float32), file[key])
    assert rnnspec.loads((lstm_pack / "spec.yaml").read_text()).equations == rnnspec.load("lstm").equations


def test_the_same_seed_writes_the_same_numbers(tmp_path):
    spec = rnnspec.loads(cell("h[t] = tanh(w * x[t] + u * h[t-1])", parameters="{w: [], u: []}"))
    texts = []
    for number, seed in enumerate((0, 0, 1)):
        packs.write_pack(spec, tmp_path / str(number), seed)
        texts.append((tmp_path / str(number) / "cases" / "plain.json").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_cases_are_what_their_tags_say(lstm_pack):
    for plan, (name, given, expected) in zip(packs.PLANS, pack_runner.read_cases(lstm_pack, "float64")):
        assert name == plan.name
        assert bool(part(given, "states")) == ("initial-states" in plan.tags) and ("lengths" in given) == (
            "lengths" in plan.tags
        )
        if "lengths" in given:
            assert (min(given["lengths"]) == 0) == ("empty-rows" in plan.tags)
            past = np.arange(plan.shapes.steps)[:, None] >= given["lengths"]
            assert (
                not expected["outputs/h"][past].any()
                and not given["d_outputs/h"][past].any()
                and not expected["gradients/inputs/x"][past].any()
            )
    assert sum(p.shapes.steps == 1 for p in packs.PLANS) == 1


def test_what_an_engine_must_support_is_derived():
    def of(name: str) -> list[str]:
        return packs.tags(rnnspec.load(name), reference_stages(name).graph)

    assert of("lstm") == [] and packs.functions(rnnspec.load("lstm")) == ["sigmoid", "tanh"]
    assert (
        of("antisymmetric_rnn") == ["once-per-sequence"]
        and "several-inputs" in of("gru_d")
        and "matrix-states" in of("mlstm_matrix")
    )
    assert of("zoneout_lstm") == ["several-inputs", "noise"] and of("variational_dropout_lstm") == [
        "several-inputs",
        "noise",
    ]
    assert "history" in of("qrnn") and "CUMAX" in packs.functions(rnnspec.load("on_lstm"))
    assert set(packs.TAGS) >= {t for p in packs.PLANS for t in p.tags}


# --- implementations ---


def test_our_kernels_pass(lstm_pack, capsys):
    assert verify(lstm_pack) == 0
    out = capsys.readouterr().out
    assert f"{2 * len(packs.PLANS)} passed, 0 failed, 0 not tried" in out and "not given" not in out


def test_a_plain_numpy_lstm_passes_without_rnnspec(lstm_pack):
    """The runner and the adapters as they lie in the pack, in a process that can't import
    rnnspec."""
    for path in (lstm_pack / "runner.py", lstm_pack / "adapters.py"):
        assert "rnnspec" not in {
            n.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import)
            for n in node.names
        }
    (lstm_pack / "my.py").write_text(
        LSTM.format(**RIGHT | {"module": "adapters"}) + "\nimport sys\nassert 'rnnspec' not in sys.modules\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for dtype in ("float64", "float32"):
        done = subprocess.run(
            [sys.executable, "runner.py", "my:lstm", "--dtype", dtype],
            cwd=lstm_pack,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("ok ") == len(packs.PLANS)
    done = subprocess.run(
        [sys.executable, "runner.py", "my:nothing"], cwd=lstm_pack, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and "has no attribute 'nothing'" in done.stderr
    (lstm_pack / "my.py").unlink()


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({}, ()),
        ({"order": "iofg"}, ("outputs/h is", "steps/c is")),  # the gates as ONNX orders them
        ({"order": "figo"}, ("outputs/h is", "steps/c is")),
        ({"seen": "c"}, ("outputs/h is",)),  # the old cell
        ({"seen": "new + 1e-9"}, ("outputs/h is",)),
    ],
)
def test_a_numpy_lstm_with_a_fault_is_caught_by_name(lstm_pack, fault, named, capsys):
    Path("my.py").write_text(LSTM.format(**RIGHT | fault))
    assert verify(lstm_pack, "--adapter", "my:lstm", "--dtype", "float64") == bool(fault)
    out = capsys.readouterr().out
    if fault:
        assert all(words in out for words in (*named, "(1e-11 allowed)", "FAILED    plain"))
    else:
        assert (
            f"{len(packs.PLANS)} passed" in out
            and "not given: gradients/inputs, gradients/params, gradients/states" in out
        )


def test_the_first_value_that_differs_is_named(lstm_pack, capsys):
    """With one step from given states, a wrong h leaves c right."""
    Path("my.py").write_text(LSTM.format(**RIGHT | {"seen": "c"}))
    verify(lstm_pack, "--adapter", "my:lstm", "--dtype", "float64", "--json")
    one = next(r for r in json.loads(capsys.readouterr().out)["results"] if r["case"] == "one_step")
    assert [text.split(" is ")[0] for text in one["wrong"]] == ["outputs/h", "steps/h", "final/h"]
    assert re.search(r"outputs/h is [0-9.e-]+ off \(1e-11 allowed\): .* at \[0, \d, \d\], expected ", one["wrong"][0])


@pytest.mark.parametrize(("name", "layout", "kind"), [("lstm", "torch.LSTM", "LSTM"), ("gru", "torch.GRU", "GRU")])
def test_torch_passes(name, layout, kind, tmp_path, lstm_pack):
    """With all gradients; it refuses rows of no steps, and says so."""
    torch = pytest.importorskip("torch")
    folder = lstm_pack
    if name != "lstm":
        packs.write_pack(rnnspec.load(name), folder := tmp_path / name)
    adapter = pack_adapters.torch_module(lambda sizes: getattr(torch.nn, kind)(sizes["D"], sizes["H"]), layout)
    for result in verify_pack(folder, adapter, require=["gradients", "final"]):
        assert result["status"] == ("not tried" if result["case"] == "empty_row" else "ok"), result
        assert result["status"] == "not tried" or result["absent"] == ["steps"], result


def test_an_onnx_model_passes(lstm_pack):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    names = {
        "X": "inputs/x",
        "W": "packed/onnx.LSTM/W",
        "R": "packed/onnx.LSTM/R",
        "B": "packed/onnx.LSTM/B",
        "sequence_lens": "lengths",
        "initial_h": "states/h",
        "initial_c": "states/c",
    }
    fetches = {"Y": "outputs/h", "Y_h": "final/h", "Y_c": "final/c"}
    values = [
        helper.make_tensor_value_info(
            n,
            TensorProto.INT32 if n == "sequence_lens" else TensorProto.FLOAT,
            [None] * (1 if n == "sequence_lens" else 2 if n == "B" else 3),
        )
        for n in names
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in fetches]
    rows = []

    def adapter(case):
        node = helper.make_node("LSTM", list(names), list(fetches), hidden_size=case["sizes"]["H"])
        model = helper.make_model(
            helper.make_graph([node], "g", values, outputs), opset_imports=[helper.make_opsetid("", 14)], ir_version=8
        )
        return pack_adapters.onnx_model(model.SerializeToString(), names, fetches)(case)

    for result in verify_pack(lstm_pack, adapter):
        rows.append(result["status"])
        if result["dtype"] == "float64":
            assert result["status"] == "not tried"
        elif result["case"] == "empty_row":  # ONNX Runtime gives 0 for the final state of a row of no steps
            assert result["status"] == "FAILED" and result["wrong"][0].startswith("final/h is")
        else:
            assert result["status"] == "ok", result
    assert rows.count("ok") == len(packs.PLANS) - 1


WRONG = {
    "raises": ("def adapter(case): raise ValueError('no such gate')", 1, "the adapter raised ValueError: no such gate"),
    "gives nothing": ("def adapter(case): return {}", 1, "outputs/h is missing"),
    "gives None": ("def adapter(case): return None", 1, "the adapter raised TypeError"),
    "unknown name": ("def adapter(case): return {'outputs/y': case['inputs/x']}", 1, "outputs/y is not known"),
    "shape": (
        "def adapter(case): return {'outputs/h': case['inputs/x'][0]}",
        1,
        "outputs/h has the shape (3, 3), not (5, 3, 4)",
    ),
    "NaN": (
        "import numpy as np\ndef adapter(case): return {'outputs/h': np.full(case['shapes']['outputs/h'], np.nan)}",
        1,
        "outputs/h is inf off",
    ),
    "leaves": ("def adapter(case): raise SystemExit(0)", 1, "the adapter raised SystemExit: 0"),
    "raises what can't be shown": (
        "class E(Exception):\n    def __str__(self): raise ValueError\ndef adapter(case): raise E",
        1,
        "the adapter raised my.E",
    ),
    "complex": (
        "def adapter(case): return {k: s * [1j] for k, s in [('outputs/h', 1)]}",
        1,
        "outputs/h has the dtype complex128",
    ),
    "text": ("def adapter(case): return {'outputs/h': '0.5'}", 1, "outputs/h has the dtype <U3"),
    "tries nothing": (
        "def adapter(case): raise NotImplementedError('no LSTM here')",
        1,
        "an implementation that tries nothing does not pass",
    ),
    "no function": ("adapter = 3", 1, "the adapter raised TypeError"),
    "no such name": ("", 2, "can't be loaded: AttributeError"),
    "broken module": ("import nothing_of_this_name", 2, "can't be loaded: ModuleNotFoundError"),
    "syntax": ("def", 2, "can't be loaded: SyntaxError"),
    "module that leaves": ("raise SystemExit(0)", 2, "can't be loaded: SystemExit"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_adapters_are_reported(lstm_pack, what, capsys):
    text, code, words = WRONG[what]
    Path("my.py").write_text(text)
    assert verify(lstm_pack, "--adapter", "my:adapter") == code
    found = capsys.readouterr()
    assert words in found.out + found.err


def test_results_for_machines(lstm_pack, capsys):
    Path("my.py").write_text("print('importing')\n" + LSTM.format(**RIGHT))
    assert verify(lstm_pack, "--adapter", "my:lstm", "--dtype", "float64", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] and [r["case"] for r in found["results"]] == [p.name for p in packs.PLANS]
    assert all(r["largest"] < REFERENCE["float64"] for r in found["results"])


# --- what is left on disk ---


def test_a_pack_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    spec = rnnspec.loads(cell("h[t] = tanh(w * x[t] + u * h[t-1])", parameters="{w: [], u: []}"))

    def fails(about):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(packs, "readme", fails)
        with pytest.raises(KeyboardInterrupt):
            packs.write_pack(spec, tmp_path / "here")
    assert list(tmp_path.iterdir()) == []
    packs.write_pack(spec, tmp_path / "here")
    before = sorted(p.stat().st_mtime_ns for p in (tmp_path / "here").rglob("*"))
    with pytest.raises(RnnspecError, match=r"exists already: give another folder"):
        packs.write_pack(spec, tmp_path / "here")
    with pytest.raises(RnnspecError, match=r"there is no folder '.*nowhere'"):
        packs.write_pack(spec, tmp_path / "nowhere" / "here")
    assert (
        before == sorted(p.stat().st_mtime_ns for p in (tmp_path / "here").rglob("*"))
        and len(list(tmp_path.iterdir())) == 1
    )


def test_pack_by_command(capsys):
    assert main(["pack", "rnn", "--choice", "phi=relu", "--seed", "3", "--out", "relu"]) == 0
    assert f"{len(packs.PLANS)} cases" in capsys.readouterr().out
    about = json.loads(Path("relu", "pack.json").read_text())
    assert about["seed"] == 3 and about["functions"] == ["relu"] and "relu" in about["equations"][0]
    assert main(["pack", "rnn", "--out", "relu"]) == 2 and "exists already" in capsys.readouterr().err
    assert main(["pack", "nothing_of_this_name"]) == 2
    text = Path("relu", "README.md").read_text()
    assert (
        "h[t] = relu(W @ x[t] + U @ h[t-1] + b)" in text
        and PACK["float32"][1] in text
        and "`lengths`: rows of a batch" in text
    )


def edit(folder, change):
    about = json.loads((folder / "pack.json").read_text())
    change(about)
    (folder / "pack.json").write_text(json.dumps(about))


def rewrite(folder, key, value):
    """The first case with other values of one array; None: without it."""
    path = folder / "cases" / "plain.npz"
    with np.load(path) as file:
        arrays = {k: file[k] for k in file.files}
    arrays[key] = value
    np.savez(path, **{k: a for k, a in arrays.items() if a is not None})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "pack.json").unlink(), "is no conformance pack"),
        (lambda f: (f / "pack.json").write_text("[1, 2"), "is no conformance pack"),
        (
            lambda f: (f / "pack.json").write_text('{"rnnspec_pack": 9}'),
            "is a pack of format 9, and this rnnspec reads format 1",
        ),
        (
            lambda f: (f / "cases" / "plain.npz").write_bytes((f / "cases" / "plain.npz").read_bytes()[:100]),
            "is a damaged pack",
        ),
        (lambda f: (f / "cases" / "plain.npz").unlink(), "is a damaged pack"),
        (lambda f: (f / "spec.yaml").unlink(), "is a damaged pack"),
        (
            lambda f: rewrite(f, "expected/outputs/h", np.nan),
            "the case 'plain' expects no outputs, or what is no number",
        ),
        (lambda f: rewrite(f, "expected/outputs/h", None), "the case 'plain' expects no outputs, or what is no number"),
        (
            lambda f: rewrite(f, "given/inputs/x", np.array([{}])),
            "is a damaged pack: p/cases/plain.npz: it holds values of object, and numbers",
        ),
        (
            lambda f: edit(f, lambda about: about["cases"][0].update(name="../cases/plain")),
            "the case '../cases/plain' is not in the folder 'cases'",
        ),
        (lambda f: edit(f, lambda about: about.update(cases=3)), "is a damaged pack: TypeError"),
        (lambda f: edit(f, lambda about: about.update(tolerances=[])), "is a damaged pack: TypeError"),
        (
            lambda f: edit(f, lambda about: about["tolerances"]["float32"].update(relative="wide")),
            "is a damaged pack: ValueError",
        ),
        (lambda f: (f / "pack.json").write_text("[" * 100_000), "is no conformance pack"),
    ],
)
def test_what_is_no_pack_is_said(tmp_path, damage, words, capsys):
    packs.write_pack(
        rnnspec.loads(cell("h[t] = tanh(w * x[t] + u * h[t-1])", parameters="{w: [], u: []}")), tmp_path / "p"
    )
    damage(tmp_path / "p")
    assert verify("p") == 2
    assert words in capsys.readouterr().err

    if (tmp_path / "p" / "cases" / "plain.npz").exists() and "damaged" in words:  # the runner in the pack says it too
        done = subprocess.run(
            [sys.executable, "p/runner.py", "math:sqrt", "--dtype", "float32"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2 and "Traceback" not in done.stderr, done


def test_a_cell_without_finite_values_has_no_pack(tmp_path, capsys):
    Path("nowhere.yaml").write_text(cell("h[t] = log(-1 - x[t]*x[t]) + h[t-1]", name="nowhere"))
    assert (
        main(["pack", "nowhere.yaml"]) == 2
        and "'nowhere': no case can be made. plain: no point found in 40 draws: its values are not finite"
        in capsys.readouterr().err
    )
    assert os.listdir() == ["nowhere.yaml"]


QUICK = ("antisymmetric_rnn", "qrnn")


# --- every cell ---


def by_reference(case):
    """The definition in float64."""
    made = reference_stages(case["spec"])
    params, inputs, states, d_outputs, d_final = (
        part(case, g) for g in ("params", "inputs", "states", "d_outputs", "d_final")
    )
    run = reference.forward(made.graph, params, inputs, states, case.get("lengths"), sizes=case["sizes"])
    back = reference.backward(
        made.adjoint, params, inputs, run, d_outputs, d_final, case.get("lengths"), sizes=case["sizes"]
    )
    groups = {
        "outputs": run.outputs,
        "steps": run.states,
        "final": run.final,
        "gradients/params": back.params,
        "gradients/inputs": back.inputs,
        "gradients/states": back.states,
    }
    return {f"{group}/{n}": a for group, arrays in groups.items() for n, a in arrays.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in rnnspec.spec_names()]
)
def test_every_cell_has_a_pack_that_its_definition_passes(name, tmp_path):
    packs.write_pack(rnnspec.load(name), tmp_path / name)
    for result in verify_pack(tmp_path / name, by_reference, ["float64"]):
        assert result["status"] == "ok" and not result["absent"], result


def test_a_case_that_no_point_serves_is_left_out_and_told(monkeypatch, capsys):
    monkeypatch.setattr("rnnspec.commands.pack.spec_names", lambda: ["rnn"])
    monkeypatch.setattr(packs, "PLANS", packs.PLANS[:2])
    make = packs.CaseMaker.case

    def case(self, plan):
        if plan.name == "plain":
            raise NoSampleError("rounding moves it")
        return make(self, plan)

    monkeypatch.setattr(packs.CaseMaker, "case", case)
    for times in range(2):  # the second time the pack is there
        assert main(["pack", "--all", "all"]) == 0
        said = capsys.readouterr()
        assert "all/rnn is without the case 'plain': rounding moves it" in said.err
        assert f"{1 - times} packs written, {times} were there; " in said.out
    about = json.loads(Path("all/rnn/pack.json").read_text())
    assert [c["name"] for c in about["cases"]] == ["initial_states"]
    assert about["left_out"] == [{"name": "plain", "reason": "rounding moves it"}]
    assert "Left out: `plain`, as rounding moves it." in Path("all/rnn/README.md").read_text()
    assert {r["status"] for r in verify_pack(Path("all/rnn"))} == {"ok"}
    monkeypatch.setattr(packs, "PLANS", packs.PLANS[:1])
    assert main(["pack", "rnn"]) == 2 and "no case can be made. plain: rounding" in capsys.readouterr().err
    assert not Path("rnn_pack").exists()
