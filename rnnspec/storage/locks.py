"""Locks that no fork leaves held, and what is to be done at most once by a thread at a time.

The child of a fork has one thread, the one that forked. A lock that another thread held stays held
in it for ever, and so does what others lock for us: imports, Numba's compiler, LLVM. So

- every lock of this package is a `Lock`, which is made anew in the child if another thread had it;
- what takes long, or enters libraries with locks of their own (a first import, making a text,
  compiling, loading machine code), runs inside `making`: a fork waits until no other thread is
  there, and who wants to enter meanwhile waits for the fork.

Who needs both takes `making` first: a fork waits for `making`, and nobody in there may wait for who
waits for the fork. `functools.cached_property` has a lock of its own until Python 3.12: `once_only`
has none.
"""

from __future__ import annotations

import contextlib

# logging locks before a fork, and Numba logs: its turn at a fork has to be after ours
import logging  # noqa: F401
import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")
PATIENCE = 300.0  # seconds; whoever is longer inside `making` may be waiting for the thread that forks


class Lock:
    """A reentrant lock for `with`, free in the child of a fork unless the thread that forked holds
    it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _ALL.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """In the child of a fork: the threads that may hold it are not here to let go of it."""
        if self._lock.acquire(blocking=False):  # free, or this thread's
            self._lock.release()
        else:
            self._lock = threading.RLock()


class _Making(contextlib.ContextDecorator):
    """Who is inside, and who is about to fork."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.inside: dict[int, int] = {}  # thread -> how deep
        self.forks = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.changed:
            while self.forks and me not in self.inside:
                self.changed.wait()
            self.inside[me] = self.inside.get(me, 0) + 1

    def __exit__(self, *raised: object) -> None:
        me = threading.get_ident()
        with self.changed:
            self.inside[me] -= 1
            if not self.inside[me]:
                del self.inside[me]
                self.changed.notify_all()

    def before(self) -> None:
        """Waits until nobody is inside. A thread that forks from inside (a signal's handler) does
        not: another may be waiting for it."""
        with self.changed:
            self.forks += 1
            if threading.get_ident() not in self.inside:
                self.changed.wait_for(lambda: not self.inside, PATIENCE)

    def after_in_parent(self) -> None:
        with self.changed:
            self.forks -= 1
            self.changed.notify_all()

    def after_in_child(self) -> None:
        me = threading.get_ident()
        self.changed, self.forks = threading.Condition(), 0
        self.inside = {me: self.inside[me]} if me in self.inside else {}
        for lock in list(_ALL):
            lock.renew()


def numpy_part(name: str) -> Any:
    """numpy.random, numpy.linalg or another part that NumPy imports when it is first asked for: no
    fork may fall into that."""
    part = _PARTS.get(name)
    if part is None:
        with making:
            part = _PARTS[name] = import_module(f"numpy.{name}")
    return part


class once_only(Generic[T]):
    """A property that is computed when first asked for and kept in the object's `__dict__`. Two
    threads at once may both compute it; both get what the first one kept."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once_only[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> T | once_only[T]:
        if instance is None:
            return self
        kept: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return kept


_ALL: WeakSet[Lock] = WeakSet()
_PARTS: dict[str, Any] = {}
making = _Making()  # the process's
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=making.before, after_in_parent=making.after_in_parent, after_in_child=making.after_in_child
    )
