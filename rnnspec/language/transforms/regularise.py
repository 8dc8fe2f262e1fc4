"""Regularisers: each declares noise, which training draws and evaluation replaces by what is
expected of it.

The equations of training and evaluation are the same ones, so their gradients are exact in both. A
number may be given for all states (inputs, matrices) or by name: `zoneout(spec, 0.1)`,
`zoneout(spec, h=0.1, c=0.05)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rnnspec.errors import RnnspecError
from rnnspec.language.features import FEATURES
from rnnspec.language.meaning.shapes import shape_of
from rnnspec.language.rewrite import line, shape_text
from rnnspec.language.roles import SIGMOIDS
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Call, Equation, Expr, Ref, Unary, to_text
from rnnspec.language.transforms.change import Change, numbers_by_name, of_spec, products_in, with_refs, within_step
from rnnspec.language.transforms.operands import Operands


@of_spec
def zoneout(spec: Spec, /, rate: float | None = None, **states: float) -> Spec:
    """The cell whose states keep their old value now and then: `h[t] = keep_h[t] * h[t-1] + (1 -
    keep_h[t]) * h_new[t]`, keep_h 1 with the probability `rate`, drawn anew for every unit, row and
    step; at evaluation keep_h is the rate itself (Krueger et al. 2017, Zoneout: Regularizing RNNs
    by Randomly Preserving Hidden Activations). What the step computes its states from sees the new
    values (h of an LSTM sees c_new, as in the paper's equations); outputs computed from states see
    those that were kept."""
    rates = numbers_by_name("zoneout", rate, states, spec.states, "state", "bernoulli")
    work = Change(spec)
    feeding = set(spec.states).union(*(within_step(spec, s) for s in spec.states))
    new = {s: work.name(f"{s}_new") for s in rates}

    def before(ref: Ref) -> Expr:
        return replace(ref, name=new[ref.name]) if ref.name in new and ref.time == 0 else ref

    work.visited(lambda value: with_refs(value, before), [e for e in spec.equations if e.target in feeding])
    for state, p in rates.items():
        keep = _noise(work, "zoneout", f"keep_{state}", f"bernoulli({p!r})", spec.states[state], state)
        equation = next(e for e in spec.equations if e.target == state)
        work.equations[new[state]] = line(replace(equation, target=new[state], value=with_refs(equation.value, before)))
        work.equations[state] = f"{state}[t] = {keep}[t] * {state}[t-1] + (1 - {keep}[t]) * {new[state]}[t]"
    return work.made("zoneout", f"with zoneout of {_list(rates)}")


@of_spec
def recurrent_dropout(spec: Spec, /, rate: float | None = None, per: str = "sequence", **states: float) -> Spec:
    """The cell whose matrices see its old states with units dropped: `U @ h[t-1]` becomes `U @
    (mask_h[t] * h[t-1])`. mask_h is 0 with the probability `rate`, else 1 / (1 - rate), and 1 at
    evaluation; one mask holds for all steps of a sequence and all matrices (Gal & Ghahramani 2016,
    A Theoretically Grounded Application of Dropout in Recurrent Neural Networks), or with
    per="step" for one step. A state counts where a product with parameters reads its old value:
    itself, concatenated with others (only its part is masked), or scaled by a gate.
    """
    found = Operands(spec)
    if not found.carried():
        raise RnnspecError(f"recurrent_dropout: '{spec.name}' multiplies no old state by a matrix of parameters.")
    rates = numbers_by_name(
        "recurrent_dropout", rate, states, found.carried(), "state that a matrix multiplies", "dropout"
    )
    suffix = _per("recurrent_dropout", per)
    work = Change(spec)
    masks: dict[tuple[str, Shape], str] = {}

    def masked(value: Expr) -> Expr:
        carried = [s for s in found.carries(value) if s in rates]
        inner = found.concatenation(value)
        if not carried:
            return value
        if inner is not None:
            return replace(inner, args=tuple(masked(a) for a in inner.args))
        state, shape = carried[0], shape_of(value, spec.shapes, spec.sizes)
        if (state, shape) not in masks:
            masks[state, shape] = _noise(
                work, "recurrent_dropout", f"mask_{state}", f"dropout({rates[state]!r}){suffix}", shape, state
            )
        return Binary("*", Ref(masks[state, shape], 0), value)

    def dropped(operand: Expr, equation: Equation) -> Expr:
        value = masked(operand)
        if value == operand:
            return operand
        key = to_text(operand)
        if key not in work.known:
            name = work.name(f"{operand.name if isinstance(operand, Ref) else equation.target}_dropped")
            work.known[key] = name
            work.equations[name] = f"{name}[t] = {to_text(value)}"
        return Ref(work.known[key], 0)

    for equation in spec.equations:

        def visit(value: Expr, equation: Equation = equation) -> Expr:
            return found.products(value, lambda matrix, operand: (matrix, dropped(operand, equation)))

        work.visited(visit, [equation])
    return work.made("recurrent_dropout", f"with recurrent dropout of {_list(rates)}")


@of_spec
def dropconnect(spec: Spec, /, rate: float | None = None, **matrices: float) -> Spec:
    """The cell whose recurrent matrices have weights dropped: `U @ h[t-1]` becomes `U_dropped @
    h[t-1]` with `U_dropped = mask_U * U`; an entry of mask_U is 0 with the probability `rate`, else
    1 / (1 - rate), drawn once a call, and 1 at evaluation (Merity, Keskar & Socher 2017,
    Regularizing and Optimizing LSTM Language Models). A matrix computed once per sequence (A = R -
    R.T) is masked as a whole.
    """
    found, refs = Operands(spec), {}

    def collect(matrix: Expr, operand: Expr) -> tuple[Expr, Expr]:
        ref = matrix.arg if isinstance(matrix, Unary) else matrix
        if found.carries(operand):
            if not isinstance(ref, Ref):
                raise RnnspecError(
                    f"dropconnect: '{spec.name}' multiplies an old state by a matrix without a name, in"
                    f" {to_text(Binary('@', matrix, operand))}. Give it one: A = {to_text(matrix)}; A is then masked as"
                    " a whole."
                )
            if found.mixes(operand):
                raise RnnspecError(
                    f"dropconnect: {to_text(ref)} of '{spec.name}' multiplies a concatenation of old states and other"
                    f" things, in {to_text(Binary('@', matrix, operand))}. Write one product for each part."
                )
            refs[to_text(ref).replace("[", "_").replace("]", "")] = ref
        return matrix, operand

    for equation in spec.equations:
        found.products(equation.value, collect)
    if not refs:
        raise RnnspecError(f"dropconnect: '{spec.name}' multiplies no old state by a matrix of parameters.")
    rates = numbers_by_name("dropconnect", rate, matrices, refs, "recurrent matrix", "dropout")
    work, names = Change(spec), {}
    for key, p in rates.items():
        shape = shape_of(refs[key], spec.shapes, spec.sizes)
        mask = work.declare("parameters", f"mask_{key}", shape_text(shape))
        work.declared.setdefault("noise", {})[mask] = f"dropout({p!r})"
        names[to_text(refs[key])] = name = work.name(f"{key}_dropped")
        work.equations[name] = f"{name} = {mask} * {to_text(refs[key])}"

    def exchange(matrix: Expr, operand: Expr) -> tuple[Expr, Expr]:
        return (
            with_refs(matrix, lambda r: Ref(names[to_text(r)]) if to_text(r) in names else r)
            if found.carries(operand)
            else matrix
        ), operand

    work.visited(lambda value: found.products(value, exchange))
    return work.made("dropconnect", f"with DropConnect of {_list(rates)}")


@of_spec
def input_dropout(spec: Spec, /, rate: float | None = None, per: str = "sequence", **inputs: float) -> Spec:
    """The cell that reads its inputs with features dropped: `x[t]` becomes `mask_x[t] * x[t]`,
    mask_x 0 with the probability `rate`, else 1 / (1 - rate), and 1 at evaluation; one mask for all
    steps of a sequence (Gal & Ghahramani 2016), or with per="step" one for each.
    """
    rates = numbers_by_name(
        "input_dropout",
        rate,
        inputs,
        [n for n in spec.streams if n not in spec.no_gradient] if rate is not None else spec.streams,
        "input",
        "dropout",
    )
    work, suffix, new = Change(spec), _per("input_dropout", per), {}
    for name, p in rates.items():
        mask = _noise(work, "input_dropout", f"mask_{name}", f"dropout({p!r}){suffix}", spec.inputs[name], name)
        new[name] = dropped = work.name(f"{name}_dropped")
        work.equations[dropped] = f"{dropped}[t] = {mask}[t] * {name}[t]"
    work.visited(lambda value: with_refs(value, lambda r: replace(r, name=new[r.name]) if r.name in new else r))
    return work.made("input_dropout", f"with dropout of {_list(rates)}")


@of_spec
def candidate_dropout(spec: Spec, rate: float, value: str | None = None, per: str = "step") -> Spec:
    """The cell whose new content is dropped before it is written: `g[t] = mask_g[t] * tanh(...)`,
    mask_g 0 with the probability `rate`, else 1 / (1 - rate), and 1 at evaluation (Semeniuta,
    Severyn & Barth 2016, Recurrent Dropout without Memory Loss); for every step anew, or with
    per="sequence" one mask for all. value: which, where several could be meant; else the only
    intermediate value that is a function, other than a gate's, of a product with a matrix, and that
    a state is computed from."""
    written = set().union(*(within_step(spec, s) for s in spec.states)) - set(spec.states)
    likely = [
        e.target
        for e in spec.equations
        if e.target in written
        and isinstance(e.value, Call)
        and e.value.function not in SIGMOIDS
        and e.value.function not in FEATURES
        and e.timed
        and any(products_in(a) for a in e.value.args)
    ]
    known = [e.target for e in spec.equations if e.timed and e.target not in spec.states]
    chosen = likely if value is None else [value]
    if len(chosen) != 1 or chosen[0] not in known:
        raise RnnspecError(
            f"candidate_dropout: say which value of '{spec.name}' is dropped, with value=...:"
            f" {listed(likely or known)}.{did_you_mean(value or '', known)}"
        )
    name = chosen[0]
    p = numbers_by_name("candidate_dropout", None, {name: rate}, known, "value", "dropout")[name]
    work = Change(spec)
    mask = _noise(
        work,
        "candidate_dropout",
        f"mask_{name}",
        f"dropout({p!r}){_per('candidate_dropout', per)}",
        spec.shapes[name],
        name,
    )
    equation = next(e for e in spec.equations if e.target == name)
    work.equations[name] = line(replace(equation, value=Binary("*", Ref(mask, 0), equation.value)))
    return work.made("candidate_dropout", f"with dropout of {_list({name: p})}")


@of_spec
def state_noise(spec: Spec, /, sigma: float | None = None, **states: float) -> Spec:
    """The cell with Gaussian noise in its states: `h[t] = ... + noise_h[t]`, of mean 0 and standard
    deviation `sigma`, drawn anew for every unit, row and step, and 0 at evaluation (Jim, Giles &
    Horne 1996, An Analysis of Noise in Recurrent Neural Networks)."""
    sigmas = numbers_by_name("state_noise", sigma, states, spec.states, "state", "normal")
    work = Change(spec)
    for state, s in sigmas.items():
        noise = _noise(work, "state_noise", f"noise_{state}", f"normal({s!r})", spec.states[state], state)
        equation = next(e for e in spec.equations if e.target == state)
        work.equations[state] = line(replace(equation, value=Binary("+", equation.value, Ref(noise, 0))))
    return work.made("state_noise", f"with noise in {_list(sigmas)}")


# --- noise ---


def _noise(work: Change, caller: str, wanted: str, how: str, shape: Shape, of: str) -> str:
    """A new input that is noise."""
    if len(shape) > 1:
        raise RnnspecError(
            f"{caller}: '{of}' of '{work.spec.name}' is a matrix, and noise is drawn for vectors and numbers. Name the"
            " states that are meant."
        )
    name = work.declare("inputs", wanted, shape_text(shape))
    work.declared.setdefault("noise", {})[name] = how
    return name


def _per(caller: str, per: str) -> str:
    if per not in ("step", "sequence"):
        raise RnnspecError(f"{caller}: a mask is drawn per step or per sequence, not per {per!r}.")
    return " per sequence" if per == "sequence" else ""


def _list(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} ({number:g})" for name, number in numbers.items())
