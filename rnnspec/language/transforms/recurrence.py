"""Other recurrences: diagonal, of low rank, multiplicative, normalised, leaky."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from rnnspec.errors import RnnspecError
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.rewrite import line, shape_text
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Number, Ref, to_text
from rnnspec.language.transforms.change import Change, depends, made, of_spec, products_in, recurrent_values, sum_of


@of_spec
def diagonal_recurrence(spec: Spec) -> Spec:
    """The cell with a vector in place of every square matrix that multiplies what comes from the
    step before: `U @ h[t-1]` becomes `u * h[t-1]`. RnnspecError where such a matrix is no parameter
    of its own, but computed (A = R - R.T) or one of several (R[k])."""
    work = Change(spec)

    def change(matrix: str, product: Binary, vector: Expr) -> Expr:
        shape = spec.parameters[matrix]
        if shape[0] != shape[1]:
            raise RnnspecError(
                f"diagonal_recurrence: {matrix} of '{spec.name}' is {shape_text(shape)}, in {to_text(product)}; only a"
                " square matrix has a diagonal. Where it multiplies a concatenation, write one product for each part."
            )
        return Binary(
            "*",
            Ref(
                work.new(
                    matrix.lower() if matrix.lower() != matrix else f"{matrix}_diagonal", shape[:1], matrix, of=matrix
                )
            ),
            vector,
        )

    work.products("diagonal_recurrence", change)
    return work.made("diagonal", "with a diagonal recurrence")


@of_spec
def low_rank_recurrence(spec: Spec, rank: int) -> Spec:
    """The cell with every recurrent matrix as a product of two: `U @ h[t-1]` becomes `U_left @
    (U_right @ h[t-1])`, U_right [rank, H]. RnnspecError where such a matrix is no parameter of its
    own, but computed (A = R - R.T) or one of several (R[k])."""
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank < 10**6:
        raise RnnspecError(f"low_rank_recurrence: the rank must be a whole number from 1, not {rank!r}.")
    work = Change(spec)

    def change(matrix: str, product: Binary, vector: Expr) -> Expr:
        rows, columns = spec.parameters[matrix] if product.right is vector else spec.parameters[matrix][::-1]
        left = Ref(work.new(f"{matrix}_left", (rows, str(rank)), f"{matrix} left", of=matrix))
        right = work.new(f"{matrix}_right", (str(rank), columns), f"{matrix} right", of=matrix)
        return Binary("@", left, Binary("@", Ref(right), vector))

    work.products("low_rank_recurrence", change)
    return work.made(f"rank_{rank}", f"with recurrent matrices of rank {rank}")


@of_spec
def multiplicative_integration(spec: Spec) -> Spec:
    """The cell with `(W @ x[t]) * (U @ h[t-1]) + b` in place of every sum `W @ x[t] + U @ h[t-1] +
    b` (Wu et al. 2016)."""
    work = Change(spec)
    recurrent = recurrent_values(spec)

    def change(equation: Equation, terms: list[Expr]) -> Expr | None:
        inner = [t for t in terms if products_in(t)]
        right = [t for t in inner if any(depends(p, recurrent) for p in products_in(t))]
        left = [t for t in inner if t not in right]
        if not left or not right:
            return None
        return sum_of([Binary("*", sum_of(left), sum_of(right)), *(t for t in terms if t not in inner)])

    work.sums(change)
    if not work.equations:
        raise RnnspecError(
            f"multiplicative_integration: '{spec.name}' adds no product with an input to a product with a state, like W"
            " @ x[t] + U @ h[t-1]."
        )
    return work.made("multiplicative", "with multiplicative integration")


@of_spec
def layer_norm(spec: Spec, eps: float = 1e-5) -> Spec:
    """The cell with every sum of products normalised before its activation: `W @ x[t] + U @ h[t-1]
    + b` becomes `layer_norm(W @ x[t] + U @ h[t-1], eps) * gain + b` (Ba, Kiros & Hinton 2016,
    equation 4), gains of ones at the start.
    """
    if not 0 < eps < 1:
        raise RnnspecError(f"layer_norm: eps must lie between 0 and 1, not {eps!r}.")
    work = Change(spec)

    def change(equation: Equation, terms: list[Expr]) -> Expr | None:
        inner = [t for t in terms if products_in(t)]
        shape = shape_of(sum_of(inner), spec.shapes, spec.sizes) if inner else ()
        if len(shape) != 1:
            return None
        gain = work.new(f"gain_{equation.target}", shape, f"{equation.target} {to_text(sum_of(inner))}", "ones")
        scaled = Binary("*", Call("layer_norm", (sum_of(inner), Number(Fraction(repr(float(eps)))))), Ref(gain))
        return sum_of([scaled, *(t for t in terms if t not in inner)])

    work.sums(change)
    if not work.equations:
        raise RnnspecError(
            f"layer_norm: '{spec.name}' has no vector that a matrix of parameters was multiplied into, like W @ x[t]"
            " + b."
        )
    return work.made("layer_norm", "with layer normalisation")


@of_spec
def leak(spec: Spec, alpha: float, state: str | None = None) -> Spec:
    """The cell whose state goes only part of the way: `h[t] = (1 - alpha) * h[t-1] + alpha * (what
    it was)`. state: which, where several could be meant; else the only one that is emitted."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
        raise RnnspecError(f"leak: alpha must be a number above 0 and up to 1, not {alpha!r}.")
    known = (
        [state]
        if state
        else [s for s in spec.states if s in spec.outputs]
        if len(spec.states) > 1
        else list(spec.states)
    )
    if len(known) != 1 or known[0] not in spec.states:
        raise RnnspecError(
            f"leak: say which state of '{spec.name}' leaks, with state=...:"
            f" {listed(spec.states)}.{did_you_mean(state or '', spec.states)}"
        )
    work, name = Change(spec), known[0]
    equation = next(e for e in spec.equations if e.target == name)
    new, constant = work.name(f"{name}_new"), work.name("alpha")
    equations = {
        new: line(replace(equation, target=new)),
        name: f"{name}[t] = (1 - {constant}) * {name}[t-1] + {constant} * {new}[t]",
    }
    return made(
        spec, "leaky", f"with a leak of {float(alpha):g}", equations, {"constants": {constant: repr(float(alpha))}}
    )
