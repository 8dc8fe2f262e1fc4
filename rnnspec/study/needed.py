"""Packages that only studies need, imported when they are used.

In: a name. Out: the module, or a StudyError that says how it is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rnnspec.study.errors import StudyError

INSTALLED_BY = {
    "optuna": "pip install 'rnnspec[study]'",
    "sklearn": "pip install scikit-learn",
    "scipy": "pip install scipy",
    "ray": "pip install ray",
    "distributed": "pip install distributed",
}


def needed(name: str, what: str) -> Any:
    """The module of that name. what: which part of a study needs it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise StudyError(f"{what} needs {package}: {INSTALLED_BY[package]} ({error})") from None
