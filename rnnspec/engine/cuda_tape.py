"""What a forward run on a GPU leaves for its backward run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from numpy import ndarray as Array

from rnnspec.backends.cuda.launch.execution import Execution
from rnnspec.backends.cuda.launch.memory import DeviceArray
from rnnspec.engine.spans import Pieces, scattered


@dataclass(frozen=True, kw_only=True)
class CudaTape:
    """What a forward run on a GPU leaves for its backward run.

    execution: of the forward kernel, which has the tape. packed: the parameters that the backward
    kernel reads. params: copies of the parameters on the host, where something is computed of them
    once per sequence. inputs: the shapes of all inputs. pieces: of the call.
    """

    execution: Execution
    packed: Mapping[str, DeviceArray]
    params: Mapping[str, Array]
    inputs: Mapping[str, tuple[int, ...]]
    pieces: Pieces | None

    @property
    def tape_bytes(self) -> int:
        return sum(a.size * a.dtype.itemsize for a in self.execution.tape.values())

    @property
    def read_again(self) -> Mapping[str, Array]:
        return {}

    def histories(self, steps: int, rows: int) -> dict[str, Array]:
        done = self.execution
        done.launcher.device.use()
        found = {name: array.numpy() for name, array in done.histories().items()}
        return {
            n: a if self.pieces is None else scattered(a, self.pieces, (steps, rows, a.shape[2]))
            for n, a in found.items()
        }
