"""Parameters packed once, for many calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from numpy import ndarray as Array

if TYPE_CHECKING:
    from rnnspec.backends.cpu.launch.pack import Packed
    from rnnspec.engine.kernel import Kernel
    from rnnspec.engine.stream import Stream


class Weights:
    """A cell's parameters as its kernels read them: made by `kernel.pack(params)`, and goes
    wherever that kernel takes params.

    params: name -> array, copies that can't be written to. So later changes of the arrays that were
    given are not seen, and a call with Weights never packs again what an earlier one has packed.
    """

    def __init__(self, kernel: Kernel, params: Mapping[str, Array]):
        self.kernel = kernel
        copies = {name: array.copy() for name, array in params.items()}
        for array in copies.values():
            array.flags.writeable = False
        self.params: Mapping[str, Array] = MappingProxyType(copies)
        self.shapes = tuple(self.params[n].shape for n in kernel.spec.parameters)
        self._packed: dict[tuple[Any, ...], Packed] = {}
        self._idle: dict[tuple[Any, ...], list[Stream]] = {}

    def __repr__(self) -> str:
        return f"Weights({self.kernel.spec.name}, {sum(a.size for a in self.params.values())} numbers)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Weights, (self.kernel, dict(self.params)))

    def packed(self, key: tuple[Any, ...], pack: Callable[[Mapping[str, Array]], Packed]) -> Packed:
        """What `pack(params)` gave when it was first asked for under this key. Two threads at once
        may both pack: no harm."""
        found = self._packed.get(key)
        if found is None:
            found = self._packed[key] = pack(self.params)
        return found

    def borrow(self, key: tuple[Any, ...], make: Callable[[], Stream]) -> Stream:
        """A stream that nobody else uses until it is given back."""
        try:
            return self._idle[key].pop()
        except (KeyError, IndexError):
            return make()

    def give_back(self, key: tuple[Any, ...], stream: Stream) -> None:
        if len(self._idle) > 16:
            self._idle.clear()
        self._idle.setdefault(key, []).append(stream)
