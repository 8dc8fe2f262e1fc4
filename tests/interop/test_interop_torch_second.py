"""PyTorch's forward mode and gradients of gradients through rnnspec's layers: gradcheck, Hessians
against 50 digits, a gradient penalty and an inner loop as with torch.nn.LSTM."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from tolerances import TORCH, assert_close

from rnnspec import UnsupportedError
from rnnspec.backends import reference
from rnnspec.backends.numbers import mpmath_numbers
from rnnspec.symbolic.build import build

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import functional_call  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402

QUICK = ["rnn"]
CELLS = [
    "lstm",
    "gru",
    "gru_reset_before",
    "ln_lstm_torch",
    "ln_gru",
    "lstm_peephole",
    "lstm_projected",
    "lstm_tf_projected",
    "lstm_cifg",
    "lstm_1997",
    "deltanet",
    "linear_attention",
    "mlstm_matrix",
    "rhn",
    "ltc",
    "mogrifier_lstm",
    "dend_plrnn_clipped",
    "indrnn",
    "qrnn",
    "lem",
]
MORE_SIZES = {  # that the two of a layer do not tell
    "deltanet": {"K": 2},
    "linear_attention": {"K": 2},
    "lstm_projected": {"P": 2},
    "lstm_tf_projected": {"P": 2},
}
LAYERS: dict[str, dict[str, Any]] = {"one": {}, "two both ways": {"num_layers": 2, "bidirectional": True}}


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def as_function(layer: Any) -> tuple[Any, list[Any]]:
    """The layer as a function of x and its weights, and these."""
    names, weights = zip(*layer.named_parameters())

    def call(x: Any, *given: Any) -> Any:
        y, state = functional_call(layer, dict(zip(names, given)), (x,))
        state = state if isinstance(state, tuple) else (state,)
        return (y, *(s for s in state if s.is_floating_point()))

    return call, [w.detach().clone().requires_grad_() for w in weights]


def names_of_cells() -> list[Any]:
    from rnnspec import spec_names

    known = [n for n in CELLS if n in spec_names()]
    return [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in known)]


@pytest.mark.parametrize("name", names_of_cells())
def test_gradients_directions_and_their_gradients(name):
    torch.manual_seed(0)
    layer = Recurrent(name, 2, 2, dtype=torch.float64, sizes=MORE_SIZES.get(name)).eval()
    call, weights = as_function(layer)
    given = (normal(2, 2, 2).requires_grad_(), *weights)
    assert gradcheck(call, given, fast_mode=False, check_forward_ad=True, check_undefined_grad=False)
    assert gradgradcheck(call, given, fast_mode=False)


@pytest.mark.slow
def test_with_noise_that_is_drawn():
    layer = Recurrent("zoneout_lstm", 2, 2, dtype=torch.float64).train()
    call, weights = as_function(layer)

    def seeded(*given: Any) -> Any:
        torch.manual_seed(5)
        return call(*given)

    given = (normal(3, 2, 2).requires_grad_(), *weights)
    assert not torch.equal(seeded(*given)[0], as_function(layer.eval())[0](*given)[0])
    layer.train()
    assert gradcheck(seeded, given, fast_mode=False, check_forward_ad=True)
    assert gradgradcheck(seeded, given, fast_mode=False)


@pytest.mark.parametrize("name", ["lif", pytest.param("spiking_lstm", marks=pytest.mark.slow)])
def test_spikes_have_the_derivatives_of_their_surrogate(name):
    """Differences of spikes are zero: forward mode is reverse mode's transpose, and Hessians are
    symmetric, with the slope of the surrogate in both."""
    torch.manual_seed(0)
    layer, x = Recurrent(name, 2, 3, dtype=torch.float64), 3 * normal(4, 2, 2)
    ahead, back = (kind(lambda x: layer(x)[0])(x) for kind in (torch.func.jacfwd, torch.func.jacrev))
    assert ahead.any()
    torch.testing.assert_close(ahead, back, rtol=1e-12, atol=1e-12)
    hessian = torch.func.hessian(lambda x: (layer(x)[0] ** 2).sum())(x).reshape(16, 16)
    assert hessian.any()
    torch.testing.assert_close(hessian, hessian.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layers", [pytest.param(n, marks=pytest.mark.slow) for n in LAYERS])
def test_of_layers_in_both_directions(layers):
    torch.manual_seed(0)
    layer = Recurrent("lstm", 2, 2, dtype=torch.float64, **LAYERS[layers])
    call, weights = as_function(layer)
    given = (normal(3, 2, 2).requires_grad_(), *weights)
    assert gradcheck(call, given, fast_mode=False, check_forward_ad=True)
    assert gradgradcheck(call, given, fast_mode=False)


def test_a_hessian_in_fifty_digits():
    """torch.func.hessian of a small LSTM, to 8 digits and more those of central differences."""
    torch.manual_seed(0)
    layer, x = Recurrent("lstm", 2, 2, dtype=torch.float64), normal(2, 1, 2)
    params = {n: p.detach() for n, p in layer.named_parameters()}

    def loss(x: Any, weight: Any) -> Any:
        return (functional_call(layer, params | {"weight_hh_l0": weight}, (x,))[0] ** 2).sum()

    found = torch.func.hessian(loss, argnums=(0, 1))(x, params["weight_hh_l0"])
    size = x.numel()
    both = [torch.cat([b.reshape(a, -1) for b in row], 1) for a, row in zip((size, 16), found, strict=True)]
    hessian = torch.cat(both).numpy()
    flat = np.concatenate([x.numpy().ravel(), params["weight_hh_l0"].numpy().ravel()])
    rows = [0, 3, size, size + 7, size + 15]  # of some of the numbers
    with mpmath.workdps(50):
        right = _differences(layer, params, flat, size, rows)
    np.testing.assert_allclose(hessian[np.ix_(rows, rows)], right, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 1, 2), (2, 0, 2)])
def test_derivatives_of_no_steps_and_of_no_rows(shape):
    layer, x = Recurrent("rnn", 2, 3, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for kind in (torch.func.hessian, torch.func.jacfwd, torch.func.jacrev):
        found, right = kind(lambda x: (layer(x)[0] ** 2).sum())(x), kind(lambda x: (x**2).sum())(x)
        assert found.shape == right.shape and not found.numel()
    weights = {n: p.detach() for n, p in layer.named_parameters()}
    hessian = torch.func.hessian(lambda w: functional_call(layer, w, (x,))[0].sum())(weights)
    assert not any(block.any() for row in hessian.values() for block in row.values())


def _differences(layer: Any, params: dict[str, Any], flat: Any, size: int, rows: list[int]) -> Any:
    from rnnspec.interop.torch_ops import stack_of

    cell, digits = stack_of(layer.config.text, "float64", 1).description.layers[0], mpmath_numbers()
    graph, step = build(cell.spec), mpmath.mpf(10) ** -15

    def loss(moved: Any) -> Any:
        arrays = {n.removesuffix("_l0"): digits.array(p.numpy()) for n, p in params.items()}
        arrays["weight_hh"] = moved[size:].reshape(8, 2)
        given = {n: slots[0].of(arrays) for n, slots in cell.slots.items() if len(slots) == 1}
        given |= {n: sum(s.of(arrays) for s in slots) for n, slots in cell.slots.items() if len(slots) > 1}
        run = reference.forward(graph, given, {"x": moved[:size].reshape(2, 1, 2)}, sizes=cell.sizes, numbers=digits)
        return (run.outputs["h"] ** 2).sum()

    found = np.zeros((len(rows), len(rows)))
    for (i, a), (j, b) in itertools.product(enumerate(rows), enumerate(rows)):
        total = mpmath.mpf(0)
        for s, t in itertools.product((1, -1), (1, -1)):
            moved = digits.array(flat)
            moved[a] += s * step
            moved[b] += t * step
            total += s * t * loss(moved)
        found[i, j] = float(total / (4 * step * step))
    return found


def both_kinds() -> tuple[Any, Any]:
    torch.manual_seed(0)
    plain = torch.nn.LSTM(3, 4, 2, dtype=torch.float64)
    ours = Recurrent("lstm", 3, 4, 2, dtype=torch.float64)
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def test_a_gradient_penalty_is_that_of_torch():
    """A critic's step of WGAN-GP (Gulrajani et al. 2017, arXiv 1704.00028)."""
    real, fake, mix = normal(5, 2, 3), normal(5, 2, 3, seed=1), torch.rand(1, 2, 1, dtype=torch.float64)
    found = []
    for critic in both_kinds():
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between)[0].sum(), between, create_graph=True)
        penalty = ((slope.square().sum((0, 2)).sqrt() - 1) ** 2).mean()
        (critic(fake)[0].mean() - critic(real)[0].mean() + 10 * penalty).backward()
        found.append([penalty, *(p.grad for _, p in sorted(critic.named_parameters()))])
    for mine, right in zip(found[1], found[0], strict=True):
        assert_close(mine.detach(), right.detach(), TORCH["float64"])


def test_an_inner_loop_is_that_of_torch():
    """Two inner steps of MAML (Finn et al. 2017, arXiv 1703.03400), and the outer gradient."""
    x, y, later = normal(4, 3, 3), normal(4, 3, 4, seed=1), normal(4, 3, 3, seed=2)
    found = []
    for model in both_kinds():
        weights = dict(model.named_parameters())
        for _ in range(2):
            loss = (functional_call(model, weights, (x,))[0] - y).square().mean()
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {n: w - 0.5 * g for (n, w), g in zip(weights.items(), slopes, strict=True)}
        (functional_call(model, weights, (later,))[0] - y).square().mean().backward()
        found.append([p.grad for _, p in sorted(model.named_parameters())])
    for mine, right in zip(found[1], found[0], strict=True):
        assert_close(mine, right, TORCH["float64"])


def test_directions_of_duals_lengths_resets_and_states():
    layer, x, state = Recurrent("rnn", 3, 4, dtype=torch.float64), normal(5, 2, 3), normal(1, 2, 4, seed=3)
    dx, dstate = normal(5, 2, 3, seed=1), normal(1, 2, 4, seed=2)
    more = {"lengths": torch.tensor([5, 2]), "resets": torch.zeros(5, 2, dtype=torch.bool)}
    more["resets"][3, 0] = True
    with forward_ad.dual_level(), torch.no_grad():
        y, h = layer(forward_ad.make_dual(x, dx), forward_ad.make_dual(state, dstate), **more)
        found = forward_ad.unpack_dual(y).tangent, forward_ad.unpack_dual(h).tangent
        untouched = layer(x, state, **more)[0]
        assert forward_ad.unpack_dual(untouched).tangent is None

    def at(step: float) -> Any:
        with torch.no_grad():
            return layer(x + step * dx, state + step * dstate, **more)

    for mine, ahead, behind in zip(found, at(1e-6), at(-1e-6), strict=True):
        torch.testing.assert_close(mine, (ahead - behind) / 2e-6, rtol=1e-7, atol=1e-8)


def test_directions_under_a_tracer():
    """Below the mode of make_fx, as of torch.compile, torch can't unpack duals: it is not asked."""
    from torch.fx.experimental.proxy_tensor import make_fx

    layer, x = Recurrent("rnn", 3, 4, dtype=torch.float64), normal(5, 2, 3)

    def along(x: Any) -> Any:
        return torch.func.jvp(lambda x: layer(x)[0], (x,), (torch.ones_like(x),))[1]

    assert torch.equal(make_fx(along)(x)(x), along(x))


@pytest.mark.slow
def test_directions_and_hessians_in_a_compiled_function():
    torch._dynamo.reset()
    layer, x = Recurrent("rnn", 3, 4, dtype=torch.float64), normal(2, 1, 3)
    hessian = torch.func.hessian(lambda x: (layer(x)[0] ** 2).sum())
    found = torch.compile(hessian, backend="aot_eager")(x)
    assert_close(found.detach(), hessian(x).detach(), TORCH["float64"])


def test_what_is_of_third_order_is_refused():
    layer, x = Recurrent("rnn", 3, 4, dtype=torch.float64), normal(5, 2, 3).requires_grad_()
    (slope,) = torch.autograd.grad((layer(x)[0] ** 3).sum(), x, create_graph=True)
    (curve,) = torch.autograd.grad((slope**2).sum(), x, create_graph=True)
    with pytest.raises(UnsupportedError, match="third order"):
        curve.sum().backward()
    twice = torch.func.jacfwd(torch.func.jacfwd(lambda x: layer(x)[0].sum()))
    with pytest.raises(UnsupportedError, match=r"forward mode over forward mode \(use torch.func.hessian"):
        twice(x.detach())
