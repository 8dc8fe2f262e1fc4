"""Weights of torch modules obey their constraints, whoever optimises them."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from constrained_cells import EVERY, not_obeyed

torch = pytest.importorskip("torch")

import rnnspec  # noqa: E402
from rnnspec.interop.torch import Cell, Recurrent  # noqa: E402
from rnnspec.language.load import loads  # noqa: E402

SPEC = loads(EVERY)


def broken(layer) -> list[str]:
    return not_obeyed(SPEC, {n.removesuffix("_l0"): t.detach().numpy() for n, t in layer.state_dict().items()})


def test_every_constraint_holds_after_each_of_1000_steps_of_torchs_adam():
    torch.manual_seed(0)
    layer = Recurrent(SPEC, 3, 5)
    assert broken(layer) == []
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    held = {n: t.clone() for n, t in layer.named_buffers()}
    x = torch.randn(4, 2, 3)
    for step in range(1000):
        optimiser.zero_grad()
        if step % 50 == 0:
            layer(x)[0].sum().backward()
        for p in layer.parameters():
            p.grad = torch.randn_like(p) + (0 if p.grad is None else p.grad)
        optimiser.step()
        assert broken(layer) == [], step
    assert set(held) == {"K_l0", "M_l0", "d_l0"} and all((layer.get_buffer(n) == t).all() for n, t in held.items())


def test_torch_and_ours_go_the_same_way():
    """Gradient descent, projected: the same numbers."""
    ours = rnnspec.Recurrent("dale_rnn", 3, 6, dtype="float64", seed=3).eval()
    theirs = Recurrent("dale_rnn", 3, 6, dtype=torch.float64).eval()
    theirs.load_state_dict({n: torch.from_numpy(a) for n, a in ours.state_dict().items()})
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.5)
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    for _ in range(20):
        y, _ = ours(x)
        ours.backward(2 * y - 1)
        for name, p in ours.params.items():
            p -= 0.5 * ours.grads[name]
        ours.constrain()
        optimiser.zero_grad()
        out = theirs(torch.from_numpy(x))[0]
        (out**2 - out).sum().backward()
        optimiser.step()
    for name, p in ours.params.items():
        np.testing.assert_allclose(theirs.get_parameter(name).detach(), p, rtol=1e-9, atol=1e-12)


def test_an_update_by_hand_is_kept_at_the_next_call_and_by_constrain():
    layer = Recurrent(SPEC, 3, 5)
    for update in (lambda: layer(torch.zeros(1, 1, 3)), layer.constrain):
        with torch.no_grad():
            for p in layer.parameters():
                p -= torch.randn_like(p)
        assert broken(layer)
        update()
        assert broken(layer) == []
    with torch.no_grad():
        layer.M_l0.copy_(torch.eye(5))
        layer.d_l0.mul_(-1)
    layer.constrain(initial=True)
    assert broken(layer) == []
    cell = Cell(SPEC, 3, 5)
    with torch.no_grad():
        cell.A.add_(1)
    cell(torch.zeros(2, 3))
    assert not_obeyed(SPEC, {n: t.detach().numpy() for n, t in cell.state_dict().items()}) == []


def test_copies_pickles_and_loaded_weights_obey_too():
    layer = Recurrent(SPEC, 3, 5)
    bad = {n: t + 1 if n != "M_l0" else t for n, t in layer.state_dict().items()}
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        optimiser = torch.optim.SGD(other.parameters(), lr=1.0)
        for p in other.parameters():
            p.grad = torch.randn_like(p)
        optimiser.step()
        assert broken(other) == [] and broken(layer) == []
    layer.load_state_dict(bad)
    assert broken(layer) == [] and (layer.d_l0 == bad["d_l0"]).all()


def test_what_cannot_be_kept_is_refused_and_given_weights_are_used_as_they_are():
    layer = Recurrent(SPEC, 3, 5)
    given = {n: p.detach() + 1 for n, p in layer.named_parameters()}
    y, _ = torch.func.functional_call(layer, given, (torch.ones(2, 1, 3),))
    kernel = rnnspec.compile(SPEC)
    params = {n.removesuffix("_l0"): t.detach().numpy() for n, t in {**layer.state_dict(), **given}.items()}
    found = kernel.infer(params, {"x": np.ones((2, 1, 3), np.float32)}).outputs["h"]
    np.testing.assert_allclose(y.detach(), found, rtol=1e-5, atol=1e-6)
    torch.nn.utils.parametrizations.weight_norm(layer, "N_l0")
    with pytest.raises(rnnspec.UnsupportedError, match="the weight N_l0 is made by a parametrization"):
        layer(torch.ones(2, 1, 3))
