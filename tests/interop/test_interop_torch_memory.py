"""Tensors of any strides, alignment and ownership go into a PyTorch module and come out right."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rnnspec.errors import ShapeError  # noqa: E402
from rnnspec.interop.torch import Recurrent  # noqa: E402


def unaligned(tensor):
    array = tensor.detach().numpy()
    memory = bytearray(b"x" + array.tobytes())
    return torch.frombuffer(memory, dtype=tensor.dtype, offset=1).reshape(tensor.shape)


CHANGES = {
    "at an odd place": unaligned,
    "every second": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "one memory for two": lambda t: torch.cat([t, t])[: len(t)],
    "expanded": lambda t: t[:1].expand(t.shape),
}


@pytest.mark.parametrize("memory", ["full", "low"])
@pytest.mark.parametrize("how", CHANGES)
def test_tensors_of_any_kind_are_read_rightly(how, memory):
    layer = Recurrent("gru", 3, 5, dtype=torch.float64, memory=memory, threads=1)
    x, h, dy = (torch.rand(*shape, dtype=torch.float64) for shape in ((4, 2, 3), (1, 2, 5), (4, 2, 5)))
    lengths, results = torch.tensor([4, 2]), []
    for ready in (lambda t: CHANGES[how](t).clone().contiguous(), CHANGES[how]):
        given = [ready(t).detach().requires_grad_() for t in (x, h)]
        weights = {n: ready(p).detach().requires_grad_() for n, p in layer.named_parameters()}
        y, last = torch.func.functional_call(layer, weights, (*given, ready(lengths)))
        found = torch.autograd.grad([y, last], [*given, *weights.values()], [ready(dy), torch.ones_like(last)])
        results.append([y.detach(), last.detach(), *found])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_weights_that_share_memory_have_gradients_of_their_own():
    layer = Recurrent("rnn", 5, 5, dtype=torch.float64, threads=1)
    one = torch.rand(5, 5, dtype=torch.float64)
    results = []
    for other in (one, one.clone()):
        weights = {n: p.detach().clone().requires_grad_() for n, p in layer.named_parameters()}
        weights |= {"weight_ih_l0": one.detach().requires_grad_(), "weight_hh_l0": other.detach().requires_grad_()}
        y, _ = torch.func.functional_call(layer, weights, (torch.ones(3, 2, 5, dtype=torch.float64),))
        results.append(torch.autograd.grad(y.sum(), list(weights.values())))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("left", [0, 8])
@pytest.mark.parametrize("which", ["x", "weight_hh_l0", "h", "weight_hh_l0, before backward"])
def test_a_tensor_whose_storage_was_freed_is_refused(which, left):
    """As sharding frees weights between the passes: what they point to is somebody else's."""
    layer = Recurrent("rnn", 3, 5, dtype=torch.float64, threads=1)
    x, h = torch.rand(4, 2, 3, dtype=torch.float64), torch.rand(1, 2, 5, dtype=torch.float64)
    late = which.endswith("backward")
    y, _ = layer(x, h) if late else (None, None)
    tensor = {"x": x, "h": h}.get(which, layer.weight_hh_l0)
    tensor.untyped_storage().resize_(left)
    with pytest.raises(ShapeError, match="storage"):
        y.sum().backward() if late else layer(x, h)


def test_a_tensor_within_a_storage_that_ends_with_it_is_read():
    layer = Recurrent("rnn", 3, 5, dtype=torch.float64, threads=1)
    room = torch.rand(4 * 2 * 3 + 7, dtype=torch.float64)
    np.testing.assert_array_equal(
        layer(room[7:].view(4, 2, 3))[0].detach(), layer(room[7:].clone().view(4, 2, 3))[0].detach()
    )
