"""Training past torch's dispatcher: the same numbers as the operators give, and what autograd
promises of saved tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.autograd.profiler import profile  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402


def layer():
    torch.manual_seed(0)
    return Recurrent("lstm", 3, 4, num_layers=2, bidirectional=True, threads=1)


def gradients(of, x, **options):
    y, _ = of(x)
    return torch.autograd.grad(y.square().sum(), [x, *of.parameters()], **options)


def inputs():
    return torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(1)).requires_grad_()


def operators(run):
    """What a run gives and the operators of ours that it called: a profile has to see them."""
    with profile() as seen:
        found = run()
    return found, {event.name for event in seen.function_events if event.name.startswith("rnnspec::")}


def test_numbers_are_those_of_the_operators():
    of, x = layer(), inputs()
    found, called = operators(lambda: gradients(of, x))
    assert called == {"rnnspec::forward", "rnnspec::backward"}
    for ours, theirs in zip(gradients(of, x), found):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        theirs, called = operators(lambda: of(x)[0])
        assert called == {"rnnspec::infer"} and torch.equal(of(x)[0], theirs)


def test_gradients_that_are_seen_or_differentiated_are_the_operators():
    of, x = layer(), inputs()
    y = of(x)[0]
    again, called = operators(lambda: torch.autograd.grad(y.sum(), x, retain_graph=True)[0])
    assert called == {"rnnspec::backward"}
    assert torch.equal(again, torch.autograd.grad(y.sum(), x, retain_graph=True)[0])
    batched = torch.autograd.grad(y, x, torch.stack([torch.ones_like(y)] * 2), is_grads_batched=True)[0]
    assert torch.equal(batched[0], again) and torch.equal(batched[1], again)
    (slope,) = torch.autograd.grad(of(x)[0].square().sum(), x, create_graph=True)
    assert slope.requires_grad and torch.autograd.grad(slope.sum(), x)[0].abs().sum() > 0


def test_what_is_saved_goes_through_hooks_and_must_not_change():
    of, x = layer(), inputs()
    plain, sizes = gradients(of, x), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t.clone(), lambda t: t):
        y = of(x)[0]
    tapes = sum(sizes) - sum(t.nbytes for t in [x, *of.parameters()])
    assert tapes > 0
    found = torch.autograd.grad(y.square().sum(), [x, *of.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(plain, found))
    y = of(x)[0]
    with torch.no_grad():
        of.weight_hh_l0 += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
