"""The weights of a layer from an `.npz` file, which others may have written.

In: a path. Out: arrays by name, not yet compared with any layer's.
"""

from __future__ import annotations

import os

from numpy import ndarray as Array

from rnnspec.errors import visible
from rnnspec.storage import archives
from rnnspec.storage.guarded import Refused


def read_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a file that a layer's `save` wrote. Raises ValueError for another file, and for
    that of a training run says what reads it; OSError where there is none."""
    try:
        weights = archives.arrays(path)
    except FileNotFoundError:
        raise
    except (OSError, Refused) as error:
        reason = error.reason if isinstance(error, Refused) else str(error)
        raise ValueError(
            visible(f"{os.fspath(path)} is no .npz file of weights, or it is damaged: {reason}.")
        ) from None
    if "meta" in weights and any(name.startswith("model/") for name in weights):
        folder = os.path.dirname(os.fspath(path)) or "."
        raise ValueError(
            visible(
                f"{os.fspath(path)} is of a run of rnnspec train, and has more than a layer's weights:"
                f" rnnspec.train.load_run({folder!r}).layer is its layer; with its .state_dict() another one can"
                " load_state_dict."
            )
        )
    return weights
