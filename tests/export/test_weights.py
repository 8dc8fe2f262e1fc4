"""Weights of exported programs in a file of their own: the C takes what was written for it, and
nothing else."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import zlib

import numpy as np
import pytest
from c_library import COMPILER, SANE, STRICT, Library

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.export import c
from rnnspec.export.weights import ERRORS

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")


def layer(dtype: str = "float32", hidden: int = 9, seed: int = 1) -> rnnspec.Recurrent:
    return rnnspec.Recurrent("gru", 3, hidden, num_layers=2, learn_initial=True, seed=seed, dtype=dtype, threads=1)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return Library(c(layer(), name="net", apart=True), tmp_path_factory.mktemp("net"), begin=False)


def begun(library: Library, data: bytes, shift: int = 0) -> str:
    """What NAME_init says of the bytes of a file."""
    library.file = np.zeros(len(data) + 16, np.uint8)  # stays while the program reads it
    at = -library.file.ctypes.data % 8 + shift
    library.file[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return list(ERRORS)[library.call("init", library.file[at:], ctypes.c_size_t(len(data)))]


def test_weights_come_from_the_file(library):
    other = layer(seed=2)
    for name in [n for n in other.params if n.startswith("initial")]:
        other.params[name][:] = 0.25
    x = np.random.default_rng(0).normal(size=(7, 1, 3)).astype(np.float32)
    assert begun(library, c(other, name="net").weights()) == "OK"
    np.testing.assert_allclose(library.block(x[:, 0], 9), other.infer(x)[0][:, 0], rtol=0, atol=1e-6)


def signed(head: bytes, body: bytes) -> bytes:
    """A file whose sum is right."""
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def test_what_is_no_file_of_these_weights_is_refused(library):
    data = c(layer(), name="net").weights()
    head, body = data[:60], data[64:]
    wrong = {
        "TOO_SHORT": [b"", data[:63]],
        "FOREIGN": [b"PK" + data[2:], bytes(len(data))],
        "BYTE_ORDER": [signed(head[:8] + head[8:12][::-1] + head[12:], body)],
        "VERSION": [signed(head[:12] + b"\1" + head[13:], body)],
        "TYPE": [c(layer("float64"), name="net").weights()],
        "OTHER_CELL": [c(layer(hidden=8), name="net").weights(), c(rnnspec.Recurrent("lstm", 3, 9)).weights()],
        "LENGTH": [data[:-1], data[:64], data + b"\0", signed(head[:40] + b"\4" + head[41:], body)],
    }
    for error, files in wrong.items():
        assert [begun(library, file) for file in files] == [error] * len(files)
    assert begun(library, data, shift=2) == "UNALIGNED"
    assert list(ERRORS)[library.call("init", None, ctypes.c_size_t(0))] == "NO_WEIGHTS"
    assert begun(library, data) == "OK"


def test_no_bit_may_be_another(library):
    data = c(layer(), name="net").weights()
    places = [*range(64), *np.random.default_rng(0).integers(64, len(data), 200).tolist(), len(data) - 1]
    for place in places:
        for bit in range(8) if place < 64 else (place % 8,):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            assert begun(library, bytes(changed)) != "OK", (place, bit)
    assert {begun(library, data[:60] + bytes([data[60] ^ 1]) + data[61:])} == {"DAMAGED"}


def test_a_program_keeps_its_own_weights_too(tmp_path):
    library = Library(c(layer(), name="net"), tmp_path)
    x = np.random.default_rng(0).normal(size=(5, 1, 3)).astype(np.float32)
    expected = library.block(x[:, 0], 9)
    assert begun(library, c(layer(seed=2), name="net").weights()) == "OK"
    assert not np.allclose(library.block(x[:, 0], 9), expected)
    assert library.call("init", None, ctypes.c_size_t(0)) == 0
    np.testing.assert_array_equal(library.block(x[:, 0], 9), expected)


def test_the_command_writes_them_apart(tmp_path):
    given = ["export", "indrnn", "--to", "c", "--inputs", "3", "--hidden", "8", "--selftest", "--apart"]
    assert main([*given, "--out", str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"indrnn.c", "indrnn.h", "indrnn_selftest.c", "indrnn.weights"}
    assert "built_in" not in (tmp_path / "indrnn.c").read_text()
    files = ["indrnn.c", "indrnn_selftest.c", "-o", "t", "-lm"]
    subprocess.run([COMPILER, *STRICT, *SANE, *files], cwd=tmp_path, check=True)
    assert subprocess.run(["./t"], cwd=tmp_path, capture_output=True).returncode == 0
    shutil.move(tmp_path / "indrnn.weights", tmp_path / "w")
    missing = subprocess.run(["./t"], cwd=tmp_path, capture_output=True, text=True)
    assert missing.returncode == 2 and "indrnn.weights can't be used: error 2" in missing.stderr
    assert subprocess.run(["./t", "w"], cwd=tmp_path, capture_output=True).returncode == 0
