"""The front end of kernels and of the runtime: functions in a small part of Python become the text
of an LLVM module.

In: a text, what its names stand for, and which of its functions are asked for. Out: a text with a C
function `void name(int64, ...)` for each; nothing is optimised or compiled here (machine.py does
that).

Values are 64-bit integers, and what an `Operation` makes: pointers, vectors, masks. There are
assignments, `if`, `while`, `for` over a `range`, arithmetic, comparisons, and calls of operations
by name. Everything else is refused, with its line. A variable has one type. `x // 0` is 0, as in
NumPy, and no other operation on integers can fail.

Numba would do as well, but needs half a second to be imported and then a hundred times as long for
a text: it infers types that are plain here, and what it writes is as long for LLVM to read again.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

I1, I64, DOUBLE = ir.IntType(1), ir.IntType(64), ir.DoubleType()
Value: TypeAlias = "ir.Value | int | float"  # a number is known already


@dataclass(frozen=True)
class Operation:
    """What a text may call: emit(builder, *values) writes it where the builder stands, and returns
    a value, or None where there is none."""

    emit: Callable[..., ir.Value | None]


def operation(emit: Callable[..., Any]) -> Any:
    """An Operation; Any, so that texts that are Python functions in a module of ours pass a type
    checker."""
    return Operation(emit)


def lower(text: str, names: Mapping[str, Any], functions: Sequence[str]) -> str:
    """The text of an LLVM module with a C function for each of `functions`.

    text: a Python module; names: what its global names stand for, numbers and operations.
    """
    module = ir.Module("rnnspec")
    found = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    for name in functions:
        _Function(module, found[name], names, text).write()
    return str(module)


ARITHMETIC: Mapping[type, tuple[Callable[..., Any], str, str]] = {
    ast.Add: (operator.add, "add", "fadd"),
    ast.Sub: (operator.sub, "sub", "fsub"),
    ast.Mult: (operator.mul, "mul", "fmul"),
    ast.BitAnd: (operator.and_, "and_", ""),
    ast.BitOr: (operator.or_, "or_", ""),
    ast.Div: (operator.truediv, "", "fdiv"),
}
COMPARISONS: Mapping[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class _Function:
    """A function while it is written."""

    def __init__(self, module: ir.Module, node: ast.FunctionDef, names: Mapping[str, Any], text: str):
        self.node, self.names, self.lines = node, names, text.splitlines()
        arguments = [argument.arg for argument in node.args.args]
        kind = ir.FunctionType(ir.VoidType(), [I64] * len(arguments))
        function = ir.Function(module, kind, node.name)
        function.attributes.add("nounwind")
        self.places = ir.IRBuilder(function.append_basic_block("places"))  # of variables
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        stores = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.once = {name for name, count in Counter(stores).items() if count == 1} - set(arguments)
        self.variables: dict[str, ir.Value | int | float] = {}
        for name, value in zip(arguments, function.args, strict=True):
            self._assign(name, value)

    def write(self) -> None:
        self._block(self.node.body)
        self.builder.ret_void()
        self.places.branch(self.places.function.basic_blocks[1])

    # --- statements

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            try:
                self._statement(statement)
            except _TextError:
                raise
            except Exception as error:
                line = self.lines[statement.lineno - 1].strip()
                raise _TextError(f"kernels can't do this: {line} (line {statement.lineno}): {error}") from error

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._assignment(targets, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assign(name, self._arithmetic(op, self._name(name), self._value(value)))
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Expr(value=ast.Constant()):  # a docstring
                pass
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._while(test, body)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")) as over, orelse=[]):
                self._for(name, over, node.body)
            case _:
                raise NotImplementedError(f"no {type(node).__name__} here")

    def _assignment(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        values = [self._value(part) for part in parts]
        for target in targets:
            places = target.elts if isinstance(target, ast.Tuple) else [target]
            for place, part in zip(places, values, strict=True):
                if not isinstance(place, ast.Name):
                    raise NotImplementedError("only names can be assigned to")
                self._assign(place.id, part)

    def _assign(self, name: str, value: Value) -> None:
        if name in self.once and isinstance(value, int | float):
            self.variables[name] = value
            return
        value = _known(value)
        if name not in self.variables:
            self.variables[name] = self.places.alloca(value.type)
        self.builder.store(value, self.variables[name])

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        builder = self.builder
        yes, no, after = [builder.append_basic_block(name) for name in ("yes", "no", "after")]
        builder.cbranch(self._condition(test), yes, no)
        for block, statements in ((yes, body), (no, orelse)):
            builder.position_at_end(block)
            self._block(statements)
            builder.branch(after)
        builder.position_at_end(after)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        builder = self.builder
        head, inside, after = [builder.append_basic_block(name) for name in ("head", "inside", "after")]
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self._condition(test), inside, after)
        builder.position_at_end(inside)
        self._block(body)
        builder.branch(head)
        builder.position_at_end(after)

    def _for(self, name: str, over: ast.Call, body: Sequence[ast.stmt]) -> None:
        """As in Python: the variable keeps its last value, and what the block does to it counts for
        the block alone."""
        builder, given = self.builder, [self._value(argument) for argument in over.args]
        start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
        first, by = _known(start), _known(step)
        turns = _turns(builder, first, _known(stop), by)
        begin, head, inside = builder.block, builder.append_basic_block("head"), builder.append_basic_block("inside")
        after = builder.append_basic_block("after")
        builder.branch(head)
        builder.position_at_end(head)
        index, left = builder.phi(I64), builder.phi(I64)
        index.add_incoming(first, begin)
        left.add_incoming(turns, begin)
        builder.cbranch(builder.icmp_signed(">", left, I64(0)), inside, after)
        builder.position_at_end(inside)
        self._assign(name, index)
        fewer, following = builder.sub(left, I64(1), flags=["nsw"]), builder.add(index, by)
        self._block(body)
        index.add_incoming(following, builder.block)
        left.add_incoming(fewer, builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    # --- expressions

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self._value(left), self._value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self._value(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compare(self.builder, COMPARISONS[type(op)], self._value(left), self._value(right))
            case ast.BoolOp(op=op, values=values):
                return self._short(isinstance(op, ast.And), values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call():
                result = self._call(node)
                if result is None:
                    raise NotImplementedError(f"{ast.unparse(node.func)} has no value")
                return result
            case _:
                raise NotImplementedError(f"no {type(node).__name__} here")

    def _name(self, name: str) -> Value:
        if (variable := self.variables.get(name)) is not None:
            return variable if isinstance(variable, int | float) else self.builder.load(variable)
        found = self.names.get(name)
        if not isinstance(found, int | float):
            raise NotImplementedError(f"{name} is no variable of this function and no number")
        return found

    def _call(self, node: ast.Call) -> ir.Value | None:
        name = ast.unparse(node.func)
        found = None if name in self.variables else self.names.get(name)
        if not isinstance(found, Operation) or node.keywords:
            raise NotImplementedError(f"{name} can't be called: only operations, with arguments by place")
        return found.emit(self.builder, *(_known(self._value(argument)) for argument in node.args))

    def _condition(self, node: ast.expr) -> ir.Value:
        value = self._value(node)
        if not isinstance(value, ir.Value) or value.type != I1:
            raise NotImplementedError("a condition is a comparison")
        return value

    def _short(self, both: bool, nodes: Sequence[ast.expr]) -> ir.Value:
        """`and`, `or`: what follows is looked at only if it matters."""
        builder = self.builder
        after, coming = builder.append_basic_block("after"), list[tuple[ir.Value, ir.Block]]()
        for node in nodes[:-1]:
            value, further = self._condition(node), builder.append_basic_block("further")
            coming.append((I1(int(not both)), builder.block))
            builder.cbranch(value, *((further, after) if both else (after, further)))
            builder.position_at_end(further)
        coming.append((self._condition(nodes[-1]), builder.block))
        builder.branch(after)
        return self._joined(after, coming)

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> ir.Value:
        builder = self.builder
        yes, no, after = [builder.append_basic_block(name) for name in ("yes", "no", "after")]
        builder.cbranch(self._condition(test), yes, no)
        coming = []
        for block, node in ((yes, body), (no, orelse)):
            builder.position_at_end(block)
            coming.append((_known(self._value(node)), builder.block))
            builder.branch(after)
        return self._joined(after, coming)

    def _joined(self, after: ir.Block, coming: Sequence[tuple[ir.Value, ir.Block]]) -> ir.Value:
        self.builder.position_at_end(after)
        joined = self.builder.phi(coming[0][0].type)
        for value, block in coming:
            joined.add_incoming(value, block)
        return joined

    def _arithmetic(self, op: ast.operator, a: Value, b: Value) -> Value:
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return _divided(self.builder, a, b, isinstance(op, ast.Mod))
        known, of_integers, of_floats = ARITHMETIC[type(op)]
        if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
            number: int | float = known(a, b)
            return number
        a, b = _known(a), _known(b)
        return getattr(self.builder, of_floats if _is_float(a) else of_integers)(a, b)

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.USub):
            if not isinstance(value, ir.Value):
                return -value
            return self.builder.fneg(value) if _is_float(value) else self.builder.neg(value)
        truth = isinstance(value, ir.Value) and getattr(value.type, "element", value.type) == I1
        if truth and isinstance(op, ast.Invert | ast.Not):
            return self.builder.not_(value)
        raise NotImplementedError(f"no {type(op).__name__} of this")


class _TextError(NotImplementedError):
    """An error that says its line."""


def _known(value: Value) -> ir.Value:
    if isinstance(value, ir.Value):
        return value
    return I64(value) if isinstance(value, int) else DOUBLE(value)


def _is_float(value: ir.Value) -> bool:
    return isinstance(getattr(value.type, "element", value.type), ir.FloatType | ir.DoubleType)


def _compare(builder: ir.IRBuilder, sign: str, a: Value, b: Value) -> ir.Value:
    """NaN is not equal, not less and not more."""
    a, b = _known(a), _known(b)
    if not _is_float(a):
        return builder.icmp_signed(sign, a, b)
    return (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, a, b)


def _turns(builder: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: ir.Value) -> ir.Value:
    """How often a loop over a range runs, not above 0 for never: counted before, which leaves LLVM
    more registers than a comparison with the end."""
    way, nothing = builder.sub(stop, start), I64(0)
    whole, rest = builder.sdiv(way, step), builder.srem(way, step)
    apart = builder.xor(builder.icmp_signed(">", way, nothing), builder.icmp_signed(">", step, nothing))
    never = builder.or_(builder.icmp_signed("==", way, nothing), apart)
    more = builder.select(builder.icmp_signed("!=", rest, nothing), builder.add(whole, I64(1)), whole)
    return builder.select(never, nothing, more)


def _divided(builder: ir.IRBuilder, a: Value, b: Value, remainder: bool) -> Value:
    """The quotient rounded down, or what it leaves."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b if remainder else a // b
    if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
        a = _known(a)
        return builder.and_(a, I64(b - 1)) if remainder else builder.ashr(a, I64(b.bit_length() - 1))
    a, b = _known(a), _known(b)
    zero = builder.icmp_signed("==", b, I64(0))
    by = builder.select(zero, I64(1), b)
    quotient, rest = builder.sdiv(a, by), builder.srem(a, by)
    apart = builder.icmp_signed("<", builder.xor(rest, by), I64(0))
    down = builder.and_(builder.icmp_signed("!=", rest, I64(0)), apart)
    result = (
        builder.add(rest, builder.select(down, by, I64(0)))
        if remainder
        else builder.sub(quotient, builder.zext(down, I64))
    )
    return builder.select(zero, I64(0), result)
