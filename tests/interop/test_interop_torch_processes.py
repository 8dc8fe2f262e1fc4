"""One model over several processes: DistributedDataParallel and torchrun, as the example has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from rnnspec.interop.torch import Recurrent  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDING = 1e-5  # of a loss after 40 steps of float32 sums in another order


@pytest.fixture
def group(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_layer_in_ddp_has_the_gradients_of_the_layer(group):
    """A group of one: all hooks of DistributedDataParallel, and no sum."""
    torch.manual_seed(1)
    layer = Recurrent("lstm", 3, 5, num_layers=2, bidirectional=True)
    wrapped = torch.nn.parallel.DistributedDataParallel(layer)
    x = torch.randn(7, 4, 3)
    found = []
    for module in (layer, wrapped):
        layer.zero_grad()
        module(x)[0].square().sum().backward()
        found.append({name: p.grad.clone() for name, p in layer.named_parameters()})
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def losses(out: Path, *command: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, *command, "--steps", "40", "--rows", "12", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_together_have_the_losses_of_one(tmp_path, processes):
    one = losses(tmp_path / "one.json", str(EXAMPLES / "many_processes.py"))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    together = losses(tmp_path / "all.json", *torchrun, str(EXAMPLES / "many_processes.py"))
    assert one[-1] < one[0]
    assert together == pytest.approx(one, rel=ROUNDING)


@pytest.mark.slow
def test_workers_of_ray_train_have_the_losses_of_one(tmp_path):
    pytest.importorskip("ray.train.torch", reason="Ray Train is not installed")
    one = losses(tmp_path / "one.json", str(EXAMPLES / "many_processes.py"))
    here = ["--storage", str(tmp_path / "ray")]
    together = losses(tmp_path / "all.json", str(EXAMPLES / "ray_train.py"), *here)
    assert together == pytest.approx(one, rel=ROUNDING)
