"""JSON as the standard has it. In: plain data. Out: text.

JSON has no NaN and no infinity, which Python writes all the same: here they are the texts "nan",
"inf" and "-inf".
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any


def json_text(value: Any, indent: int | None = 1) -> str:
    """The value as JSON. NumPy's numbers are numbers."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _plain(v) for key, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case bool() | int() | str() | None:
            return value
        case Real():  # NumPy's numbers, and fractions
            return int(value) if isinstance(value, Integral) else _number(float(value))
    if hasattr(value, "tolist"):  # arrays, and NumPy's True
        return _plain(value.tolist())
    raise TypeError(f"not plain data: {value!r}")


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks, as JSON's own escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    left = error.object[error.start : error.end]
    return json.dumps(left)[1:-1], error.end


ESCAPED = "rnnspec.json"  # an error handler of streams to which JSON is written: it stays the same JSON
codecs.register_error(ESCAPED, _escaped)
