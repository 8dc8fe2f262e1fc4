"""Runs an implementation against the conformance pack in this folder: python runner.py
my_module:my_adapter [--dtype float32] [--require gradients,steps]

Needs NumPy only. An adapter is a function of one case, a dict (README.md has its keys), that gives
a dict: "outputs/..." for every output, and of "steps/...", "final/..." and "gradients/..." what it
can, or what is required. It raises NotImplementedError("why") for a case that it can't try. Exit
status: 0 all that was tried agrees, 1 something differs, lacks what is required, or nothing was
tried, 2 there is nothing to run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from pathlib import Path

import numpy as np

LOOSEST = 0.01  # what allows more says nothing
MOST = 2**26  # bytes of a file; what is larger is no pack
KINDS = ("steps", "final", "gradients", "gradients/params", "gradients/inputs", "gradients/states")
TRACED = 12  # lines of a traceback that are shown


def text_of(path):
    """The text of a file of the pack."""
    if not path.is_file() or path.stat().st_size > MOST:
        raise ValueError(f"{path.name} is no file, or too large")
    return path.read_text(encoding="utf-8")


def arrays_of(path):
    """The arrays of a case, by name."""
    if not path.is_file() or path.stat().st_size > MOST:
        raise ValueError(f"{path.name} is no file, or too large")
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def tolerance_of(pack, dtype):
    """The largest difference that the pack allows: a number from 0 to LOOSEST."""
    tolerance = pack["tolerances"][dtype]["relative"]
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= LOOSEST:
        raise ValueError(f"its tolerance for {dtype} is {tolerance!r}, and not a number from 0 to {LOOSEST}")
    return float(tolerance)


def read_cases(folder, dtype, text=text_of, arrays=arrays_of):
    """(name, given, expected) of every case; given in the dtype, expected in float64.

    text, arrays: what reads a file.
    """
    pack = json.loads(text(Path(folder) / "pack.json"))
    spec = text(Path(folder) / "spec.yaml")
    names = [case["name"] for case in pack["cases"]]
    if not names or len(set(names)) < len(names):
        raise ValueError("it has no cases, or two of one name")
    for case in pack["cases"]:
        if not case["name"] or Path(case["name"]).name != case["name"]:
            raise ValueError(f"the case {case['name']!r} is not in the folder 'cases'")
        found = arrays(Path(folder) / "cases" / f"{case['name']}.npz")
        if other := [key for key, array in found.items() if array.dtype.kind not in "iuf"]:
            raise ValueError(f"the case {case['name']!r} has values that are no numbers: {other[0]!r}")
        expected = {k.removeprefix("expected/"): a for k, a in found.items() if k.startswith("expected/")}
        expected = {k: np.asarray(a, np.float64) for k, a in expected.items()}
        if not any(k.startswith("outputs/") for k in expected) or not all(
            np.isfinite(a).all() for a in expected.values()
        ):
            raise ValueError(
                f"the case {case['name']!r} expects no outputs, or what is no number"
            )  # with which anything would agree
        given = {
            k.removeprefix("given/"): a if a.dtype.kind in "iu" else a.astype(dtype)
            for k, a in found.items()
            if k.startswith("given/")
        }
        yield (
            case["name"],
            {
                **given,
                "spec": spec,
                "dtype": dtype,
                "steps": case["steps"],
                "rows": case["rows"],
                "sizes": case["sizes"],
                "shapes": {k: a.shape for k, a in expected.items()},
            },
            expected,
        )


def compare(found, expected, tolerance):
    """What is wrong, and the largest difference: relative to the largest expected value, for
    gradients to the largest gradient."""
    wrong = [f"{k} is missing" for k in expected if k.startswith("outputs/") and k not in found] + [
        f"{k} is not known" for k in found if k not in expected
    ]
    scales = {
        kind: max(abs(a).max(initial=0) for k, a in expected.items() if k.startswith("gradients/") == kind)
        for kind in (False, True)
    }
    worst = 0.0
    for key in [k for k in expected if k in found]:
        array, right, scale = np.asarray(found[key]), expected[key], scales[key.startswith("gradients/")]
        if array.dtype.kind != "f":  # a complex number would lose its imaginary part
            wrong.append(f"{key} has the dtype {array.dtype}, not a floating-point one")
        elif array.shape != right.shape:
            wrong.append(f"{key} has the shape {array.shape}, not {right.shape}")
        elif array.size:
            gap = np.where(np.isfinite(array), abs(array - right), np.inf) / (scale or 1.0)
            at, worst = np.unravel_index(gap.argmax(), gap.shape), max(worst, gap.max())
            if gap.max() > tolerance:
                wrong.append(
                    f"{key} is {gap.max():.1e} off ({tolerance:.0e} allowed): {array[at]:.17g} at"
                    f" {[int(i) for i in at]}, expected {right[at]:.17g}"
                )
    return wrong, float(worst)


def group(key):
    """What an array tells: gradients of parameters may come by the cell's names or packed as a
    library has them."""
    first, *rest = key.split("/")
    return first if first != "gradients" else f"gradients/{rest[0] if rest[0] in ('inputs', 'states') else 'params'}"


def required(text):
    """The kinds of values of a text, "gradients,steps". Raises ValueError for others."""
    kinds = [kind.strip() for kind in text.split(",") if kind.strip()]
    if other := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"{other[0]!r} can't be required: choose of {', '.join(KINDS)} (outputs always are)")
    return kinds


def lacking(absent, require):
    """Of what was not given, what is required: all of gradients, or one kind of them."""
    return [kind for kind in absent if kind in require or kind.split("/")[0] in require]


def untried(results):
    """What the summary says of values that nothing was said about: by kind, in how many cases."""
    tried = [r for r in results if r["status"] != "not tried"]
    counts = {kind: sum(kind in r["absent"] for r in tried) for kind in KINDS}
    told = [f"{kind} in {'any case' if n == len(tried) else f'{n} of them'}" for kind, n in counts.items() if n]
    kinds = ",".join(dict.fromkeys(kind.split("/")[0] for kind, n in counts.items() if n))
    return f"not given, so not tried: {'; '.join(told)} (--require {kinds} makes that a failure)" if told else ""


def trace(error):
    """The last lines of an adapter's traceback, empty where the message says all: the error has no
    frame of the adapter's, or is one that `adapters.py` tells whole."""
    inner = error.__traceback__.tb_next
    if inner is None or type(error).__name__ == "Told":
        return ""
    lines = "".join(traceback.TracebackException(type(error), error, inner).format()).splitlines()
    return "\n".join(lines if len(lines) <= TRACED else ["...", *lines[-TRACED:]])


def reasons(result, told):
    """The lines of what is wrong in a result. Of an adapter that fails alike in many cases they are
    given once: told, a dict, has where, and gets what is new."""
    lines = [line for text in (*result["wrong"], result["traceback"]) for line in text.splitlines()]
    where = f"{result['case']} ({result['dtype']})"
    first = told.setdefault(tuple(lines), where)
    return lines if first == where or len(lines) < 2 or result["largest"] is not None else [f"the same as in {first}"]


def run(folder, adapter, dtype, text=text_of, arrays=arrays_of, require=()):
    """A dict for every case: "status" ok, FAILED or not tried, "largest" difference, "wrong": what
    differs, "absent": what was not given, "traceback": the last lines, of an adapter that raised.

    text, arrays: what reads a file. require: kinds of values without which a case fails.
    """
    tolerance = tolerance_of(json.loads(text(Path(folder) / "pack.json")), dtype)
    for name, given, expected in read_cases(folder, dtype, text, arrays):
        result = {"case": name, "dtype": dtype, "status": "ok", "largest": None, "wrong": [], "absent": []}
        result["traceback"] = ""
        try:
            found = dict(adapter(given))
            result["wrong"], result["largest"] = compare(found, expected, tolerance)
            result["absent"] = sorted({group(k) for k in expected} - {group(k) for k in found})
            result["wrong"] += [f"{kind} is required and not given" for kind in lacking(result["absent"], require)]
            result["status"] = "FAILED" if result["wrong"] else "ok"
        except NotImplementedError as reason:
            result.update(status="not tried", wrong=[str(reason)])
        except (Exception, SystemExit) as error:  # an adapter's error is a result like any other
            said = "".join(traceback.format_exception_only(error)).strip()
            told = str(error) if type(error).__name__ == "Told" else f"the adapter raised {said}"
            result.update(status="FAILED", wrong=[told], traceback=trace(error))
        yield result


def visible(text):
    """The text without what would control a terminal: names in a pack are somebody else's."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def find_adapter(text):
    """The function that module:function names, the module looked for in the current folder
    first."""
    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", help="module:function")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--require", default="", metavar="KIND,...", help=f"of {', '.join(KINDS)}")
    args, results = parser.parse_args(), []
    told: dict = {}
    try:
        require = required(args.require)
    except ValueError as error:
        parser.error(str(error))
    try:
        adapter = find_adapter(args.adapter)
    except (Exception, SystemExit) as error:  # importing runs the module's own code
        parser.error(f"{args.adapter} can't be loaded: {type(error).__name__}: {error}")
    try:
        for result in run(Path(__file__).parent, adapter, args.dtype, require=require):
            results.append(result)
            largest = "" if result["largest"] is None else f"{result['largest']:.1e}"
            line = f"{result['status']:<10}{result['case']:<16}{largest}".rstrip()
            print(visible("\n          ".join([line, *reasons(result, told)])))
    except Exception as error:  # those of an adapter are results
        parser.error(visible(f"this pack is damaged: {type(error).__name__}: {error}"))
    if note := untried(results):
        print(note)
    found = [result["status"] for result in results]
    sys.exit(0 if "ok" in found and "FAILED" not in found else 1)
