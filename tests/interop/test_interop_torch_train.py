"""Training with rnnspec.interop.torch: the losses of torch.nn.LSTM, torch's optimisers, two
processes, workers."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from cells import LINEAR_ROWS
from tolerances import AFTER_TRAINING, TORCH, assert_close

import rnnspec

torch = pytest.importorskip("torch")

from rnnspec.interop.torch import Recurrent  # noqa: E402

STEPS = 50


class Tagger(torch.nn.Module):
    """A class for every step of sequences of unequal lengths."""

    def __init__(self, layer: Any):
        super().__init__()
        self.embed, self.layer, self.out = torch.nn.Embedding(20, 8), layer, torch.nn.Linear(24, 5)

    def forward(self, tokens: Any, lengths: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            self.embed(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(
            self.layer(packed)[0], batch_first=True, total_length=tokens.shape[1]
        )
        return self.out(y)


def train(model: Any, steps: int = STEPS, rows: slice = slice(None), scale: float = 1.0) -> list[float]:
    """The loss of every step. rows: the part of each batch; scale: of the loss."""
    g = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 10, 0.9)
    losses = []
    for _ in range(steps):
        tokens, lengths = torch.randint(20, (8, 12), generator=g), torch.randint(1, 13, (8,), generator=g)
        tokens, lengths = tokens[rows], lengths[rows]
        right = (tokens + tokens.roll(1, 1)) % 5
        losses_of = torch.nn.functional.cross_entropy(model(tokens, lengths).transpose(1, 2), right, reduction="none")
        loss = (losses_of * (torch.arange(12) < lengths[:, None])).sum() * (scale / 50)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def test_the_losses_of_nn_lstm_for_50_steps():
    torch.manual_seed(0)
    theirs = Tagger(torch.nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True))
    ours = Tagger(Recurrent("lstm", 8, 12, 2, batch_first=True, bidirectional=True))
    ours.load_state_dict(theirs.state_dict())
    mine, right = train(ours), train(theirs)
    assert sum(right[-10:]) < 0.95 * sum(right[:10])
    assert_close(mine, right, AFTER_TRAINING)
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert (p - q).abs().max() < 10 * AFTER_TRAINING, name


def replica(rank: int, folder: str) -> None:
    """One of two processes, each with half of the rows."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)  # DDP sends the weights of the first
    model = Tagger(Recurrent("lstm", 8, 12, 2, batch_first=True, bidirectional=True))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    train(parallel, 5, slice(4 * rank, 4 * rank + 4))
    torch.save(model.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without its distributed package")
def test_two_processes_train_to_the_weights_of_one(tmp_path):
    torch.multiprocessing.spawn(replica, (str(tmp_path),), nprocs=2)
    torch.manual_seed(0)
    alone = Tagger(Recurrent("lstm", 8, 12, 2, batch_first=True, bidirectional=True))
    train(alone, 5, scale=0.5)  # DDP takes the mean of the gradients of both halves
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name, p in alone.state_dict().items():
        assert torch.equal(first[name], second[name])
        assert_close(first[name], p, AFTER_TRAINING, name)


@pytest.mark.parametrize("optimiser", ["SGD", "AdamW", "RMSprop", "Adagrad"])
def test_torchs_optimisers(optimiser):
    torch.manual_seed(0)
    layer, x = Recurrent("gru", 3, 4, dtype=torch.float64), torch.randn(6, 5, 3, dtype=torch.float64)
    steps = getattr(torch.optim, optimiser)(layer.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        steps.zero_grad()
        losses.append(((layer(x)[0] - 0.3) ** 2).mean())
        losses[-1].backward()
        steps.step()
    assert all(b < a for a, b in itertools.pairwise(losses))


class Encoded(torch.utils.data.Dataset):
    """Features that a frozen layer makes of each item, in the worker."""

    def __init__(self) -> None:
        self.layer = Recurrent("lstm", 3, 4, dtype=torch.float64).requires_grad_(False)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        x = torch.full((50, 3), float(i), dtype=torch.float64, requires_grad=True)
        y, _ = self.layer(x)
        return y[-1].detach(), torch.autograd.grad(y.sum(), x)[0]


@pytest.mark.skipif("fork" not in torch.multiprocessing.get_all_start_methods(), reason="this system can't fork")
def test_dataloader_workers_after_a_fork():
    data = Encoded()
    right = [data[i] for i in range(6)]  # this process has threads of ours and of torch's by now
    with torch.no_grad():
        data.layer(torch.zeros(100, 64, 3, dtype=torch.float64))
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context="fork")
    for found, expected in zip(loader, right, strict=True):
        for a, b in zip(found, expected):
            assert_close(a, b, TORCH["float64"])


def test_truncated_backpropagation_carries_the_state_and_not_the_gradient():
    """H74: h[t] = 0.5 * h[t-1] + x[t] on ones; the loss is the last h."""
    layer = Recurrent(rnnspec.loads(LINEAR_ROWS), 1, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.w_l0.fill_(1)
        layer.u_l0.fill_(0.5)
    x = torch.ones(4, 1, 1, dtype=torch.float64)
    assert torch.autograd.grad(layer(x)[1].sum(), layer.u_l0)[0].item() == 2.75
    _, state = layer(x[:2])
    assert torch.autograd.grad(layer(x[2:], state.detach())[1].sum(), layer.u_l0)[0].item() == 2.5


def test_several_threads_call_one_layer():
    """H64"""
    layer, x = Recurrent("lstm", 3, 4, dtype=torch.float64), torch.randn(30, 8, 3, dtype=torch.float64)
    right = torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))

    def work(_: int) -> list[Any]:
        return [torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters())) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for found in itertools.chain.from_iterable(pool.map(work, range(4))):
            assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


def test_the_bench_of_layers():
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed
    from bench import layers, machine
    from bench.case import Case

    before = torch.get_num_threads()
    try:
        rows = list(layers.measure([asdict(Case("lstm", 5, 3, 4, 4, mode=mode)) for mode in layers.MODES], 2, 2, 1, 1))
    finally:
        torch.set_num_threads(before)
    assert [r["mode"] for r in rows] == list(layers.MODES)
    for row in rows:
        assert row["difference"] < AFTER_TRAINING and all(row["against"][who]["ratio"] > 0 for who in layers.GOALS)
    assert "lstm" in layers.render(machine.describe() | {"rows": rows})
