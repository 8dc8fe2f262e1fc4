"""One instruction -> a function of lanes. It returns True where the lanes do not simply go on: they
branched, wait, or are done."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ptx.module import TYPES, Instruction, PtxError

if TYPE_CHECKING:
    from ptx.machine import Machine

Lanes = Any  # slice or index array
Step = Callable[[Lanes], bool]
Get = Callable[[Lanes], Any]
STRONG = {"relaxed", "acquire", "volatile", "cg", "cv"}  # loads that the cache of a processor does not answer
COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
WIDE = {np.int32: np.int64, np.uint32: np.uint64, np.uint16: np.uint32, np.int16: np.int32}


def compile_instruction(machine: Machine, instruction: Instruction) -> Step:
    step = _plain(machine, instruction)
    text = instruction.text
    if instruction.guard is None:

        def run(lanes: Lanes) -> bool:
            machine.current = text
            return step(lanes)

        return run
    name, negated = instruction.guard
    test = _source(machine, name, np.bool_)

    def guarded(lanes: Lanes) -> bool:
        machine.current = text
        holds = test(lanes) != negated
        own = np.arange(machine.n)[lanes][holds]
        return bool(len(own)) and step(own) and len(own) == len(holds)

    if instruction.opcode[0] == "bra":

        def branch(lanes: Lanes) -> bool:
            holds = test(lanes) != negated
            own = np.arange(machine.n)[lanes][holds]
            if len(own):
                step(own)
            return True

        return branch
    return guarded


def _plain(machine: Machine, instruction: Instruction) -> Step:
    opcode, operands = instruction.opcode, instruction.operands
    match opcode[0]:
        case "bra":
            target = machine.module.labels[operands[0]]
            return lambda lanes: _set(machine.pc, lanes, target)
        case "ret" | "exit":
            return lambda lanes: _set(machine.done, lanes, True)
        case "bar" | "barrier":
            return lambda lanes: _set(machine.waiting, lanes, True)
        case "ld":
            return _load(machine, opcode, operands)
        case "st":
            return _store(machine, opcode, operands)
        case "red":
            return _add(machine, opcode, operands)
        case "membar" | "fence":
            return lambda lanes: machine.fence(lanes) or False
        case "mov" if operands[0].startswith("{") or operands[1].startswith("{"):
            return _pack(machine, opcode, operands)
    compute = _compute(machine, opcode, operands)
    put = _target(machine, operands[0].split("|")[0])

    def run(lanes: Lanes) -> bool:
        put(lanes, compute(lanes))
        return False

    return run


def _set(array: np.ndarray, lanes: Lanes, value: Any) -> bool:
    array[lanes] = value
    return True


# --- operands ---


def _register(machine: Machine, name: str) -> np.ndarray:
    if name not in machine.registers:
        kinds = machine.module.registers
        kind = kinds.get(name) or kinds.get(re.sub(r"\d+$", "", name))
        if kind is None:
            raise PtxError(f"unknown register {name}")
        machine.registers[name] = np.zeros(machine.n, kind)
    return machine.registers[name]


def _source(machine: Machine, text: str, dtype: type) -> Get:
    if text in machine.special:
        values = machine.special[text]
        return lambda lanes: values[lanes].view(dtype) if np.dtype(dtype).itemsize == 4 else values[lanes].astype(dtype)
    if text.startswith("%"):
        register = _register(machine, text)
        if register.dtype == dtype:
            return lambda lanes: register[lanes]
        if register.dtype.itemsize == np.dtype(dtype).itemsize and register.dtype != np.bool_:
            return lambda lanes: register[lanes].view(dtype)
        return lambda lanes: register[lanes].astype(dtype)
    constant = _constant(machine, text, dtype)
    return lambda lanes: constant


def _constant(machine: Machine, text: str, dtype: type) -> Any:
    if text.startswith(("0f", "0d")) and len(text) > 3:
        bits = np.array([int(text[2:], 16)], np.uint32 if text[1] == "f" else np.uint64)
        return bits.view(np.float32 if text[1] == "f" else np.float64).astype(dtype)[0]
    if text in machine.module.shared:
        return np.dtype(dtype).type(0)
    if text in machine.module.local:
        return np.dtype(dtype).type(machine.module.local[text][0])
    if text in machine.constants:
        return np.dtype(dtype).type(machine.constants[text])
    if dtype is np.bool_:
        return np.bool_(int(text, 0))
    if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)U?", text):
        width = np.dtype(dtype).itemsize
        return np.array([int(text.rstrip("U"), 0) & (2 ** (8 * width) - 1)], f"u{width}").view(dtype)[0]
    raise PtxError(f"unknown operand {text!r}")


def _target(machine: Machine, text: str) -> Callable[[Lanes, Any], None]:
    if text == "_":
        return lambda lanes, value: None
    register = _register(machine, text)
    dtype = register.dtype

    def put(lanes: Lanes, value: Any) -> None:
        found = np.asarray(value)
        if found.dtype != dtype:
            same = found.dtype.itemsize == dtype.itemsize and dtype != np.bool_ and found.dtype != np.bool_
            found = (
                (found.view(dtype) if found.ndim else found.reshape(1).view(dtype)[0]) if same else found.astype(dtype)
            )
        register[lanes] = found

    return put


def _address(machine: Machine, text: str) -> Get:
    match = re.fullmatch(r"\[([%\w$]+)(?:\+(-?\d+))?\]", text)
    if match is None:
        raise PtxError(f"unknown address {text}")
    base, offset = _source(machine, match[1], np.uint64), np.uint64(int(match[2] or 0) & (2**64 - 1))
    lanes_of = machine.thread
    return lambda lanes: np.broadcast_to(base(lanes) + offset, lanes_of[lanes].shape)


def _list(text: str) -> list[str]:
    return [s.strip() for s in text.strip("{}").split(",")]


def _load(machine: Machine, opcode: tuple[str, ...], operands: tuple[str, ...]) -> Step:
    dtype, space = TYPES[opcode[-1]], _space(opcode)
    targets = [_target(machine, t) for t in _list(operands[0])]
    if space == "param":
        value = machine.parameters[operands[1].strip("[]")].astype(dtype)

        def parameter(lanes: Lanes) -> bool:
            targets[0](lanes, value)
            return False

        return parameter
    address, width = _address(machine, operands[1]), np.uint64(np.dtype(dtype).itemsize)
    # a vector load may bring along a number that nobody uses, of what fills up a row
    used = [machine.module.mentions[name] > 1 for name in _list(operands[0])]
    strong = bool(STRONG & set(opcode))

    def run(lanes: Lanes) -> bool:
        at = address(lanes)
        _aligned(at, width, len(targets))
        for i, put in enumerate(targets):
            put(lanes, machine.load(space, at + width * np.uint64(i), dtype, lanes, used[i], strong))
        return False

    return run


def _store(machine: Machine, opcode: tuple[str, ...], operands: tuple[str, ...]) -> Step:
    dtype, space = TYPES[opcode[-1]], _space(opcode)
    address, width = _address(machine, operands[0]), np.uint64(np.dtype(dtype).itemsize)
    sources = [_source(machine, t, dtype) for t in _list(operands[1])]

    def run(lanes: Lanes) -> bool:
        at = address(lanes)
        _aligned(at, width, len(sources))
        for i, get in enumerate(sources):
            machine.store(
                space, at + width * np.uint64(i), np.broadcast_to(np.asarray(get(lanes), dtype), at.shape), lanes
            )
        return False

    return run


def _add(machine: Machine, opcode: tuple[str, ...], operands: tuple[str, ...]) -> Step:
    """An atomic addition without a result."""
    if not {"gpu", "global", "add", "u64"} <= set(opcode):
        raise PtxError(f"unknown instruction {'.'.join(opcode)}")
    address, value = _address(machine, operands[0]), _source(machine, operands[1], np.uint64)

    def run(lanes: Lanes) -> bool:
        at = address(lanes)
        machine.add(at, np.broadcast_to(np.asarray(value(lanes), np.uint64), at.shape), lanes)
        return False

    return run


def _space(opcode: tuple[str, ...]) -> str:
    return next((s for s in opcode if s in ("global", "shared", "local", "param", "const")), "generic")


def _aligned(address: np.ndarray, width: np.uint64, count: int) -> None:
    if (address % (width * np.uint64(count))).any():
        raise PtxError("a vector access that is not aligned")


def _pack(machine: Machine, opcode: tuple[str, ...], operands: tuple[str, ...]) -> Step:
    """mov between a register of 64 bits and two of 32."""
    whole, half = TYPES[opcode[-1]], np.uint32
    if operands[0].startswith("{"):
        low, high = (_target(machine, t) for t in _list(operands[0]))
        source = _source(machine, operands[1], np.uint64)

        def unpack(lanes: Lanes) -> bool:
            value = np.broadcast_to(source(lanes), machine.thread[lanes].shape)
            low(lanes, (value & np.uint64(0xFFFFFFFF)).astype(half))
            high(lanes, (value >> np.uint64(32)).astype(half))
            return False

        return unpack
    parts = [_source(machine, t, half) for t in _list(operands[1])]
    target = _target(machine, operands[0])

    def pack(lanes: Lanes) -> bool:
        low_, high_ = (np.asarray(p(lanes)).astype(np.uint64) for p in parts)
        target(lanes, (low_ | (high_ << np.uint64(32))).view(whole))
        return False

    return pack


# --- arithmetic ---


def _compute(machine: Machine, opcode: tuple[str, ...], operands: tuple[str, ...]) -> Get:
    name, dtype = opcode[0], TYPES.get(opcode[-1])
    if dtype is None:
        raise PtxError(f"unknown instruction {'.'.join(opcode)}")

    def source(i: int, kind: type = dtype) -> Get:
        return _source(machine, operands[i], kind)

    match name:
        case "mov":
            return source(1)
        case "cvta":
            return source(1, np.uint64)
        case "cvt":
            return _convert(source(1, TYPES[opcode[-1]]), opcode)
        case "setp":
            return _test(source(1), source(2), opcode, dtype)
        case "selp":
            a, b, p = source(1), source(2), source(3, np.bool_)
            return lambda lanes: np.where(p(lanes), a(lanes), b(lanes)).astype(dtype)
        case "shl" | "shr":
            return _shift(source(1), source(2, np.uint32), name, dtype)
        case "mul" | "mad" if "wide" in opcode:
            return _wide(
                [source(i) for i in range(1, 3)], source(3, WIDE[dtype]) if name == "mad" else None, WIDE[dtype]
            )
        case "mul" if "hi" in opcode:
            return _high(source(1), source(2), dtype, machine)
        case "bfe" | "bfi" | "shf":
            return _bits(name, opcode, [source(i) for i in range(1, len(operands))], dtype)
    values = [source(i) for i in range(1, len(operands))]
    function = _FUNCTIONS.get(name)
    if function is None:
        raise PtxError(f"unknown instruction {'.'.join(opcode)}")
    return lambda lanes: function(opcode, dtype, *(v(lanes) for v in values))


def _float(dtype: type) -> bool:
    return np.issubdtype(dtype, np.floating)


def _fma(opcode: tuple[str, ...], dtype: type, a: Any, b: Any, c: Any) -> Any:
    if dtype is np.float64:
        return _fma64(*(np.asarray(v, np.float64) for v in (a, b, c)))
    exact = np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)
    rounded = exact.astype(np.float32)
    if "rm" in opcode:
        return np.where(rounded.astype(np.float64) > exact, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    return rounded


def _fma64(a: Any, b: Any, c: Any) -> Any:
    """The product and the sum each as two numbers (Dekker 1971, Knuth), so that nothing but the
    result is rounded, but for rare ties."""
    product, (a_high, a_low), (b_high, b_low) = a * b, _halves(a), _halves(b)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    added = total - product
    rest = ((product - (total - added)) + (c - added)) + lost
    return np.where(
        np.isfinite(rest) & (rest != 0), total + rest, total
    )  # a zero keeps its sign; halves overflow before products do


def _halves(a: Any) -> tuple[Any, Any]:
    shifted = 134217729.0 * a  # 2**27 + 1
    high = shifted - (shifted - a)
    return high, a - high


def _divide(opcode: tuple[str, ...], dtype: type, a: Any, b: Any) -> Any:
    if _float(dtype):
        return a / b
    return np.where(
        np.equal(b, 0),
        np.dtype(dtype).type(-1 if np.issubdtype(dtype, np.signedinteger) else np.iinfo(dtype).max),
        np.floor_divide(a, np.where(np.equal(b, 0), 1, b).astype(dtype)),
    ).astype(dtype)


def _reciprocal(opcode: tuple[str, ...], dtype: type, a: Any) -> Any:
    found = (1 / np.asarray(a, np.float64)).astype(dtype)
    if "approx" in opcode and dtype is np.float64:  # the upper half of the result is all there is
        found = (np.atleast_1d(found).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    return found


def _power(opcode: tuple[str, ...], dtype: type, a: Any) -> Any:
    found = np.exp2(np.asarray(a, np.float64)).astype(np.float32)
    return np.where(np.abs(found) < np.float32(1.17549435e-38), np.float32(0), found) if "ftz" in opcode else found


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda o, t, a, b: a + b,
    "sub": lambda o, t, a, b: a - b,
    "mul": lambda o, t, a, b: a * b,
    "mad": lambda o, t, a, b, c: a * b + c,
    "fma": _fma,
    "div": _divide,
    "rcp": _reciprocal,
    "ex2": _power,
    "sqrt": lambda o, t, a: np.sqrt(a),
    "rem": lambda o, t, a, b: np.fmod(a, np.where(np.equal(b, 0), 1, b).astype(t)),
    "min": lambda o, t, a, b: np.fmin(a, b) if _float(t) else np.minimum(a, b),
    "max": lambda o, t, a, b: np.fmax(a, b) if _float(t) else np.maximum(a, b),
    "and": lambda o, t, a, b: a & b,
    "or": lambda o, t, a, b: a | b,
    "xor": lambda o, t, a, b: a ^ b,
    "not": lambda o, t, a: ~np.asarray(a),
    "neg": lambda o, t, a: -np.asarray(a),
    "abs": lambda o, t, a: np.abs(a),
    "copysign": lambda o, t, a, b: np.copysign(b, a),
}


def _convert(source: Get, opcode: tuple[str, ...]) -> Get:
    to, of = TYPES[opcode[-2]], TYPES[opcode[-1]]

    def run(lanes: Lanes) -> Any:
        value = np.asarray(source(lanes))
        if "sat" in opcode:
            value = np.clip(np.where(np.isnan(value), 0, value), 0, 1)
        rounding = next((ROUND[o] for o in opcode if o in ROUND), None)
        if rounding is not None:
            value = rounding(value)
        if _float(of) and not _float(to):
            limits = np.iinfo(to)
            value = np.clip(
                np.where(np.isnan(value), 0, value.astype(np.float64)), float(limits.min), float(limits.max)
            )
        return value.astype(to)

    return run


def _test(a: Get, b: Get, opcode: tuple[str, ...], dtype: type) -> Get:
    kind = opcode[1]
    if kind in ("nan", "num"):
        return lambda lanes: (np.isnan(a(lanes)) | np.isnan(b(lanes))) == (kind == "nan")
    if kind in COMPARE:
        compare = COMPARE[kind]
        if kind == "ne" and _float(dtype):
            return lambda lanes: np.not_equal(a(lanes), b(lanes)) & ~(np.isnan(a(lanes)) | np.isnan(b(lanes)))
        return lambda lanes: compare(a(lanes), b(lanes))
    if kind.endswith("u") and kind[:-1] in COMPARE and _float(dtype):
        compare = COMPARE[kind[:-1]]
        return lambda lanes: compare(a(lanes), b(lanes)) | np.isnan(a(lanes)) | np.isnan(b(lanes))
    raise PtxError(f"unknown comparison {'.'.join(opcode)}")


def _shift(a: Get, count: Get, name: str, dtype: type) -> Get:
    width = 8 * np.dtype(dtype).itemsize

    def run(lanes: Lanes) -> Any:
        value, by = np.asarray(a(lanes)), np.asarray(count(lanes)).astype(np.uint64)
        held = np.minimum(by, np.uint64(width - 1)).astype(dtype)
        if name == "shr" and np.issubdtype(dtype, np.signedinteger):
            return value >> held
        return np.where(by >= width, 0, value << held if name == "shl" else value >> held).astype(dtype)

    return run


def _wide(factors: list[Get], term: Get | None, wide: type) -> Get:
    def run(lanes: Lanes) -> Any:
        a, b = (np.asarray(f(lanes)).astype(wide) for f in factors)
        return a * b if term is None else a * b + term(lanes)

    return run


def _high(a: Get, b: Get, dtype: type, machine: Machine) -> Get:
    width = 8 * np.dtype(dtype).itemsize

    def run(lanes: Lanes) -> Any:
        shape = machine.thread[lanes].shape
        x, y = (np.broadcast_to(np.asarray(v(lanes)), shape).tolist() for v in (a, b))
        return np.array([(p * q) >> width for p, q in zip(x, y)], dtype)

    return run


def _bits(name: str, opcode: tuple[str, ...], values: list[Get], dtype: type) -> Get:
    def run(lanes: Lanes) -> Any:
        v = [np.asarray(get(lanes)) for get in values]
        if name == "bfi":
            position, length = int(v[2]), int(v[3])
            mask = dtype(((1 << length) - 1) << position)
            return (v[1] & ~mask) | ((v[0] << dtype(position)) & mask)
        if name == "bfe":
            position, length = int(v[1]), int(v[2])
            return (v[0] >> dtype(position)) & dtype((1 << length) - 1)
        both = v[0].astype(np.uint64) | (v[1].astype(np.uint64) << np.uint64(32))
        by = (
            np.uint64(32) - np.minimum(v[2], 32).astype(np.uint64)
            if "l" in opcode
            else np.minimum(v[2], 32).astype(np.uint64)
        )
        return ((both >> by) & np.uint64(0xFFFFFFFF)).astype(dtype)

    return run
