"""The ten primitive functions, as machine code, against mpmath (double) and the C library's double
(float)."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import re

import numpy as np
import pytest
from function_samples import DTYPES, SPECIAL, errors, samples
from llvmlite import binding, ir

from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.backends.polynomials import FORMATS
from rnnspec.language.functions import FUNCTIONS

# Units in the last place. 2 is what the kernels' own tolerances count on. tanh and sigmoid are
# quotients of rounded sums,
# three roundings of half a unit to one each, so they come near it: 1.974 and 1.997 over half of all
# floats of 2**-10..100; expm1 has
# 1.67 just above log(2)/2, log1p 1.39 just above sqrt(2) - 1.
ULP = {
    "tanh": 2.0,
    "sigmoid": 2.0,
    "expm1": 1.8,
    "log1p": 1.5,
    "erf": 1.3,
    "exp": 1.1,
    "sin": 1.1,
    "cos": 1.1,
    "log": 0.9,
    "sqrt": 0.5,
}
WIDEST = {"f32": 16, "f64": 8}
HOST = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
PLAIN = ("generic", "")  # SSE2 on x86: no fma, 128 bits
INF, NAN = math.inf, math.nan


def text_of(key: str, lanes: int, names) -> str:
    """One function per name: void name(vector* x, vector* y, int64 n)"""
    module, index = ir.Module(), ir.IntType(64)
    module.triple = binding.get_process_triple()
    vector = ir.VectorType(FORMATS[key].float, lanes)
    for name in names:
        function = ir.Function(
            module, ir.FunctionType(ir.VoidType(), [vector.as_pointer(), vector.as_pointer(), index]), f"{name}_loop"
        )
        start, head, body, done = (function.append_basic_block() for _ in range(4))
        x, y, n = function.args
        builder = ir.IRBuilder(start)
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.phi(index)
        builder.cbranch(builder.icmp_unsigned("<", i, n), body, done)
        builder.position_at_end(body)
        value = builder.load(builder.gep(x, [i]), align=4)
        builder.store(PRIMITIVES[name](builder, value), builder.gep(y, [i]), align=4)
        i.add_incoming(index(0), start)
        i.add_incoming(builder.add(i, index(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(done)
        builder.ret_void()
    return str(module)


def compile_functions(key: str, lanes: int, target=HOST, names=tuple(PRIMITIVES)):
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text_of(key, lanes, names))
    module.verify()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=target[0], features=target[1], opt=3)
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()

    def make(name):
        code = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            engine.get_function_address(f"{name}_loop")
        )

        def call(values, keep=engine):
            values = np.asarray(values, DTYPES[key])
            x = np.concatenate([values, np.zeros(-len(values) % lanes, values.dtype)])
            y = np.empty_like(x)
            code(x.ctypes.data, y.ctypes.data, len(x) // lanes)
            return y[: len(values)]

        return call

    return {name: make(name) for name in names}


@pytest.fixture(scope="module", params=list(DTYPES))
def key(request):
    return request.param


@pytest.fixture(scope="module")
def functions(key):
    return compile_functions(key, WIDEST[key])


def test_every_primitive_of_the_language_is_here():
    assert set(PRIMITIVES) == {name for name, row in FUNCTIONS.items() if row.primitive} == set(ULP)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_last_place(key, functions, name):
    x = samples(key, name)
    error = errors(key, name, x, functions[name](x))
    worst = int(error.argmax())
    assert error[worst] <= ULP[name], f"{name}({x[worst]!r}) is wrong by {error[worst]:.2f} units"


@pytest.mark.parametrize("name", PRIMITIVES)
def test_special_values_are_exact(key, functions, name):
    x, want = np.array([*SPECIAL[name], (NAN, NAN)], DTYPES[key]).T
    got = functions[name](x)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])


def test_overflow_and_underflow(key, functions):
    info = np.finfo(DTYPES[key])
    assert functions["exp"]([math.log(float(info.max)) * 1.001, -math.log(float(info.max)) * 1.3]).tolist() == [INF, 0]
    assert functions["expm1"]([math.log(float(info.max)) * 1.001]).tolist() == [INF]
    assert 0 < functions["sigmoid"]([math.log(float(info.tiny)) * 1.02])[0] < info.tiny
    assert functions["sigmoid"]([-100.0])[0] == pytest.approx(math.exp(-100), rel=1e-15 if key == "f64" else 0.02)
    x = samples(key, "tanh")
    for name in ("tanh", "erf"):
        assert np.abs(functions[name](x)).max() == 1
    for name in ("sin", "cos"):
        assert np.abs(functions[name](x)).max() <= 1
    assert functions["sigmoid"](x).min() == 0 and functions["sigmoid"](x).max() == 1


@pytest.mark.parametrize("lanes", [4, 2, 1])
def test_narrow_vectors_give_the_same_bits(key, functions, lanes):
    """Fractions of the widest: 8 and 4 lanes of float, 4 and 2 of double, and one lane"""
    narrow = compile_functions(key, max(1, WIDEST[key] * lanes // 8))
    for name in PRIMITIVES:
        x = samples(key, name)
        np.testing.assert_array_equal(narrow[name](x), functions[name](x), name)


def test_without_fma(key):
    functions = compile_functions(key, WIDEST[key] // 2, PLAIN)
    for name, function in functions.items():
        x = samples(key, name)[::3]
        assert errors(key, name, x, function(x)).max() <= ULP[name], name


def test_a_lane_does_not_depend_on_the_others(key, functions):
    """sin and cos leave the vector code when one argument is huge"""
    x = np.linspace(-30, 30, 6 * WIDEST[key]).astype(DTYPES[key])
    mixed = x.copy()
    mixed[::3] = [1e30, NAN, INF, -1e-30] * (len(x) // 12)
    for name in PRIMITIVES:
        kept = np.arange(len(x)) % 3 != 0
        np.testing.assert_array_equal(functions[name](x)[kept], functions[name](mixed)[kept], name)


def test_the_text(key):
    """H30: no double in a float kernel; nothing that loses NaN or merges split constants"""
    text = text_of(key, 8, PRIMITIVES)
    assert not re.search(r"\b(fast|reassoc|nnan|ninf|contract|minnum|maxnum)\b", text)
    assert ("double" in text or "f64" in text) == (key == "f64")


@pytest.mark.parametrize(
    "field, names",
    [
        ("exp", ["exp", "tanh"]),
        ("log", ["log"]),
        ("sin", ["sin"]),
        ("cos", ["cos"]),
        ("erf", ["erf"]),
        ("erfc", ["erf"]),
        ("ln2", ["exp"]),
        ("half_pi", ["sin"]),
    ],
)
def test_a_wrong_coefficient_is_seen(key, monkeypatch, field, names):
    """The tests above would notice a change in the 4th (float) or 9th (double) digit of any table's
    first entry."""
    table = list(getattr(FORMATS[key], field))
    table[0] *= 1 + (1e-4 if key == "f32" else 1e-9)
    monkeypatch.setitem(FORMATS, key, dataclasses.replace(FORMATS[key], **{field: tuple(table)}))
    for name, function in compile_functions(key, 4, names=names).items():
        x = samples(key, name)[::3]
        assert errors(key, name, x, function(x)).max() > ULP[name], name
