"""rnnspec.interop.torch under what takes programs apart: gradcheck, torch.compile, torch.export,
torch.func, fake tensors."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import pytest
from tiny import cell
from tolerances import TORCH, assert_close

from rnnspec import UnsupportedError

torch = pytest.importorskip("torch")

from rnnspec.interop import torch_ops as _torch_ops  # noqa: E402
from rnnspec.interop.torch import Recurrent  # noqa: E402
from rnnspec.language.load import digest, load, loads, spec_names  # noqa: E402
from rnnspec.language.rewrite import to_yaml  # noqa: E402
from rnnspec.language.syntax.tree import to_text  # noqa: E402

BOTH = {"num_layers": 2, "bidirectional": True, "dtype": torch.float64}


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(layer: Any) -> Any:
    """A function of tensors: input, state, weights to results; dropout draws the same each time."""
    names = [n for n, _ in layer.named_parameters()]

    def call(x: Any, h: Any, c: Any, *weights: Any, **more: Any) -> Any:
        torch.manual_seed(0)
        y, state, *recorded = torch.func.functional_call(layer, dict(zip(names, weights)), (x, (h, c)), more)
        return (y, *state, *(t for r in recorded for t in r.values()))

    return call


GRADCHECK = {
    "plain": ({}, {}),
    "dropout and ragged": ({"dropout": 0.5}, {"lengths": [3, 0, 2]}),
    "product, recorded, resets": (
        {"merge": "product", "return_all_states": ["f", "c"]},
        {"resets": [[False] * 3, [True, False, True], [True] * 3]},
    ),
    "memory low": ({"memory": "low", "dropout": 0.3}, {}),
    "learned": ({"learn_initial": True, "merge": "sum", "residual": True}, {}),
}


@pytest.mark.parametrize("which", GRADCHECK)
def test_H18_H23_gradcheck(which):
    options, more = GRADCHECK[which]
    torch.manual_seed(1)
    layer = Recurrent("lstm", 2, 2, **BOTH, **options)
    inputs = [
        normal(3, 3, 2).requires_grad_(),
        *(normal(4, 3, 2, seed=s).requires_grad_() for s in (1, 2)),
        *layer.parameters(),
    ]
    assert torch.autograd.gradcheck(
        lambda *tensors: seeded(layer)(*tensors, **more), inputs, fast_mode=True
    )  # along random directions


@pytest.mark.parametrize("memory", ["full", "low"])
def test_gradcheck_of_every_entry(memory):
    layer = Recurrent("lstm", 2, 2, bidirectional=True, memory=memory, dtype=torch.float64)
    inputs = [
        normal(3, 2, 2).requires_grad_(),
        *(normal(2, 2, 2, seed=s).requires_grad_() for s in (1, 2)),
        *layer.parameters(),
    ]
    assert torch.autograd.gradcheck(seeded(layer), inputs)


def test_gradcheck_of_a_cell_of_ones_own():
    spec = loads(
        cell(
            "n[t] = tanh(W @ x[t] + U @ h[t-1] + b)\nh[t] = (1 - sigmoid(a)) * h[t-1] + sigmoid(a) * n[t]",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D], U: [H, H], b: [H], a: [H]}",
        )
    )
    layer = Recurrent(spec, 2, 3, batch_first=True, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x, *w: torch.func.functional_call(layer, dict(zip([n for n, _ in layer.named_parameters()], w)), (x,)),
        [normal(2, 4, 2).requires_grad_(), *layer.parameters()],
    )


def test_the_operators_keep_torchs_rules():
    """Schemas, fake kernels and autograd registrations, as torch.library.opcheck tests them."""
    layer = Recurrent("lstm", 2, 3, dropout=0.5, **BOTH)
    params = [p.detach() for p in layer.parameters()]
    for x, lengths in ((normal(4, 3, 2), None), (normal(4, 3, 2), torch.tensor([4, 1, 3]))):
        arguments = (layer.config.text, params, [x], [normal(4, 3, 3)], 1, 2, lengths, None, torch.tensor(5))
        torch.library.opcheck(torch.ops.rnnspec.infer, (*arguments, 1))
        tracked = (
            layer.config.text,
            [p.clone().requires_grad_() for p in params],
            [x.requires_grad_()],
            *arguments[3:],
        )
        # without the test of aot_dispatch: it asks for the same random numbers, and for results of
        # equal sizes, of which a tape has none
        torch.library.opcheck(
            torch.ops.rnnspec.forward,
            (*tracked, 1),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )
        kept = torch.ops.rnnspec.forward(*arguments, 1)[3:]
        torch.library.opcheck(
            torch.ops.rnnspec.backward,
            (*arguments, kept, [normal(4, 3, 6)], 1),
            test_utils=("test_schema", "test_faketensor"),
        )


class Model(torch.nn.Module):
    """A user's model: what comes before and after the layers is torch's."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.into = torch.nn.Linear(3, 4, dtype=torch.float64)
        self.layers = Recurrent("lstm", 4, 5, batch_first=True, dropout=dropout, **BOTH)
        self.out = torch.nn.Linear(10, 2, dtype=torch.float64)

    def forward(self, x: Any, lengths: Any = None) -> Any:
        y, (h, _) = self.layers(torch.relu(self.into(x)), None, lengths)
        return self.out(y) + h.sum()


def gradients(model: Any, call: Any, *args: Any) -> list[Any]:
    result = call(*args)
    return [result.detach(), *torch.autograd.grad((result * result).sum(), list(model.parameters()))]


def compiled_is_eager(backend: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model()
    call = torch.compile(model, fullgraph=True, backend=backend)
    for shape in ((2, 5, 3), (2, 7, 3), (4, 6, 3)):  # from the second on with sizes that are symbols
        for lengths in (None, torch.randint(0, shape[1] + 1, shape[:1])):
            for mine, right in zip(
                gradients(model, call, normal(*shape), lengths),
                gradients(model, model, normal(*shape), lengths),
                strict=True,
            ):
                assert_close(mine, right, TORCH["float64"])
    model.eval()
    with torch.no_grad():
        assert_close(call(normal(2, 5, 3)), model(normal(2, 5, 3)), TORCH["float64"])


def test_compile_as_a_full_graph():
    """Tracing, fake kernels, and forward and backward graphs with their tapes; without Inductor's
    C++ compiler."""
    compiled_is_eager("aot_eager")


@pytest.mark.slow
def test_compile_as_a_full_graph_with_inductor():
    compiled_is_eager("inductor")


def test_a_compiled_layer_draws_new_dropout_at_every_call():
    torch._dynamo.reset()
    layer = Recurrent("lstm", 3, 4, dropout=0.5, **BOTH)
    call, x = torch.compile(layer, fullgraph=True, backend="aot_eager"), normal(6, 3, 3).requires_grad_()
    torch.manual_seed(0)
    first, second = call(x)[0], call(x)[0]
    torch.manual_seed(0)
    again = call(x)[0]
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert torch.equal(torch.autograd.grad(first.sum(), x)[0], torch.autograd.grad(again.sum(), x)[0])


ELSEWHERE = """
import sys, torch
import rnnspec.interop.torch
program = torch.export.load(sys.argv[1]).module()
x = torch.load(sys.argv[2])
torch.save(program(x), sys.argv[3])
assert "rnnspec" in sys.modules
"""


def test_export_and_run_in_another_process(tmp_path):
    """The program holds the equations: the process that loads it has no file of the cell."""
    torch.manual_seed(0)
    spec = loads(
        cell(
            "h[t] = tanh(W @ x[t] + U @ h[t-1]) * 0.9",
            name="own_cell",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D], U: [H, H]}",
        )
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4, dtype=torch.float64), Recurrent(spec, 4, 5, dtype=torch.float64)
    ).eval()
    sizes = {0: torch.export.Dim("T", max=1000), 1: torch.export.Dim("B", max=64)}
    program = torch.export.export(model, (normal(5, 2, 3),), dynamic_shapes=[sizes])
    names = [n.target for n in program.graph.nodes if n.op == "call_function"]
    assert torch.ops.rnnspec.infer.default in names and torch.ops.rnnspec.forward.default not in names
    x = normal(9, 3, 3)  # other sizes than it was exported with
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save(x, tmp_path / "x.pt")
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *(str(tmp_path / n) for n in ("model.pt2", "x.pt", "y.pt"))],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    for mine, right in zip(torch.load(tmp_path / "y.pt"), model(x), strict=True):
        assert_close(mine.detach(), right.detach(), TORCH["float64"])
    with pytest.raises(UnsupportedError, match="traced for evaluation"):
        program.module()(x)[0].sum().backward()


def test_what_is_exported_in_training_mode_trains():
    torch.manual_seed(0)
    model = Model()
    program = torch.export.export(
        model, (normal(2, 5, 3),), dynamic_shapes=[{0: torch.export.Dim("B"), 1: torch.export.Dim("T")}]
    )
    again = program.module()
    for mine, right in zip(
        gradients(again, again, normal(3, 4, 3)), gradients(model, model, normal(3, 4, 3)), strict=True
    ):
        assert_close(mine, right, TORCH["float64"])


def test_torch_func():
    layer, x = Recurrent("lstm", 3, 4, **BOTH), normal(5, 2, 3)
    params = {n: p.detach() for n, p in layer.named_parameters()}

    def loss(params: Any, x: Any) -> Any:
        return (torch.func.functional_call(layer, params, (x,))[0] ** 2).sum()

    found, dx = torch.func.grad(loss, argnums=(0, 1))(params, x)
    x.requires_grad_()
    loss(dict(layer.named_parameters()), x).backward()
    for name, p in layer.named_parameters():
        assert torch.equal(found[name], p.grad)
    assert torch.equal(dx, x.grad)
    _, pull = torch.func.vjp(lambda x: layer(x)[0], x.detach())
    assert torch.equal(pull(torch.ones(5, 2, 8).double())[0], torch.autograd.grad(layer(x)[0].sum(), x)[0])


def test_the_text_of_a_config_says_all():
    """A cell's file, made again from a Config, is the same cell: to kernels, and in its weights'
    names and initial values."""
    for name in spec_names():
        spec = load(name)
        again = loads(to_yaml(spec))
        for key in (
            "name",
            "inputs",
            "states",
            "parameters",
            "shapes",
            "outputs",
            "no_gradient",
            "noise",
            "defaults",
            "layouts",
            "init",
            "sizes",
        ):
            assert getattr(again, key) == getattr(spec, key), (name, key)
        assert {e.target: to_text(e.value) for e in again.equations} == {
            e.target: to_text(e.value) for e in spec.equations
        }, name
    layer = Recurrent("rnn", 3, 4, phi="relu", sizes={}, dtype=torch.float64)
    again = _torch_ops.stack_of(layer.config.text, "float64", 1)
    assert dict(layer.config.weights) == again.shapes and digest(again.layers[0].spec) == digest(
        load("rnn", phi="relu")
    )


def test_importing_rnnspec_does_not_import_torch():
    code = "import sys, rnnspec; rnnspec.Recurrent, rnnspec.compile('lstm'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_compiled_layer_takes_packed_sequences():
    """Not as a full graph: Dynamo does not trace torch's own packing."""
    torch._dynamo.reset()
    layer, x = Recurrent("lstm", 3, 4, **BOTH), normal(5, 3, 3).requires_grad_()
    call = torch.compile(layer, backend="aot_eager")
    found = []
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "error", "Dynamo detected a call to a `functools.lru_cache`"
        )  # it went into the operators
        for f in (call, layer):
            y, _ = f(torch.nn.utils.rnn.pack_padded_sequence(x, [5, 2, 4], enforce_sorted=False))
            found.append((y.data.detach(), *torch.autograd.grad(y.data.square().sum(), [x, *layer.parameters()])))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
