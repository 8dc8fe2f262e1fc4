"""torchrecurrent, whose cells have the names and the parameters of RecurrentLayers.jl."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any

from bench.drift.comparison import Comparison, Found, Given

DISTRIBUTION = "torchrecurrent"
NEEDS = ("torch", "torchrecurrent")
ENVIRONMENT: Mapping[str, str] = {}

LSTM = {"ih": "W_i W_f W_g W_o", "hh": "U_i U_f U_g U_o", "b": "b_i b_f b_g b_o"}
PEEPHOLE = LSTM | {"weight_ph": "p_i p_f p_o"}
NAS = {name: " ".join(f"{kind}_{k}" for k in range(8)) for name, kind in (("ih", "W"), ("hh", "R"), ("b", "b"))}
MULTIPLICATIVE = {
    "ih": "W_m W_i W_f W_g W_o",
    "hh": "U_m",
    "b": "0 b_i b_f b_g b_o",
    "weight_mh": "U_i U_f U_g U_o",
    "bias_mh": "0",
}
FASTGRNN = {"ih": "W", "hh": "U", "b": "b_z b_h", "zeta": "zeta", "nu": "nu"}
LATER_CODE = "a tanh around the candidate, and the output gate outside the other one"
OVER_INPUTS = {"ih": "W_z W_f W_o", "hh": "V_z V_f V_o", "b": "b_z b_f b_o"}

# the spec, the class, its weights (ih, hh, b: weight_ih, weight_hh, bias_ih), and its states
ROWS: tuple[tuple[str, str, Mapping[str, str], str], ...] = (
    ("antisymmetric_rnn", "AntisymmetricRNNCell", {"ih": "W", "hh": "R", "b": "b"}, "h"),
    ("atr", "ATRCell", {"ih": "W", "hh": "U", "b": "b"}, "h"),
    ("brc", "BRCell", {"ih": "W_a W_c W_h", "hh": "u_a u_c", "b": "b_a b_c 0"}, "h"),
    ("nbrc", "NBRCell", {"ih": "W_a W_c W_h", "hh": "U_a U_c", "b": "b_a b_c 0"}, "h"),
    ("cfn", "CFNCell", {"ih": "W_theta W_eta W", "hh": "U_theta U_eta", "b": "b_theta b_eta 0"}, "h"),
    ("cornn", "coRNNCell", {"ih": "W", "hh": "U", "b": "b", "weight_ch": "U_z", "bias_ch": "0"}, "h z"),
    ("fast_rnn", "FastRNNCell", {"ih": "W", "hh": "U", "b": "b", "alpha": "alpha", "beta": "beta"}, "h"),
    ("gated_antisymmetric_rnn", "GatedAntisymmetricRNNCell", {"ih": "W_z W_h", "hh": "R", "b": "b_z b_h"}, "h"),
    ("indrnn", "IndRNNCell", {"ih": "W", "vector_u": "u", "b": "b"}, "h"),
    ("lightru", "LightRUCell", {"ih": "W_h W_f", "hh": "U_f", "b": "0 b_f"}, "h"),
    ("ligru", "LiGRUCell", {"ih": "W_z W_h", "hh": "U_z U_h", "b": "b_z b_h"}, "h"),
    ("lstm_1997", "OriginalLSTMCell", {"ih": "W_i W_g W_o", "hh": "U_i U_g U_o", "b": "b_i b_g b_o"}, "h c"),
    ("lstm_peephole", "PeepholeLSTMCell", PEEPHOLE, "h c"),
    ("mgu", "MGUCell", {"ih": "W_f W_n", "hh": "U_f U_n", "b": "b_f b_n"}, "h"),
    ("minimal_rnn", "MinimalRNNCell", {"ih": "W", "hh": "U_h", "b": "b", "bias_hh": "b_u", "weight_mm": "U_z"}, "h"),
    ("miru1", "MiRU1Cell", {"ih": "W_r W_h", "hh": "U_r U_h", "b": "b_r b_h"}, "h"),
    ("multiplicative_lstm", "MultiplicativeLSTMCell", MULTIPLICATIVE, "h c"),
    ("mut1", "MUT1Cell", {"ih": "W_z W_r W_h", "hh": "U_r U_h", "b": "b_z b_r 0", "bias_hh": "0 b_h"}, "h"),
    ("mut2", "MUT2Cell", {"ih": "W_z I W_h", "hh": "U_z U_r U_h", "b": "b_z b_r b_h"}, "h"),
    ("mut3", "MUT3Cell", {"ih": "W_z W_r W_h", "hh": "U_z U_r U_h", "b": "b_z b_r b_h"}, "h"),
    ("nas_additive", "NASCell", NAS, "h c"),
    ("residual_lstm", "ResLSTMCell", PEEPHOLE | {"weight_proj": "W_p", "weight_res": "W_r"}, "h c"),
    ("sgrn", "SGRNCell", {"ih": "W", "hh": "R", "b": "0", "bias_hh": "b"}, "h"),
    ("sgu", "SGUCell", {"ih": "W_g W_z", "hh": "U_g U_z", "b": "b_x b_z", "bias_hh": "b_g 0"}, "h"),
    (
        "dsgu",
        "DSGUCell",
        {"ih": "W_g W_z", "hh": "U_g U_z", "b": "b_x b_z", "bias_hh": "b_g 0", "weight_ho": "W_o"},
        "h",
    ),
    ("star", "STARCell", {"ih": "W_z W_k", "hh": "R_k", "b": "b_z b_k"}, "h"),
    ("tgru", "TGRUCell", OVER_INPUTS, "h x"),
    ("trnn", "TRNNCell", {"ih": "W V", "b": "b_z b_f"}, "h"),
    ("ugrnn", "UGRNNCell", {"ih": "W_c W_g", "hh": "U_c U_g", "b": "b_c b_g"}, "h"),
    ("unicornn", "UnICORNNCell", {"ih": "W", "hh": "u", "b": "b", "weight_ch": "c"}, "h z"),
    ("wmclstm", "WMCLSTMCell", LSTM | {"weight_mh": "V_i V_f V_o", "bias_mh": "0"}, "h c"),
)
ARGUMENTS: Mapping[str, Mapping[str, float]] = {  # what the class is told, where its default is another
    "antisymmetric_rnn": {"epsilon": 0.1, "gamma": 0.15},
    "gated_antisymmetric_rnn": {"epsilon": 0.1, "gamma": 0.15},
    "cornn": {"dt": 0.042, "gamma": 2.7, "epsilon": 4.7},
    "unicornn": {"dt": 0.19, "alpha": 30.65},
}
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "indrnn": {"phi": "tanh"},
    "sgu": {"slope": Fraction(1, 6)},
    "dsgu": {"slope": Fraction(1, 6)},
    "scrn": {"phi": "tanh"},
}
SLOPE = "PyTorch's Hardsigmoid has 1/6 in float32 on the way back, 3e-8 off"
SQUARE = ("mut2", "intersection_rnn")  # as many features as units
NO_RECURRENT_BIAS = ("trnn",)


def comparisons() -> list[Comparison]:
    theirs = import_module("torchrecurrent")
    found = [
        Comparison(
            name,
            kind,
            _cell(theirs, name, kind, weights, states),
            "torch",
            OPTIONS.get(name, {}),
            differs=SLOPE if name in ("sgu", "dsgu") else "",
            only_gradients=True,
        )
        for name, kind, weights, states in ROWS
    ]
    return found + _of_their_own(theirs) + _different(theirs)


def _cell(
    theirs: Any, name: str, kind: str, weights: Mapping[str, str], states: str, emits: str = "", **more: Any
) -> Any:
    """The cell over a sequence. more: arguments of the class."""
    from bench.drift.torch_side import Cell

    arguments = {**ARGUMENTS.get(name, {}), **more}
    short = {"ih": "weight_ih", "hh": "weight_hh", "b": "bias_ih"}
    named = {short.get(n, n): text for n, text in weights.items()}
    if name not in NO_RECURRENT_BIAS and kind != "UnICORNNCell":
        named = {"bias_hh": "0"} | named

    def make(sizes: Mapping[str, int]) -> Any:
        return getattr(theirs, kind)(sizes["H" if name in SQUARE else "D"], sizes["H"], **arguments)

    return Cell(make, named, states.split(), emits)


def _of_their_own(theirs: Any) -> list[Comparison]:
    """Cells whose output is no state, whose parameters are fewer, or whose arguments are others."""
    mclstm = {"ih": "W_f W_i W_o W_m W_n", "hh": "U_f U_i U_o U_m U_n", "b": "b_f b_i b_o b_m b_n"}
    crossing = {"ih": "W_yin W_hin W_gy W_gh", "hh": "U_yin U_hin U_gy U_gh", "b": "b_yin b_hin b_gy b_gh"}
    crossed = _cell(theirs, "intersection_rnn", "IntersectionRNNCell", crossing, "h", "y")
    gated = _cell(theirs, "fastgrnn", "FastGRNNCell", FASTGRNN, "h", nonlinearity="sigmoid")
    fixed = _cell(theirs, "miru2", "MiRU2Cell", {"ih": "W_h", "hh": "U_h", "b": "b_h"}, "h")
    ran = _cell(theirs, "ran", "RANCell", {"ih": "W_c W_i W_f", "hh": "U_i U_f", "b": "b_i b_f"}, "h c")
    no_bias = "its content layer has no bias"
    return [
        Comparison("intersection_rnn", "IntersectionRNNCell", crossed, "torch"),
        Comparison("mclstm", "MCLSTMCell", _cell(theirs, "mclstm", "MCLSTMCell", mclstm, "v c", "h"), "torch"),
        Comparison("tlstm", "TLSTMCell", _cell(theirs, "tlstm", "TLSTMCell", OVER_INPUTS, "c x", "h"), "torch"),
        Comparison("janet", "JANETCell", _janet(theirs), "torch", with_what="beta = 1 (it is learned there)"),
        Comparison("fastgrnn", "FastGRNNCell", gated, "torch", with_what="nonlinearity='sigmoid'"),
        Comparison(
            "miru2", "MiRU2Cell", fixed, "torch", values={"theta": 0.5}, with_what="theta = 0.5 (one number there)"
        ),
        Comparison("ran", "RANCell", ran, "torch", values={"b_c": 0.0}, with_what="b_c = 0"),
        Comparison("ran", "RANCell", ran, "torch", differs=no_bias),
        Comparison("tau_gru", "tauGRUCell", _delayed(theirs), "torch"),
    ]


def _different(theirs: Any) -> list[Comparison]:
    """Cells that compute something else there."""
    scrn = {"ih": "W_s W_h", "hh": "R U", "b": "0", "weight_ch": "P V", "bias_ch": "0", "alpha": "0.95"}
    lem = {"ih": "W_1 W_2 W_z W_h", "hh": "U_1 U_2 U_z", "b": "b_1 b_2 b_z b_h", "weight_ch": "U_h", "bias_ch": "0"}
    found = [
        ("fastgrnn", "FastGRNNCell", FASTGRNN, "h", "its gate is a tanh by default, as `nonlinearity` says"),
        ("multiplicative_lstm_paper", "MultiplicativeLSTMCell", MULTIPLICATIVE, "h c", LATER_CODE),
        ("nas", "NASCell", NAS, "h c", "unit 3 adds the two projections, as nas_additive does"),
        ("lem", "LEMCell", lem, "h z", "its last product reads the old z"),
    ]
    rows = [Comparison(n, kind, _cell(theirs, n, kind, w, s), "torch", differs=why) for n, kind, w, s, why in found]
    context = _cell(theirs, "scrn", "SCRNCell", scrn, "y s")
    fed_back = "feeds y back in the place of h, and learns alpha"
    return [
        *rows,
        Comparison(
            "scrn", "SCRNCell", context, "torch", OPTIONS["scrn"], {"S": 4, "K": 4}, zero_start=True, differs=fed_back
        ),
    ]


def _janet(theirs: Any) -> Any:
    """Its two states are one."""
    cell = _cell(theirs, "janet", "JANETCell", {"ih": "W_f W_c", "hh": "U_f U_c", "b": "b_f b_c", "beta": "1"}, "h c")

    def run(given: Given) -> Found:
        found = cell(given._replace(states={"h": given.states["h"], "c": given.states["h"]}))
        return Found(found.outputs, {"h": found.final["h"]})

    return run


def _delayed(theirs: Any) -> Any:
    """The cell is handed the state of d = 2 steps ago."""
    import torch

    from bench.drift.torch_side import bound

    gates = [" ".join(f"{kind}_{k}" for k in range(1, 5)) for kind in "UWb"]
    weights = dict(zip(("weight_ih", "weight_hh", "bias_ih"), gates)) | {"bias_hh": "0"}

    def run(given: Given) -> Found:
        step = bound(theirs.tauGRUCell(given.sizes["D"], given.sizes["H"]), weights, given)
        states = [given.states["h_1"], given.states["h"]]
        for x in given.inputs["x"]:
            states.append(step(x, states[-1], states[-2]))
        return Found({"h": torch.stack(states[2:])}, {"h": states[-1], "h_1": states[-2]})

    return run
