"""A cell that holds a parameter to every constraint there is, and a way to see that they hold which
is not the package's: written down element by element."""

from __future__ import annotations

import numpy as np
from tiny import cell

from rnnspec.language.spec import Spec

EVERY = cell(
    "h[t] = tanh(V @ x[t] + b + (A + B + C + P + F + S + N + K) @ h[t-1]) + O @ h[t-1] / 2",
    inputs="{x: D}",
    states="{h: H}",
    parameters="{V: [H, D], b: H, 'A, B, C, P, F, S, O, N, K, M': [H, H], d: H}",
    constants="{most: 0.3}",
    fixed="[M, d]",
    constrain="{V: nonnegative, b: norm(0.2), A: [mask(M), sign(d), bounded(-most, most)], B: [sign(d), norm(0.4)],"
    " C: [density(0.5, 3), dale(0.75), no_self, spectral_radius(0.8)], P: [bounded(0.1, 0.3)],"
    " F: [density(0.5), bounded(-0.25, 0.25), norm(0.3)], S: spectral_radius(0.9), O: orthogonal, N: [no_self],"
    " K: [fixed, spectral_radius(0.5)]}",
    init='{M: "uniform(-1, 1)", d: "uniform(-1, 1)", b: 1, F: "normal(1)"}',
)


def not_obeyed(spec: Spec, params: dict[str, np.ndarray]) -> list[str]:
    """parameter and constraint of each that does not hold exactly."""
    found = []
    for name, held in spec.constraints.items():
        for c in held:
            if not _holds(c.kind, c.args, params[name], params):
                found.append(f"{name} {c.to_text()}")
    return found


def _holds(kind, args, w, params):
    wide = np.asarray(w, np.float64)
    columns = wide.shape[-1]
    match kind:
        case "mask":
            return bool((wide[np.asarray(params[args[0]]) == 0] == 0).all())
        case "density":
            return all(np.count_nonzero(row) <= max(1, round(args[0] * columns)) for row in wide)
        case "sign" | "dale":
            d = params[args[0]] if kind == "sign" else [1] * round(args[0] * columns) + [-1] * columns
            return all(wide[i, j] * np.sign(d[j]) >= 0 for i in range(len(wide)) for j in range(columns))
        case "no_self":
            return all(wide[i, i] == 0 for i in range(columns))
        case "nonnegative":
            return bool((wide >= 0).all())
        case "bounded":
            return bool((wide >= args[0]).all() and (wide <= args[1]).all())
        case "norm":
            return all(sum(v * v for v in row) <= args[0] ** 2 * (1 + 1e-15) for row in np.atleast_2d(wide))
        case "spectral_radius":
            return max(abs(np.linalg.eigvals(wide))) <= args[0]
        case "orthogonal":
            unit = 2 * np.finfo(w.dtype).eps + 16 * columns * 2.0**-52
            return abs(wide.T @ wide - np.eye(columns)).max() <= unit
    raise ValueError(kind)
