"""Versions of packages, as they are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def version_of(package: str) -> str | None:
    """The version of a package, None where it is not installed (rnnspec itself, run from its
    source)."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
