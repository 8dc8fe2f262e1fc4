"""Machine code in memory: what there is, and how it is freed."""

from __future__ import annotations

from rnnspec.backends.cpu import native
from rnnspec.backends.cpu.launch.execute import forget_idle
from rnnspec.backends.cpu.machine import MachineCode


def loaded() -> tuple[MachineCode, ...]:
    """The machine code of CPU kernels that this process has in memory: `name`, and `size` in bytes,
    of each."""
    return native.loaded()


def unload() -> None:
    """Forgets the machine code of all CPU kernels, and the memory that calls left for later ones.

    Code leaves memory when the last kernel that runs it does; a kernel made later reads it from the
    cache again. May be called at any time.
    """
    native.unload()
    forget_idle()
