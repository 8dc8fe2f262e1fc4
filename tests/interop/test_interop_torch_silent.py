"""What rnnspec.interop.torch got wrong without a word: tangents that were dropped, storages that
could not be resized any more, gradients without their place."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import cell

import rnnspec

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def frozen() -> Any:
    return Recurrent("lstm", 3, 4, dtype=torch.float64).requires_grad_(False)


def tangent(found: Any) -> Any:
    """The tangent of a tensor, or of the first of several."""
    return forward_ad.unpack_dual(found if isinstance(found, torch.Tensor) else found[0]).tangent


def on_duals(call: Any) -> Any:
    """Calls it on a dual tensor x."""
    with forward_ad.dual_level():
        return tangent(call(forward_ad.make_dual(normal(5, 2, 3), normal(5, 2, 3, seed=1))))


def by_functions(call: Any) -> Any:
    found = torch.func.jvp(call, (normal(5, 2, 3),), (normal(5, 2, 3, seed=1),))[1]
    return found if isinstance(found, torch.Tensor) else found[0]


def of_the_state(layer: Any) -> Any:
    state = normal(1, 2, 4)
    with forward_ad.dual_level():
        return tangent(layer(normal(5, 2, 3), (forward_ad.make_dual(state, state), state)))


def of_a_weight(layer: Any) -> Any:
    weights = {n: p.detach() for n, p in layer.named_parameters()}
    with forward_ad.dual_level():
        weights["weight_hh_l0"] = forward_ad.make_dual(weights["weight_hh_l0"], weights["weight_hh_l0"])
        return tangent(torch.func.functional_call(layer, weights, (normal(5, 2, 3),)))


def of_a_gradient(layer: Any) -> Any:
    x = normal(5, 2, 3).requires_grad_()
    y, _ = layer(x)
    with forward_ad.dual_level():
        return tangent(torch.autograd.grad(y, x, forward_ad.make_dual(torch.ones_like(y), torch.ones_like(y))))


DUALS = {
    "frozen": lambda layer: on_duals(layer),
    "no_grad": lambda layer: on_duals(torch.no_grad()(layer)),
    "trained": lambda layer: on_duals(layer.requires_grad_()),
    "functions": by_functions,
    "functions, no_grad": lambda layer: by_functions(torch.no_grad()(layer)),
    "functions, trained": lambda layer: by_functions(layer.requires_grad_()),
    "functions, detached": lambda layer: by_functions(
        lambda x: torch.func.functional_call(layer, {n: p.detach() for n, p in layer.named_parameters()}, (x,))
    ),
    "within grad": lambda layer: by_functions(torch.func.grad(lambda x: layer(x)[0].sum())),
    "within vmap": lambda layer: by_functions(
        lambda x: torch.func.vmap(lambda row: layer(row)[0], in_dims=1, out_dims=1)(x)
    ),
    "state": of_the_state,
    "weight": of_a_weight,
    "gradient": of_a_gradient,
    "jacfwd": lambda layer: torch.func.jacfwd(lambda x: layer(x)[0])(normal(2, 1, 3)),
}


@pytest.mark.parametrize("which", DUALS)
def test_tangents_are_not_dropped(which):
    """Where nothing requires a gradient torch asks for no derivative, and they were zero."""
    assert DUALS[which](frozen()).abs().max() > 0


def test_within_a_dual_level_tensors_without_tangents_pass():
    layer, x = frozen(), normal(5, 2, 3)
    right = layer(x)[0]
    with forward_ad.dual_level():
        assert torch.equal(layer(x)[0], right)


def test_storages_stay_resizable():
    """Tensor.numpy() makes one that is not, for good."""
    layer = Recurrent("lstm", 3, 4, dtype=torch.float64)
    x, h, y = normal(5, 2, 3).requires_grad_(), normal(1, 2, 4).requires_grad_(), normal(5, 2, 4)
    resets, lengths = torch.zeros(5, 2, dtype=torch.bool), torch.tensor([5, 3])
    torch.autograd.grad(layer(x, (h, h), lengths)[0], x, y)
    with torch.no_grad():
        layer(x, (h, h), resets=resets)
    for tensor in (x, h, y, resets, lengths, *layer.parameters()):
        assert tensor.untyped_storage().resizable()


def test_numbers_of_any_memory():
    """Conjugates' imaginary parts, whose sign is a bit of the tensor, and slices."""
    layer, x = frozen(), torch.complex(normal(5, 2, 3), normal(5, 2, 3, seed=1))
    for view in (x.conj().imag, x.real, x.conj().imag.transpose(0, 1)):
        assert torch.equal(layer(view)[0], layer(view.clone().resolve_neg())[0])


@pytest.mark.filterwarnings("ignore:.*returned a view tensor")
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without its distributed package")
def test_fully_shard(tmp_path):
    """It frees the storages of weights after each use, and fills them again for the next."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(3, 4), Recurrent("lstm", 4, 5, 2, batch_first=True)),
        torch.ones(2, 6, 3),
    )
    right = model(x)[0].detach()
    gradients = torch.autograd.grad(model(x)[0].square().sum(), list(model.parameters()))
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for module in (model[1], model):
            fsdp.fully_shard(module, mesh=mesh)
        for _ in range(2):
            model.zero_grad()
            y = model(x)[0]
            y.square().sum().backward()
            assert torch.equal(y, right)
            for p, g in zip(model.parameters(), gradients, strict=True):
                assert torch.equal(p.grad.full_tensor(), g)
    finally:
        torch.distributed.destroy_process_group()


def test_what_a_cell_multiplies_by_nothing_has_a_gradient_of_zeros():
    """It had none, so that backward failed."""
    spec = rnnspec.loads(
        cell(
            "h[t] = w + 0 * x[t] + 0 * v * z[t] + 0 * h[t-1]\ng[t] = h[t] + 0 * g[t-1]",
            inputs="{x: H, z: H}",
            states="{h: H, g: H}",
            parameters="{w: [H], v: [H]}",
        )
    )
    for options in ({}, {"num_layers": 2, "bidirectional": True, "merge": "sum"}, {"memory": "low"}):
        layer = Recurrent(spec, 2, 2, **options)
        x, z = (torch.ones(3, 1, 2, requires_grad=True) for _ in range(2))
        state = torch.ones(options.get("num_layers", 1) * (1 + ("merge" in options)), 1, 2, requires_grad=True)
        layer({"x": x, "z": z}, (state, state))[0].sum().backward()
        for tensor in (x, z, state, layer.v_l0):
            assert torch.equal(tensor.grad, torch.zeros_like(tensor)), options
