"""What people write out of habit, from papers, LaTeX, NumPy and PyTorch, and what is written here.

In: a character, a name or an attribute that is not of the language. Out: a sentence that says what
to write, or nothing. Nothing is accepted by it: these are words for messages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.language.syntax.faults import did_you_mean

_BY_ELEMENTS = "Write '*' for a product element by element, '@' for that of a matrix and a vector."
_SIGMOID = "Write sigmoid(v) for the function, or a name like sigma."
_CHARACTERS: Mapping[str, str] = {
    **dict.fromkeys("⊙∘·×⋅∗•∙⨀◦", _BY_ELEMENTS),
    "⊗": "Write outer(u, v) for all products, '*' for a product element by element.",
    "⊕": "Write concat(a, b) for one vector after another, '+' for a sum.",
    **dict.fromkeys("−–—‐‑", "Write the '-' of the keyboard."),
    "÷": "Write '/'.",
    "²": "Write '** 2'.",
    "³": "Write '** 3'.",
    "√": "Write sqrt(v).",
    "∑": "Write sum(v).",
    "Σ": "Write sum(v), or a name like Sigma.",
    "∏": "Write every factor, with '*' between them.",
    "‖": "Write norm(v).",
    "≤": "Write '<='.",
    "≥": "Write '>='.",
    "≠": "Write '!='.",
    "∧": "Write 'and'.",
    "∨": "Write 'or'.",
    "¬": "Write 'not'.",
    "½": "Write 0.5.",
    **dict.fromkeys("ᵀ⊤⊺", "Write M.T for the transposed matrix M."),
    **dict.fromkeys("σς", _SIGMOID),
    "ₜ": "Write x[t] for the value at this step.",
    **dict.fromkeys("“”‘’", "No quotes are needed."),
}
_SPELLED = {"lamda": "lam"}  # as Unicode calls it; "lambda" is a keyword of Python
# name elsewhere -> what is written here
_CALLS: Mapping[str, str] = {
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "addmm", "einsum"), "a @ b"),
    **dict.fromkeys(("multiply", "mul", "hadamard"), "a * b"),
    **dict.fromkeys(("divide", "div", "true_divide"), "a / b"),
    **dict.fromkeys(("subtract", "sub"), "a - b"),
    "add": "a + b",
    **dict.fromkeys(("negative", "neg"), "-v"),
    **dict.fromkeys(("power", "pow"), "v ** 2"),
    **dict.fromkeys(("transpose", "t", "permute"), "M.T"),
    **dict.fromkeys(("concatenate", "cat", "hstack", "stack"), "concat(a, b)"),
    **dict.fromkeys(("sigma", "logistic", "expit", "sigm"), "sigmoid(v)"),
    **dict.fromkeys(("hardsigmoid", "hard_sigm"), "hard_sigmoid(v)"),
    "hardtanh": "hard_tanh(v)",
    "logsigmoid": "log_sigmoid(v)",
    **dict.fromkeys(("leakyrelu", "lrelu"), "leaky_relu(v)"),
    "swish": "silu(v)",
    **dict.fromkeys(("heaviside", "step", "spike"), "where(v > 0, 1, 0)"),
    "sgn": "sign(v)",
    **dict.fromkeys(("absolute", "fabs"), "abs(v)"),
    **dict.fromkeys(("clamp", "clip_by_value"), "clip(v, 0, 1)"),
    "amax": "max(v)",
    "fmax": "maximum(a, b)",
    "fmin": "minimum(a, b)",
    **dict.fromkeys(("reduce_sum", "nansum"), "sum(v)"),
    **dict.fromkeys(("reduce_mean", "average"), "mean(v)"),
    **dict.fromkeys(("linalg_norm", "l2norm"), "norm(v)"),
    "layernorm": "layer_norm(v, 1e-5)",
    **dict.fromkeys(("detach", "no_grad"), "stop_gradient(v)"),
    "inner": "dot(u, v)",
    "ger": "outer(u, v)",
    **dict.fromkeys(("slice", "narrow", "chunk", "split"), "part(v, 0, 2)"),
    "ones_like": "ones(H)",
    **dict.fromkeys(("zeros", "zeros_like"), "0"),
}
_MODULES = frozenset({"np", "numpy", "math", "torch", "tf", "jnp", "jax", "nn", "F", "K", "keras", "sp", "scipy", "mx"})
_OF_AXES = ("axis", "axes", "dim", "keepdims", "keepdim")
_EARLIER = "prev|previous|pre|old|last|past|before|tm1|t_?1|t_?minus_?1|minus_?1|lag"
_NOW = "t|now|cur|curr|current|new|next"
_BACK, _HERE = (
    re.compile(rf"(?P<head>{words})_(?P<of>\w+)|(?P<name>\w+?)_?(?:{words})", re.ASCII | re.IGNORECASE)
    for words in (_EARLIER, _NOW)
)


def of_character(character: str) -> str:
    """What to write for a character that is not of the language, with a space before it."""
    known = _CHARACTERS.get(character)
    if known is not None:
        return f" {known}"
    name = unicodedata.name(character, "")
    if unicodedata.category(character) == "Zs" or name.startswith("ZERO WIDTH"):
        return f" It looks like a blank and is none ({name.lower()}): write a plain one."
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)", name)
    if found:
        letter = _SPELLED.get(found[2].lower(), found[2].lower())
        return f" Write {letter if found[1] == 'SMALL' else letter.capitalize()}."
    plain = "".join(c for c in unicodedata.normalize("NFKD", character) if c.isascii() and c.isalnum())
    return f" Write {plain}." if plain else ""


def of_call(name: str) -> str:
    """What to write for a function that other libraries have by this name, with a space before
    it."""
    known = _CALLS.get(name) or _CALLS.get(name.lower())
    return f" Write {known}." if known else ""


def of_attribute(path: str) -> str:
    """What to write for a call like np.tanh(v) or W.dot(v), given as "np.tanh" and "W.dot", with a
    space before it."""
    *owner, name = path.split(".")
    elsewhere = " Write a @ b." if name == "dot" else of_call(name)
    if elsewhere:
        return elsewhere
    ours = [f for f in (*FUNCTIONS, *FEATURES, "where") if f not in INTERNAL]
    if name not in ours:
        return f" There is no '{name[:40]}' here.{did_you_mean(name, ours)}"
    if owner[0] in _MODULES:
        return f" Write {name}(...), without '{'.'.join(owner)}.'."
    return f" Write {name}(...), with what it is applied to in the brackets."


def of_member(path: str) -> str:
    """What to write for an attribute like self.W or np.pi, with a space before it."""
    *owner, name = path.split(".")
    if owner and owner[0] in _MODULES:
        return f" Declare the number under constants: constants: {{{name}: ...}}."
    return f" Write {name} alone." if owner and all(owner) else ""


def of_argument(name: str, function: str) -> str:
    """What to write for a named argument, as in softmax(v, axis=0), with a space before it."""
    if name in _OF_AXES:
        return (
            f" Leave {name}=... out: features are the only axis that an equation has, rows and steps are none, so"
            f" {function}(v) is over all of it."
        )
    return ""


def of_step(name: str, timed: Collection[str]) -> tuple[str, str] | None:
    """The name of a stream or state that `name` means at a step, and how it is written: h_prev is
    ("h", "h[t-1]"), x_t is ("x", "x[t]"); None where it means none of `timed`."""
    for pattern, time in ((_BACK, "t-1"), (_HERE, "t")):
        found = pattern.fullmatch(name)
        base = found and (found["of"] or found["name"])
        if base in timed:
            return str(base), f"{base}[{time}]"
    return None
