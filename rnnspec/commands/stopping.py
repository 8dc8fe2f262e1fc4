"""Signals that ask long work to stop at the next good moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Stopped:
    number: int | None = None


@contextmanager
def stop_signals() -> Iterator[Stopped]:
    """Ctrl-C (or SIGTERM) asks to stop after the step being computed, so that weights are never
    half updated.

    A second one stops at once.
    """
    stopped = Stopped()
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, _: object) -> None:
        stopped.number = number
        for n, handler in before.items():
            signal.signal(n, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
