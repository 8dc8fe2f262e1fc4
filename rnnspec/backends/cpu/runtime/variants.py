"""One LLVM function for each size of a tile, and calls of the one whose size is known at run time.

In: what emits the body of a tile, its sizes, and which of the terms of its sums count. Out:
functions of a module, and switches over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from rnnspec.backends.cpu.runtime.vectors import I64

Size = tuple[int, ...]


def declared(module: ir.Module, emit: Callable, size: Size, kept: int, arguments: list[ir.Type]) -> ir.Function:
    name = f"{emit.__name__}_{'x'.join(map(str, size))}{('', '_where_a', '_where_b')[kept]}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.attributes.add("noinline")  # registers are allotted to each alone
    function.attributes.add("nounwind")
    return function


def call_tile(
    builder: ir.IRBuilder, emit: Callable, sizes: Mapping[int, tuple[Size, int]], which: ir.Value, args: list[ir.Value]
) -> None:
    """Call the tile of `emit` for (size, which terms count); `sizes` are those that occur, by the
    value of `which`."""
    done = builder.append_basic_block("done")
    switch = builder.switch(which, done)
    for value, tile in sizes.items():
        function = declared(builder.module, emit, *tile, [arg.type for arg in args])
        case = builder.append_basic_block(function.name)
        switch.add_case(I64(value), case)
        with builder.goto_block(case):
            builder.call(function, args)
            builder.branch(done)
    builder.position_at_end(done)


def joined(builder: ir.IRBuilder, digits: Sequence[ir.Value]) -> ir.Value:
    """One number of small ones, each below 16."""
    number = digits[0]
    for digit in digits[1:]:
        number = builder.add(builder.mul(number, I64(16)), digit)
    return number
