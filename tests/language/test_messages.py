"""What a user is told: each message says what, where, what was known or expected, and what to
do."""

from __future__ import annotations

import pickle

import pytest
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.language.load import load, loads


def errors(text: str, **settings):
    with pytest.raises(SpecError) as caught:
        loads(text, **settings)
    return caught.value.errors


def vectors(equations: str, **sections: str) -> str:
    return cell(
        equations,
        **{"inputs": "{x: D}", "states": "{h: H, c: H}", "parameters": "{W: [H, D], U: [H, H], b: H}"} | sections,
    )


GRU = """rnnspec: 1
name: gru
inputs: {x: D}
states: {h: H}
parameters: {W: [H, D], U: [H, H], W_n: [H, D], U_n: [H, H]}
equations: |
  zg[t] = sigmoid(W @ x[t] + U @ h)
  n[t] = tanh(W_n @ x[t] + zf[t] * (U_n @ h[t-1]))
  h[t] = (1 - zg[t]) * n[t] + zg[t] * h[t-1]
outputs: [h]
"""


def test_the_whole_of_a_message():
    with pytest.raises(SpecError) as caught:
        loads(GRU)
    assert (
        str(caught.value)
        == "<text>:7:34: 'h' is used without a time. Write h[t-1] for the previous step or h[t] for this one.\n"
        "   zg[t] = sigmoid(W @ x[t] + U @ h)\n"
        "                                  ^\n"
        "<text>:8:28: unknown name 'zf' in the equation for 'n'. Known here: x, h, zg, n. Did you mean 'zg'?\n"
        "   n[t] = tanh(W_n @ x[t] + zf[t] * (U_n @ h[t-1]))\n"
        "                            ^^^^^"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.errors == caught.value.errors


ONE_EQUATION = [
    # what stands after "h[t] =", what is marked, what is said
    ("W * x[t]", "*", "'*' goes element by element, and W is [H, D], x[t] is [D]. Write W @ x[t]"),
    ("b * W @ x[t]", "*", "put the product of matrix and vector in brackets, b * (W @ ...)"),
    (
        "b + x[t]",
        "+",
        (
            "shapes differ: b is [H], x[t] is [D]. '+' goes element by element: give both one shape, or make one a"
            " single number."
        ),
    ),
    ("b - (W @ x[t] / x[t])", "/", "shapes differ: W @ x[t] is [H], x[t] is [D]. '/' goes"),
    ("minimum(b, x[t])", "minimum", "shapes differ: b is [H], x[t] is [D]. 'minimum' goes"),
    ("where(x[t] > 0, b, 0)", "where", "shapes differ: x[t] > 0 is [D], b is [H]. 'where' goes"),
    (
        "W @ b",
        "@",
        "'@' does not fit: W is [H, D], b is [H]; the matrix needs a vector of [D]. b @ W multiplies by the transpose.",
    ),
    ("x[t] @ U", "@", "'@' does not fit: x[t] is [D], U is [H, H]; the matrix needs a vector of [H]."),
    (
        "W @ U @ b",
        "@",
        (
            "'@' does not fit: W is [H, D], U is [H, H]; the columns of the first must be as many as the rows of the"
            " second."
        ),
    ),
    (
        "b @ b",
        "@",
        "'@' takes a matrix; b is [H], b is [H]. Write dot(b, b) for the sum of products, outer(...) for the matrix.",
    ),
    ("2 @ b", "@", "'@' is the product of a matrix and a vector; 2 is one number, b is [H]. Write '*'."),
    ("tanh(U)", "h", "'h' is declared as [H], but its equation gives [H, H]."),
    ("(U + W) @ b", "+", "shapes differ: U is [H, H], W is [H, D]. '+' goes element by element"),
    ("W @ x[t] + W", "+", "shapes differ: W @ x[t] is [H], W is [H, D]. '+' goes element by element"),
    ("(U * W) @ b", "*", "shapes differ: U is [H, H], W is [H, D]. '*' goes element by element"),
    ("b.T @ U", "b.T", "'.T' is the transpose of a matrix, and b is [H]."),
    ("b.t", "b.t", "attributes ('.t') are not offered."),
    ("sum(2) + b", "sum", "'sum' takes a vector or a matrix, and 2 is one number."),
    ("softmax(U)", "softmax", "'softmax' takes a vector, and U is [H, H]."),
    ("layer_norm(b)", "layer_norm", "'layer_norm' takes 2 arguments: layer_norm(v, eps), not 1."),
    ("layer_norm(b, b)", "layer_norm", "the eps of layer_norm(v, eps) is one number, and b is [H]."),
    ("dot(b, x[t]) * b", "dot", "'dot' takes two vectors of one size, and b is [H], x[t] is [D]."),
    ("outer(b, 2) @ b", "outer", "'outer' takes a vector, and 2 is one number."),
    ("concat(U, b)", "concat", "'concat' takes vectors and numbers, and U is [H, H]."),
    ("concat()", "concat", "'concat' takes one argument or more: concat(a, b, ...), not 0."),
    ("concat(b, 1)", "h", "'h' is declared as [H], but its equation gives [H + 1]."),
    (
        "part(x[t], 0, H)",
        "part",
        (
            "the part of H elements from 0 on may not lie within x[t], which is [D]. Declare the vector as long as its"
            " parts: [H]."
        ),
    ),
    (
        "part(b, 0, D - H)",
        "part",
        "'length' in part(v, first, length) must be a size: a size that may be below 0 is not offered.",
    ),
    ("part(b, b, H)", "part", "'first' in part(v, first, length) must be a size: b is none."),
    ("part(b, 0, 0) + b", "part", "a size of 0 in part(v, first, length): sizes start at 1."),
    ("ones(b) * b", "ones", "'size' in ones(size) must be a size: b is none."),
    ("eye(b) @ b", "eye", "'size' in eye(size) must be a size: b is none."),
    (
        "eye(0.5) @ b",
        "eye",
        "'size' in eye(size) must be a size: a size is a name, a whole number from 1, or a sum or product of those",
    ),
    ("sum(b > 0) * b", "b > 0", "'sum' takes numbers, and b > 0 is a condition."),
    ("sum * b", "sum", "'sum' is a function. Write sum(...)"),
    ("shifted(b, 1)", "shifted", "unknown function 'shifted'"),
    ("U", "h", "'h' is declared as [H], but its equation gives [H, H]."),
    ("x[t]", "h", "'h' is declared as [H], but its equation gives [D]."),
    ("1", "h", "'h' is declared as [H], but its equation gives one number."),
    ("b > 0", "h", "'h' would be a condition. Write where(condition, 1, 0)"),
    ("b + (b > 0)", "b > 0", "'+' takes numbers, and b > 0 is a condition. Write where(condition, a, b)."),
    ("tanh(b > 0)", "b > 0", "'tanh' takes numbers, and b > 0 is a condition."),
    ("where(b, b, 0)", "b", "'where' takes a condition first (< <= > >= == !=), and b is a number."),
    ("where(b and b > 0, b, 0)", "b", "'and' takes conditions (< <= > >= == !=), and b is a number."),
    ("where(not b, b, 0)", "b", "'not' takes conditions"),
    ("where(b > 0, b)", "where", "'where' takes 3 arguments: where(condition, a, b), not 2."),
    ("hard_sigmoid(b)", "hard_sigmoid", "'hard_sigmoid' takes 2 arguments: hard_sigmoid(v, slope), not 1."),
    ("tanh()", "tanh", "'tanh' takes 1 argument: tanh(v), not 0."),
    ("c", "c", "'c' is used without a time. Write c[t-1] for the previous step or c[t] for this one."),
    ("W @ x", "x", "'x' is used without a time. Write x[t]."),
    ("b[t]", "b[t]", "'b' is a parameter and carries no time. Write b."),
    ("t[t] * b", "t[t]", "'t' is the step's number itself. Write t."),
    ("H[t] * b", "H[t]", "'H' is a size and carries no time. Write H."),
    ("H[1] * b", "H[1]", "'H' is a size and has no slices. Write H."),
    ("tanh * b", "tanh", "'tanh' is a function. Write tanh(...)"),
    ("U(b)", "U", "'U' is a parameter, not a function. Write '*' or '@' for a product."),
    ("x(b)", "x", "'x' is an input, not a function."),
    ("b[t-2]", "b[t-2]", "'b' is a parameter and carries no time. Write b."),
    ("c[t-65]", "t-65", "at most 64 steps back can be read: c[t-1] to c[t-64]."),
    (
        "c[t-D]",
        "c[t-D]",
        "the number of steps back of 'c': 'D' is a size that only arrays tell. Give it a number under sizes: {D: 3}.",
    ),
    (
        "c[t-b]",
        "c[t-b]",
        "the number of steps back of 'c': b is not made of whole numbers, loop variables and constants.",
    ),
    ("c[t-1.5]", "c[t-1.5]", "the number of steps back of 'c': 1.5 is 1.5, which is no whole number."),
    ("c[t+1]", "t+1", "a later step can't be read: use [t] or [t-1]."),
    (
        "U[1]",
        "U[1]",
        "'U' is [H, H]: it has no slices that could be counted. Give its first axis a number, under sizes: {H: 3}.",
    ),
    ("c[t, 1]", "c[t, 1]", "'c' has one value a step and takes no second index. Write c[t]."),
    ("c[1, t]", "1", "the first index of 'c' must be a time: [t], [t-1], ..."),
    ("c[2 * t]", "2 * t", "the first index of 'c' must be a time: [t], [t-1], ..."),
    ("c[t, 1, 2]", "t, 1, 2", "'c' takes a time and one index: c[t, k]."),
    (
        "c[t-1:t]",
        ":",
        (
            "':' ends the head of an inner loop (for k in 1..3:) and stands nowhere else. Write part(v, first, length)"
            " for a slice."
        ),
    ),
    ("b // 2", "//", "'//' is not offered. Division is '/': 1/2 is 0.5."),
    ("b ^ 2", "^", "'^' is not offered. Write '**' for a power."),
    ("b % 2", "%", "'%' is not offered."),
    ("b if b else b", "if", "Write where(condition, a, b)."),
    ("2b", "2", "is neither a number nor a name. Numbers are decimal literals; write 2 * ... for a product."),
    ("b b", "b", "an operator is missing between 'b' and 'b'."),
    ("b +", "+", "the equation ends too early: something is missing after this."),
    ("* b", "*", "'*' is not expected here."),
    ("(b", "(", "'(' is never closed."),
    ("b)", ")", "')' closes nothing that is open here."),
    ("(b]", "]", "']' closes nothing that is open here."),
    ("b, b", "b", "a comma is not expected here"),
    ("β * b", "β", "the character '\\u03b2' is not of the language: names and operators are plain ASCII."),
    ("b = b", "=", "a second '=' in one equation."),
    ("b ** c[t]", "**", "an exponent is a number or a constant. Write exp(e * log(v))"),
    ("b ** 65", "**", "the exponent 65 is over 64"),
    ("(b ** 9) ** 9", "**", "the exponent 9 on top of the powers inside it makes 81, which is over 64"),
    ("1e400 * b", "1e400", "this number is out of range"),
]


@pytest.mark.parametrize(("right", "marked", "said"), ONE_EQUATION, ids=[r for r, *_ in ONE_EQUATION])
def test_one_equation(right, marked, said):
    text = vectors(f"c[t] = W @ x[t] + U @ h[t-1] + b\nh[t] = {right}")
    found = errors(text)
    matching = [e for e in found if said in e.message]
    assert matching, [e.message for e in found]
    problem = matching[0]
    line = text.split("\n")[problem.line - 1]
    assert line == problem.source_line == f"  h[t] = {right}"
    assert line[problem.column - 1 :].startswith(marked) and problem.width == len(marked)
    assert len(found) == 1, [e.message for e in found]


LEFT_SIDES = [
    (
        "A = x[t]",
        "x[t]",
        "the equation for 'A' has no time, so it can't read x, which changes with it. Write A[t] = ...",
    ),
    ("A = t", "t", "the equation for 'A' has no time, so it can't read t."),
    ("A = B\nB = A", "A", "a cycle among values computed once per sequence: A -> B -> A (each reads the next)."),
    ("A = w\na[t] = A[t]", "A[t]", "'A' is a value computed once per sequence and carries no time. Write A."),
    ("A[1] = w\na[t] = A[2]", "A[2]", "'A' has no round 2. It is defined for 1."),
    ("A[1] = w\na[t] = A", "A", "'A' has one value a round. Write A[k]."),
    ("a[t, 1] = w\na[t] = w", "a", "'a' is defined twice: here and on line 8."),
    ("a[t, 1] = w\na[2] = w", "a", "'a' has a time on line 8 and none here. Give both one form."),
    ("a[t, 1] = w\na[t, 1] = w", "a", "a[t, 1] is defined twice: here and on line 8."),
    ("a[t, 1] = w\nb[t] = a[t]", "a[t]", "'a' has one value a round. Write a[t, k]."),
    ("for k in 1..3:\n  a[t] = x[t]", "a", "an equation in a loop defines one value a round. Write a[t, k] = ..."),
    ("for k in 1..3:", "for", "the loop has no body. Indent its equations under it."),
    (
        "for k in 1..3: a[t, k] = 2",
        "for",
        "the body of a loop stands on lines of its own, indented: 'for k in 1..3:' and below it",
    ),
    (
        "for k in 3:\n  a[t, k] = 2",
        "for",
        "the head of a loop reads: 'for k in 1..3:' and below it, indented, its equations.",
    ),
    (
        "for k in 1..2:\n  for j in 1..2:\n    a[t, j] = 2",
        "for",
        "inner loops can't be nested. Write one loop over all the rounds.",
    ),
    (
        "for k in 1..65:\n  a[t, k] = 2",
        "for k in 1..65:",
        "the loop from 1 to 65 has 65 rounds; 64 is the most that is offered.",
    ),
    ("for k in 3..1:\n  a[t, k] = 2", "for k in 3..1:", "the loop from 3 to 1 ends before it starts."),
    (
        "for k in 1..q:\n  a[t, k] = 2",
        "for k in 1..q:",
        "a bound of the loop: q is not made of whole numbers, loop variables and constants.",
    ),
    (
        "for h in 1..3:\n  a[t, h] = 2",
        "for h in 1..3:",
        "'h' is declared as something else. Choose another name for the loop's variable.",
    ),
    (
        "for k in 1..3:\n  a[t, 1] = 2",
        "a",
        "a[t, 1] is defined twice: here and on line 9. Its index must change from round to round.",
    ),
    (
        "for k in 1..3:\n  a[t, k / 2] = 2",
        "/",
        "the second index of 'a': k / 2 is not made of whole numbers, loop variables and constants (here k).",
    ),
    ("for k in 1..3:\n  a[t, k - 2] = 2", "-", "the second index of 'a': the index -1 is not from 0 to 1000."),
    ("for k in 1..3:\n  a[t, k] = a[t, k-1]", "a[t, k-1]", "'a' has no round 0. It is defined for 1, 2, 3."),
    ("for k in 1..3:\n  a[t, k] = k[t]", "k[t]", "'k' counts rounds. Write k."),
    ("h = 2", "h", "'h' is a state and changes with time. Write h[t] = ..."),
    ("a[t-1] = 2", "a", "an equation defines this step's value only. Write a[t] = ..."),
    ("a[] = 2", "a", "the left side of an equation is a name with its time: a[t] = ..."),
    ("2 * a[t] = 2", "2", "the left side of an equation is a name with its time: name[t] = ..."),
    ("a[t]", "a", "expected an equation: name[t] = expression."),
    ("a[t] =", "=", "the right side of the equation for 'a' is missing."),
    ("a[t] += 2", "+=", "'+=' is not offered. Each name is defined once, with '='."),
    ("sum[t] = x[t]", "sum", "'sum' is reserved: it is a function of the language."),
    ("t[t] = 2", "t", "'t' is reserved: it is the step's number."),
    ("x[t] = 2", "x", "'x' is an input (line 3); an equation defines states and intermediate values only."),
    ("w[t] = 2", "w", "'w' is a parameter (line 6); an equation defines"),
    (
        "a[t] = a[t-1] * 0.5",
        "a",
        "the shape of 'a' can't be told: it comes from earlier values of itself only. Declare it under states.",
    ),
]


@pytest.mark.parametrize(("line", "marked", "said"), LEFT_SIDES, ids=[line for line, *_ in LEFT_SIDES])
def test_left_sides(line, marked, said):
    text = cell(f"{line}\nh[t] = w * x[t]", parameters="{w: []}")
    problem, *others = errors(text)
    assert not others or line == "h = 2"  # which is a second definition too
    assert said in problem.message
    assert text.split("\n")[problem.line - 1][problem.column - 1 :].startswith(marked) and problem.width == len(marked)


def test_a_name_whose_equation_can_not_be_read_is_no_second_fault():
    (problem,) = errors(
        vectors("r[t] = sigmoid(W @ x[t]\nc[t] = r[t] * b\nh[t] = r[t] + q * 0", parameters="{W: [H, D], b: H, q: H}")
    )
    assert problem.message == "'(' is never closed."


def test_what_follows_a_bracket_left_open_is_read():
    found = errors(vectors("c[t] = tanh(W @ x[t] + U @ h[t-1]\nh[t] = c[t] + bb"))
    assert [e.message.split(".")[0] for e in found] == [
        "'(' is never closed",
        "unknown name 'bb' in the equation for 'h'",
    ]


SECTIONS = [
    ({"states": "{h: [], c: []}"}, "the state 'c' is never defined. Write an equation c[t] = ..."),
    ({"inputs": "{x: [], y: []}"}, "the input 'y' is used in no equation. Use it or take it out."),
    ({"parameters": "{w: []}"}, "the parameter 'w' is used in no equation."),
    ({"constants": "{w: 1}"}, "the constant 'w' is used in no equation."),
    ({"choices": "{phi: [tanh]}"}, "the choice 'phi' is used in no equation."),
    ({"functions": "{f(a): a}"}, "the function 'f' is used in no equation."),
    ({"sizes": "{H: units}"}, "the size 'H' stands in no shape."),
    ({"outputs": "[h, y]"}, "'y' in outputs is not a state or intermediate value. Known here: h."),
    ({"outputs": "[h, x]"}, "'x' in outputs is not a state or intermediate value."),
    ({"outputs": "[h, h]"}, "'h' is given twice in outputs."),
    ({"outputs": "[]"}, "outputs is empty."),
    ({"outputs": "h"}, "outputs is a list, like [a, b]."),
    ({"outputs": ""}, "the key 'outputs' is missing. Write 'outputs: [h]', what is emitted every step."),
    ({"states": "[h]"}, "states is a mapping, like {name: value}."),
    ({"states": "{h: []}\nname: 2x"}, "'name' is given twice in the file: here and on line 2."),
    (
        {"parameters": "{2w: []}"},
        "'2w' is not a name: names are letters (a to z, A to Z), digits and _, and start with a letter.",
    ),
    (
        {"parameters": "{tanh: []}"},
        "'tanh' is reserved: it is a function of the language. Choose another name for it in parameters.",
    ),
    ({"parameters": "{where: []}"}, "'where' is reserved"),
    ({"parameters": "{w: }"}, "the shape of 'w' is a size name, a list of them, or [] for one number."),
    ({"parameters": "{w: [H, {a: b}]}"}, "the shape of 'w' is a size name, a list of them"),
    ({"parameters": "{w: [H - 1]}"}, "a size is a name, a whole number from 1, or a sum or product of those"),
    ({"parameters": "{w: [0]}"}, "a size of 0 in the shape of 'w': sizes start at 1."),
    ({"parameters": "{w: [H, H, H, H]}"}, "'w' has the shape [H, H, H, H]; a parameter has at most 3 axes."),
    ({"states": "{h: [H, H, H]}"}, "'h' has the shape [H, H, H]; a state has at most 2 axes."),
    ({"inputs": "{x: [H, H]}"}, "'x' has the shape [H, H]; an input has at most 1 axis."),
    (
        {"parameters": "{w: D + 1}"},
        "nothing tells the size 'D' at run time: no array has it as an axis of its own. Give it a default under sizes.",
    ),
    ({"parameters": "{w: D + 1}", "sizes": "{D: E, E: D}"}, "nothing tells the size 'D' at run time"),
    (
        {"parameters": "{w: D + 1}", "sizes": "{D: {default: Q}}"},
        "the default of the size 'D': 'Q' is not made of whole numbers and the sizes D.",
    ),
    ({"inputs": "{x: T}"}, "'T' stands for the number of steps everywhere and can't be a size here."),
    ({"inputs": "{x: h}"}, "'h' is a state (line 4) and can't be a size too."),
    (
        {"choices": "{phi: [tanh, tahn]}"},
        "the choice 'phi' lists 'tahn', which is not a function. Did you mean 'tanh'?",
    ),
    ({"choices": "{phi: [tanh, minimum]}"}, "the options of the choice 'phi' take different numbers of arguments."),
    ({"choices": "{phi: []}"}, "the choice 'phi' has no options."),
    (
        {"choices": "{phi: [softmax, layer_norm]}"},
        "the options of the choice 'phi' take different numbers of arguments.",
    ),
    ({"choices": "{phi: [shifted]}"}, "the choice 'phi' lists 'shifted', which is not a function."),
    ({"functions": "{f(a): g(a), g(a): f(a)}"}, "functions can't call themselves: f -> g -> f."),
    ({"functions": "{f(a): f(a)}"}, "functions can't call themselves: f -> f."),
    ({"functions": "{f: 2}"}, "'f' is not the head of a function: write name(a): ..."),
    (
        {"functions": "{f(a, b): a}"},
        "'f(a' is not the head of a function: write name(a): ... or, on a line of its own, name(a, b): ...",
    ),
    ({"functions": "\n  f(a, a): a"}, "the function 'f' names an argument twice."),
    ({"functions": "{f(a): 2 +}"}, "in the function 'f': "),
    ({"init": "{w: orthogonal}"}, "init names 'w', which is no parameter."),
    ({"layouts": "{torch: {w: [v]}}"}, "the layout 'torch' names 'v', which is no parameter."),
    ({"layouts": "{torch: {w: []}}"}, "the block 'w' of 'torch' names no parameter."),
    (
        {"parameters": "{v: [], w: D, W: [D, D]}", "layouts": "{torch: {w: [w, W], v: [v]}}"},
        "w and W can't stand in one block ('w' of 'torch'): their shapes differ after the first axis.",
    ),
    (
        {"parameters": "{v: [], w: []}", "layouts": "{torch: {w: [w]}}"},
        "the layout 'torch' lacks v: it must place every parameter.",
    ),
    ({"no_gradient": "[y]"}, "'y' in no_gradient is not an input. Known here: x."),
    ({"rnnspec": "2"}, "this version reads format 1"),
    ({"examples": "[{inputs: {x: [1, 2]}, outputs: {h: [1]}}]"}, "one entry per step, and all as many."),
    (
        {"examples": "[{inputs: {x: [1, 2]}, outputs: {h: [1, [2]]}}]"},
        "'h' under outputs of an example has the shape of a ragged list, not (2,).",
    ),
    (
        {"examples": "[{inputs: {x: [1, 2]}, final: {g: 1}}]"},
        "'g' under final of an example is not known there. Known: h.",
    ),
    ({"examples": "[{inputs: {x: [a]}}]"}, "each entry of 'x' is a number, like 0.1 or 1e-3."),
    ({"examples": "[{sizes: {H: 0}, inputs: {x: [1]}}]"}, "the size 'H' is a whole number from 1."),
    ({"examples": "[{outputs: {h: [1]}}]"}, "the example lacks the input x."),
]


@pytest.mark.parametrize(("sections", "said"), SECTIONS, ids=[" ".join(s.values()) for s, _ in SECTIONS])
def test_sections(sections, said):
    found = errors(cell("h[t] = x[t]", **sections))
    assert any(said in e.message for e in found), [e.message for e in found]
    assert len(found) <= 4


def test_a_function_of_the_file_is_blamed_where_it_is_defined():
    text = cell("h[t] = f(x[t]) + f(2)", functions="\n  f(a): a * w + h[t-1]\n  g(a): a")
    assert [(e.line, e.message) for e in errors(text)] == [
        (7, "unknown name 'w' in the function 'f'. Known here: a. Declare it under parameters or constants."),
        (7, "the function 'f' reads 'h', a state: a function reads its arguments, parameters and constants only."),
        (8, "the function 'g' is used in no equation. Use it or take it out."),
    ]


def test_a_cycle_is_one_fault():
    (problem,) = errors(cell("r[t] = z[t]\nz[t] = r[t]\nh[t] = r[t] + x[t]"))
    assert problem.message.startswith(
        "a cycle within one step: r -> z -> r (each reads the next). One of them must read an earlier step"
    )


YAML = [
    ("rnnspec: 1\n\tname: a", 2, "a tab can't indent YAML. Use spaces."),
    ("rnnspec: 1\nname: [a", 2, "not valid YAML"),
    ("rnnspec: 1\nname: a: b", 2, "not valid YAML: mapping values are not allowed here."),
    ("rnnspec: 1\n---\nrnnspec: 1", 2, "a file holds one cell: a second document starts here."),
    ("", 0, "the file is empty. A spec starts with 'rnnspec: 1' and 'name: ...'."),
    ("# nothing", 0, "the file is empty."),
    ("- a", 1, "a spec is a mapping of keys to values"),
    ("rnnspec: 1\nname: a\x07", 2, "the character '\\x07' is not allowed in YAML."),
    ("rnnspec: 1\nnotes: a\u2028b", 2, "the character '\\u2028' is not allowed here."),
    ("rnnspec: 1\nname: !x a", 2, "the tag '!x' is not offered"),
    ("a: " + "[" * 45 + "]" * 45, 1, "nested deeper than 40."),
    ("rnnspec: 1\nequations: [a]", 2, "equations (a block of text: 'equations: |') is a text."),
    (
        "rnnspec: 1\nequations: >\n  a[t] = 1\n  b[t] = 2",
        2,
        "'>' joins the lines of the equations into one. Write 'equations: |'.",
    ),
    ("rnnspec: 1\nequations: |\n  # none\nname: a", 2, "there is no equation. Write one a line"),
]


@pytest.mark.parametrize(("text", "line", "said"), YAML)
def test_yaml(text, line, said):
    assert any(e.line == line and said in e.message for e in errors(text)), errors(text)


def test_keywords_of_load():
    text = cell("h[t] = phi(a * x[t])", choices="{phi: [tanh, relu]}", constants="{a: 2}")
    assert "has no choice or constant 'ph'. Did you mean 'phi'? It offers: phi, a." in str(errors(text, ph="relu")[0])
    (problem,) = errors(text, phi="relo")
    assert (
        problem.message == "phi='relo' is not an option. Did you mean 'relu'? The options are: tanh, relu."
        and problem.line == 6
    )
    for value in (float("nan"), float("inf"), "2", None, True, 10**400):
        assert "is no number that a constant can be" in errors(text, a=value)[0].message
    assert "It offers none." in str(errors(cell("h[t] = x[t]"), a=1)[0])


def test_files_that_are_not_there(tmp_path):
    for wanted, said in (
        ("lstn", "no cell is called 'lstn'. Did you mean 'lstm'? Near it: "),
        (tmp_path / "no.yaml", "can't read the file: no such file or directory."),
        (tmp_path / "a\0.yaml", "its name has a null byte"),
    ):
        with pytest.raises(SpecError) as caught:
            load(wanted)
        assert said in str(caught.value)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(SpecError, match="not UTF-8"):
        load(tmp_path / "latin.yaml")
    (tmp_path / "other.yaml").write_text(cell("h[t] = x[t]"))
    with pytest.raises(
        SpecError,
        match=r"other\.yaml:2:1: the name is 'tested', but the file is called 'other\.yaml'\. Make the two equal\.",
    ):
        load(tmp_path / "other.yaml")
    (tmp_path / "child.yaml").write_text("rnnspec: 1\nname: child\nextends: lstn\n")
    with pytest.raises(SpecError, match=r"child.yaml:3:10: no cell is called 'lstn'. Did you mean 'lstm'\?"):
        load(tmp_path / "child.yaml")


def test_no_more_faults_than_anybody_reads():
    start = errors(cell("\n".join(f"a{k}[t] = nowhere{k} + nowhere{k}x" for k in range(300))))
    assert len(start) == 100
