"""Runs an implementation against a conformance pack, which may be somebody else's: its files are
read within bounds, and nothing of it is run.

    results = verify(Path("lstm_pack"), adapter)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy import ndarray as Array

from rnnspec.check.packs import adapters, runner
from rnnspec.check.packs.write import FORMAT
from rnnspec.check.tolerances import PACK
from rnnspec.errors import RnnspecError
from rnnspec.storage import archives, guarded

_TEXT, _ARRAYS = partial(guarded.text, most=runner.MOST), partial(archives.arrays, most=runner.MOST)


def verify(
    folder: Path,
    adapter: Callable[[Any], Any] | None = None,
    dtypes: Iterable[str] = tuple(PACK),
    require: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """The results of `runner.run` for each case and dtype.

    adapter: None for the kernels of rnnspec. require: kinds of values without which a case fails,
    of `runner.KINDS`; outputs always are. Raises RnnspecError for what is no pack, ValueError for
    another kind.
    """
    folder, require = Path(folder), runner.required(",".join(require))
    try:
        version = guarded.values(folder / "pack.json", runner.MOST)["rnnspec_pack"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.reason if isinstance(error, guarded.Refused) else error
        raise RnnspecError(f"'{folder}' is no conformance pack: {reason}. `rnnspec pack CELL` writes one.") from error
    if version != FORMAT:
        raise RnnspecError(f"'{folder}' is a pack of format {version}, and this rnnspec reads format {FORMAT}.")
    for dtype in dtypes:
        try:
            yield from runner.run(folder, adapter or own_kernel, dtype, _TEXT, _ARRAYS, require)
        except guarded.Refused as error:
            raise RnnspecError(f"'{folder}' is a damaged pack: {error}.") from error
        except Exception as error:  # those of an adapter are results: what is left comes from reading the files
            raise RnnspecError(f"'{folder}' is a damaged pack: {type(error).__name__}: {error}") from error


def own_kernel(case: Mapping[str, Any]) -> dict[str, Array]:
    """The adapter for the kernels of rnnspec: all values and gradients."""
    from rnnspec.engine.compile import compile
    from rnnspec.language.load import loads

    spec = loads(case["spec"])
    params, inputs, d_outputs, d_final = (adapters.part(case, g) for g in ("params", "inputs", "d_outputs", "d_final"))
    states = adapters.states_of(case)
    kernel = compile(spec, dtype=case["dtype"])
    run = kernel.forward(params, inputs, states, case.get("lengths"), steps=case["steps"], rows=case["rows"])
    back = kernel.backward(run, d_outputs, final=d_final)
    groups = {
        "outputs": run.outputs,
        "steps": run.states,
        "final": {n: run.final[n] for n in back.states},
        "gradients/params": back.params,
        "gradients/inputs": back.inputs,
        "gradients/states": back.states,
    }
    return {f"{group}/{n}": a for group, arrays in groups.items() for n, a in arrays.items()}
