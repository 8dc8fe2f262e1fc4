"""The key `constrain`: what it says, what of it is wrong, and what becomes of it in cells made
of another."""

from __future__ import annotations

import pytest
from constrained_cells import EVERY
from tiny import cell

from rnnspec import transform
from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.constraints import CONSTRAINTS, Constraint
from rnnspec.language.load import digest, load, loads
from rnnspec.language.rewrite import to_yaml
from rnnspec.show.facts import facts
from rnnspec.show.page import show

PARAMETERS = "{W: [H, D], U: [H, H], M: [H, H], d: H}"


def held(constrain: str, **keys: str) -> str:
    sections = {"inputs": "{x: D}", "states": "{h: H}", "parameters": PARAMETERS, "fixed": "[M, d]"}
    return cell("h[t] = tanh(W @ x[t] + (U * M) @ h[t-1] + d)", **{**sections, "constrain": constrain, **keys})


def test_every_constraint_is_read_written_and_read_again():
    spec = loads(EVERY)
    assert {c.kind for kinds in spec.constraints.values() for c in kinds} == set(CONSTRAINTS) - {"fixed"}
    assert spec.constraints["A"][-1] == Constraint("bounded", (-0.3, 0.3))
    assert spec.fixed == ("K", "M", "d") and spec.constraints["K"] == (Constraint("spectral_radius", (0.5,)),)
    again = loads(to_yaml(spec))
    assert again.constraints == spec.constraints and again.fixed == spec.fixed
    assert facts(spec)["constraints"]["B"] == ["sign(d)", "norm(0.4)"]
    assert "A: mask(M), sign(d), bounded(-0.3, 0.3)" in show(spec)


def test_names_and_patterns_are_matched_and_kernels_do_not_change():
    spec = loads(held("{'[UW]*': nonnegative, U: [no_self]}"))
    assert {n: [c.kind for c in kinds] for n, kinds in spec.constraints.items()} == {
        "W": ["nonnegative"],
        "U": ["no_self"],
    }
    assert loads(held("{'W, U': [bounded(0, 1)]}")).constraints.keys() == {"W", "U"}
    assert digest(spec) == digest(loads(held("")))
    assert loads(held("{U: [bounded(-a, a)]}", constants="{a: 2}"), a=3).constraints["U"][0].args == (-3.0, 3.0)


@pytest.mark.parametrize(
    "constrain, message",
    [
        ("{U: [positive]}", "unknown constraint 'positive'. Known here: mask(M), density(part, seed), sign(d)"),
        ("{U: [nonegative]}", "unknown constraint 'nonegative'. Did you mean 'nonnegative'?"),
        ("{U: ['norm(1) + 2']}", "unknown constraint"),
        ("{U: norm}", "'norm' is written norm(most); got 0 arguments."),
        ("{U: no_self(1)}", "'no_self' is written no_self; got 1 argument."),
        ("{U: [bounded(0, 1, 2)]}", "'bounded' is written bounded(low, high); got 3 arguments."),
        ("{U: [bounded(2, 1)]}", "bounded(2, 1) leaves no number"),
        ("{U: [bounded(0, x)]}", "'x' for high of bounded is not a number"),
        ("{U: bounded(0, 1)}", "'bounded(0' ends at a comma, as YAML has it"),
        ("{U: norm(0)}", "norm takes a number above 0, got 0."),
        ("{U: density(1.5)}", "density keeps a part of the weights"),
        ("{U: 'density(0.5, -1)'}", "the seed of density is a whole number"),
        ("{U: dale(2)}", "dale takes the part of the units that excite"),
        ("{V: nonnegative}", "constrain names 'V', which is no parameter."),
        ("{h: nonnegative}", "constrain names 'h', which is no parameter."),
        ("{U: mask(W)}", "'W' of mask is no fixed parameter."),
        ("{U: mask(N)}", "'N' of mask is no fixed parameter."),
        ("{U: mask(d)}", "'d' of mask has the shape [H]; for 'U' it needs [H, H]."),
        ("{W: sign(d)}", "'d' of sign has the shape [H]; for 'W' it needs [H, D] or [D]."),
        ("{W: orthogonal}", "'orthogonal' is for square matrices, as [H, H], and 'W' has the shape [H, D]."),
        ("{W: no_self}", "'no_self' is for square matrices"),
        ("{d: dale(0.5)}", "'dale' is for matrices, and 'd' has the shape [H]."),
        ("{U: [fixed, norm(1)]}", "norm(1) and fixed contradict"),
        ("{U: [sign(d), orthogonal]}", "orthogonal and sign(d) contradict"),
        ("{U: [orthogonal, norm(1)]}", "orthogonal and norm(1) contradict"),
        ("{U: [nonnegative, dale(0.8)]}", "nonnegative and dale(0.8) contradict"),
        ("{U: [mask(M), density(0.1)]}", "density(0.1) and mask(M) contradict"),
        ("{U: [no_self, bounded(0.5, 1)]}", "bounded(0.5, 1) and no_self contradict"),
        ("{U: [nonnegative, bounded(-2, -1)]}", "bounded(-2, -1) and nonnegative contradict"),
        ("{U: [no_self, no_self]}", "'no_self' is given twice in the constraints of 'U'."),
        ("{'U, U': no_self}", "'U' is given twice in constrain."),
        ("{U: {no_self: 1}}", "each constraint of 'U' is a text."),
        ("[U]", "constrain is a mapping"),
        ("{U: [" + ", ".join(["no_self"] * 20) + "]}", "'U' has more than 16 constraints."),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(constrain, message):
    with pytest.raises(SpecError) as caught:
        loads(held(constrain))
    problems = [e for e in caught.value.errors if message in e.message]
    assert problems and problems[0].source_line.startswith("constrain:") and problems[0].column > 0


def test_noise_and_sums_of_two_places_have_nothing_to_constrain():
    with pytest.raises(SpecError, match="'U' is noise, drawn anew for every call"):
        loads(held("{U: norm(1)}", noise="{U: normal(1)}"))
    two = "{torch.X: {weight: [W], other: [U], again: [U], m: [M], b: [d]}}"
    with pytest.raises(SpecError, match="'U' is the sum of two places"):
        loads(held("{U: norm(1)}", layouts=two))


def test_cells_of_another_inherit_replace_and_drop_constraints(tmp_path):
    (tmp_path / "base.yaml").write_text(held("{U: [mask(M), sign(d)]}").replace("name: tested", "name: base"))

    def extending(text: str):
        path = tmp_path / "own.yaml"
        path.write_text(f"rnnspec: 1\nname: own\nextends: base.yaml\n{text}")
        return load(path)

    assert [c.kind for c in extending("").constraints["U"]] == ["mask", "sign"]
    # what only a constraint reads is kept as long as it is read
    without = extending("equations: |\n  h[t] = tanh(W @ x[t] + U @ h[t-1])\n")
    assert without.fixed == ("M", "d")
    other = "constrain: {U: nonnegative}\nequations: |\n  h[t] = tanh(W @ x[t] + U @ h[t-1])\n"
    assert not extending(other).fixed and [c.kind for c in extending(other).constraints["U"]] == ["nonnegative"]
    assert not extending("constrain: {U: []}\n").constraints
    gone = extending("equations: |\n  h[t] = tanh(W @ x[t] + d)\n")
    assert not gone.constraints and gone.fixed == ("d",)


def test_a_transform_that_would_lose_constraints_is_refused():
    spec = load("dale_rnn")
    assert transform.zoneout(spec, 0.1).constraints == spec.constraints
    with pytest.raises(RnnspecError, match="it holds R to constraints, and they would be lost"):
        transform.low_rank_recurrence(spec, rank=2)
