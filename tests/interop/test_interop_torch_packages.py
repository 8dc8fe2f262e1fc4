"""Models of other packages with our layers in the place of torch's, where the packages are
installed: the same values and gradients."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import pytest
from tolerances import PACKAGES, assert_close

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rnnspec.interop.torch import Recurrent  # noqa: E402


def package(name: str) -> Any:
    """A module of a package; skips where it is not installed, or does not run on this machine."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        pytest.skip(f"{name} can't be imported here: {error}")


def ours_for(layer: Any) -> Any:
    """Our layer for one of torch's, with its weights."""
    cell = {nn.RNN: "rnn", nn.GRU: "gru", nn.LSTM: "lstm_projected" if layer.proj_size else "lstm"}[type(layer)]
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
    more = {"nonlinearity": layer.nonlinearity} if cell == "rnn" else {}
    ours = Recurrent(cell, **{n: getattr(layer, n) for n in names}, **more, dtype=layer.weight_ih_l0.dtype)
    ours.load_state_dict(layer.state_dict())
    return ours.train(layer.training)


def in_place(model: Any) -> Any:
    """A copy of a model, each layer of torch's replaced."""
    model = copy.deepcopy(model)
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (nn.RNN, nn.LSTM, nn.GRU):
                setattr(parent, name, ours_for(child))
                replaced += 1
    assert replaced
    return model


def speechbrain(kind: str) -> tuple[Any, Callable[..., Any], Any]:
    rnn = package("speechbrain.nnet.RNN")
    model = getattr(rnn, kind)(hidden_size=4, input_shape=(3, 6, 5), num_layers=2, bidirectional=True)
    lengths = torch.tensor([1.0, 0.5, 0.7])
    return model, lambda m, x: m(x, lengths=lengths), torch.randn(3, 6, 5)


def torchaudio_deepspeech() -> tuple[Any, Callable[..., Any], Any]:
    models = package("torchaudio.models")
    return models.DeepSpeech(n_feature=5, n_hidden=8, n_class=4), lambda m, x: m(x), torch.randn(3, 1, 6, 5)


def tianshou() -> tuple[Any, Callable[..., Any], Any]:
    common = package("tianshou.utils.net.common")
    model = common.Recurrent(layer_num=2, state_shape=5, action_shape=3, hidden_layer_size=8)
    return (
        model,
        lambda m, x: m(x, state={"hidden": torch.zeros(3, 2, 8), "cell": torch.ones(3, 2, 8)}),
        torch.randn(3, 6, 5),
    )


MODELS = {
    **{f"speechbrain {kind}": lambda kind=kind: speechbrain(kind) for kind in ("RNN", "LSTM", "GRU")},
    "torchaudio DeepSpeech": torchaudio_deepspeech,
    "tianshou Recurrent": tianshou,
}


@pytest.mark.parametrize("which", MODELS)
def test_models_of_other_packages(which):
    torch.manual_seed(0)
    theirs, call, x = MODELS[which]()
    theirs.eval()
    found = []
    for model in (in_place(theirs), theirs):
        given = x.clone().requires_grad_()
        results = [t for t in torch.utils._pytree.tree_leaves(call(model, given)) if isinstance(t, torch.Tensor)]
        total = sum((t * t + t).sum() for t in results if t.requires_grad)
        found.append([*results, *torch.autograd.grad(total, [given, *model.parameters()])])
    for a, b in zip(*found, strict=True):
        assert_close(a.detach(), b.detach(), PACKAGES)
