"""Every public argument that is an array, tried with every fault an array can have: right numbers,
or the error that the same numbers in a plain array give, or a refusal; and no byte outside."""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest
from array_arguments import DY, KERNELS, LENGTHS, PARAMS, STATES, X, rows
from array_rows import changed
from guarded import guarded, packed_field
from public_arguments import public_arguments

from rnnspec.backends.cpu.launch import execute, pack
from rnnspec.errors import RnnspecError, ShapeError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
ROWS = rows()
ARGUMENTS = [(name, argument) for name, row in ROWS.items() for argument in row.given]


def outcome(row, given, meanwhile=lambda: None):
    """What a run gives, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return row.run(dict(given), meanwhile)
        except Exception as error:
            return type(error)


def fresh(row, **other):
    """The arguments in arrays of their own, with others in place of some."""
    return changed(dict(row.given), np.array) | other


def same(found, expected):
    if isinstance(expected, type) or isinstance(found, type):
        assert found is expected
        return
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_argument_is_forgotten():
    """One of a new name, or of a new function, has to be put into the table, or to be named as no
    array."""
    table = {}
    for row in ROWS.values():
        table.setdefault(row.takes, set()).update(row.given)
    missing = {f.__qualname__: wanted - table.get(f, set()) for f, wanted in public_arguments().items()}
    assert {name: arguments for name, arguments in missing.items() if arguments} == {}


# --- forms


def odd(array):
    return np.frombuffer(bytearray(b"x" + array.tobytes()), array.dtype, offset=1).reshape(array.shape)


FORMS = {
    "ending at a page": guarded,
    "read-only, ending at a page": lambda a: guarded(a, writable=False),
    "in Fortran's order, beginning at a page": lambda a: guarded(a.T, end=False).T,
    "a field of a packed record": packed_field,
    "bytes at an odd place": odd,
    "backwards": lambda a: guarded(np.flip(a))[(slice(None, None, -1),) * a.ndim],
    "every second": lambda a: guarded(np.repeat(a, 2, axis=-1))[..., ::2] if a.ndim else a,
    "first axes exchanged": lambda a: guarded(a.swapaxes(0, 1)).swapaxes(0, 1) if a.ndim > 2 else a,
    "no rows apart": lambda a: np.lib.stride_tricks.as_strided(guarded(a), a.shape, (0,) * a.ndim),
    "a subclass": lambda a: guarded(a).view(type("Sub", (np.ndarray,), {})),
    "another byte order": lambda a: guarded(a).astype(a.dtype.newbyteorder()),
    "another dtype": lambda a: guarded(a).astype({"f": "f4", "i": "u1", "b": "i8", "u": "i1"}[a.dtype.kind]),
}


OTHER_VALUES = ("no rows apart", "another dtype")
EXPECTED = {}


def expected_of(name):
    """What a row gives for plain arrays."""
    if name not in EXPECTED:
        EXPECTED[name] = outcome(ROWS[name], fresh(ROWS[name]))
        assert not isinstance(EXPECTED[name], type), (name, EXPECTED[name])
    return EXPECTED[name]


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_forms(name, argument):
    row = ROWS[name]
    for form, change in FORMS.items():
        if form == "ending at a page" and argument not in row.out:  # the next one is stricter
            continue
        value = changed(row.given[argument], lambda a, change=change: change(np.array(a)))
        expected = expected_of(name)
        if form in OTHER_VALUES:
            if name == "reduced" and form == "no rows apart":  # by NumPy's own statements in place
                continue
            expected = outcome(row, fresh(row, **{argument: changed(value, np.array)}))
        found = outcome(row, fresh(row, **{argument: value}))
        if isinstance(found, type) and issubclass(found, RnnspecError | ValueError | TypeError | IndexError):
            refused = argument in row.out or form in ("another byte order", "another dtype", "a subclass") or row.torch
            assert found is expected or refused, (form, found, expected)
            continue
        try:
            same(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{argument}, {form}: {error}") from None


# --- memory in common


def arrays_in(value, kind="f"):
    found = []
    changed(value, lambda a: found.append(a) if a.dtype.kind in kind else None)
    return found


def in_one_room(values):
    """Copies whose arrays of floating-point numbers all begin at one place."""
    room = np.zeros(max((a.size for a in arrays_in(values)), default=0))
    for a in arrays_in(values):
        room[: a.size] = a.reshape(-1)
    return changed(values, lambda a: room[: a.size].reshape(a.shape) if a.dtype == room.dtype else a.copy())


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if not row.out and not n.endswith(".init")])
def test_arrays_that_are_read_may_share_memory(name):
    row, given = ROWS[name], in_one_room(dict(ROWS[name].given))
    same(outcome(row, given), outcome(row, changed(given, np.array)))


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.out == ("out",)])
def test_out_that_shares_memory_with_an_argument_is_refused(name):
    row = ROWS[name]
    (out,) = arrays_in(row.given["out"])
    for argument in sorted({*row.given} - {"out"}):
        for i, other in enumerate(arrays_in(row.given[argument])):
            room = np.zeros(out.size + other.size)
            shared = room[: other.size].reshape(other.shape)
            shared[...] = other
            seen = iter(range(len(arrays_in(row.given[argument]))))
            value = changed(
                row.given[argument],
                lambda a, i=i, shared=shared, seen=seen: shared if a.dtype.kind == "f" and next(seen) == i else a,
            )
            begins = other.size - 1
            over = changed(row.given["out"], lambda a, b=begins, r=room: r[b:][: a.size].reshape(a.shape))
            before = room.copy()
            assert outcome(row, fresh(row, **{argument: value, "out": over})) is ShapeError, argument
            np.testing.assert_array_equal(room, before)


@pytest.mark.parametrize("memory", KERNELS)
def test_out_that_lies_in_the_tape_is_refused(memory):
    kernel, room = KERNELS[memory], np.zeros(1 << 16, np.uint8)
    kept = kernel.record(PARAMS, {"x": X}, STATES, LENGTHS).tape
    for first in range(0, 64, 8):  # at a cache line the tape is read in place
        tape = room[first:][: kept.size]
        tape[...] = kept
        run = kernel.resume(PARAMS, {"x": X}, tape, LENGTHS)
        over = {"x": np.ndarray(X.shape, X.dtype, room, first + kept.size // 16 * 8)}
        try:
            found = kernel.backward(run, {"h": DY}, out=over).inputs["x"]
        except ShapeError as error:
            assert "out 'x' shares memory with the tape" in str(error)
            continue
        np.testing.assert_array_equal(
            found, kernel.backward(kernel.forward(PARAMS, {"x": X}, STATES, LENGTHS), {"h": DY}).inputs["x"]
        )


# --- changed between checks and use, and between the passes


def within(function):
    """Whether the function is being called."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


class Meddler:
    """Does to arrays what their owner can do: other shapes, dtypes and sizes, and other numbers in
    those that are copied."""

    def __init__(self, given, row):
        self.row = row
        self.arrays = [a for n, value in given.items() for a in arrays_in(value, "fiub") if n not in row.out]
        self.done = False

    def meddle(self):
        """Once."""
        if self.done:
            return
        self.done = True
        for array in self.arrays:
            if array.dtype.kind in "iub" and array.dtype != np.uint8 and array.size and not self.row.torch:
                array[...] = 1 if array.dtype.kind == "b" else 77
            if not self.row.torch:  # whose tensors a resize, there, leaves without memory as well
                with suppress(ValueError):
                    array.resize((0,), refcheck=False)
            array.shape = (array.size,)
            array.dtype = np.int8
        self.junk = [np.full(a.size // 8 + 1, 1e300) for a in self.arrays * 3]


CHECKED_AFTER_PACKING = (
    "resume (low)",
    "resume of pieces (low)",
    "stream",
    "online",
    "stack.run_resume",
)  # the tape, the states


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.takes.__module__.split(".")[1] != "train"])
@pytest.mark.parametrize("when", ["packing", "running", "between"])
def test_what_changes_after_the_checks_changes_nothing(name, when, monkeypatch):
    row = ROWS[name]
    given = fresh(row)
    meddler = Meddler(given, row)

    def first(function):
        def call(*args, **options):
            if not meddler.done and within(row.takes):
                meddler.meddle()
            return function(*args, **options)

        return call

    if when == "packing":
        monkeypatch.setattr(pack, "pack", first(pack.pack))
    if when == "running":
        monkeypatch.setattr(execute, "run_blocks", first(execute.run_blocks))
    found = outcome(row, given, meddler.meddle if when == "between" else lambda: None)
    if isinstance(found, type) and when == "packing" and name in CHECKED_AFTER_PACKING:
        assert issubclass(found, RnnspecError)
    else:
        same(found, expected_of(name))


# --- changed by another thread


@pytest.mark.parametrize("name", ROWS)
def test_what_another_thread_changes_kills_nobody(name):
    row = ROWS[name]
    given = changed(dict(row.given), guarded)
    arrays, stop = [a for value in given.values() for a in arrays_in(value, "fiub")], threading.Event()
    shapes = [(a, a.shape, a.dtype) for a in arrays]

    def meddle():
        while not stop.is_set():
            for array, shape, dtype in shapes:
                array.shape = (array.size,)
                if array.size:
                    array.dtype = np.int8
                    array.dtype = np.float32 if array.size % 4 == 0 else np.int8
                    array.dtype = dtype
                array.shape = shape
                if dtype.kind in "iu" and dtype != np.uint8 and array.size:
                    kept = array.copy()
                    array[...] = 2**40
                    array[...] = kept

    other, before = threading.Thread(target=meddle), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other.start()
    try:
        for _ in range(2):
            found = outcome(row, given)
            assert not isinstance(found, type) or issubclass(found, ValueError | TypeError | LookupError), found
    finally:
        stop.set()
        other.join()
        sys.setswitchinterval(before)
