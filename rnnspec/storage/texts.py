"""Keeps emitted texts on disk under the digest of what they were made from: a known one is read,
not made again."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from rnnspec.storage.atomic import write
from rnnspec.storage.cache import cache_folder


def recall(name: str, key: str) -> str | None:
    """The text that was remembered under this name and key; None if there is none or it is
    damaged."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        content = _path(folder, name, key).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    first, _, text = content.partition("\n")
    return text if first == _seal(key, text) else None


def remember(name: str, key: str, text: str) -> None:
    """Keeps a text. A folder that can't be written costs speed only."""
    folder = cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        write(_path(folder, name, key), f"{_seal(key, text)}\n{text}".encode(), durable=False)


def _path(folder: Path, name: str, key: str) -> Path:
    return folder / f"text_{name}_{key[:32]}.py"


def _seal(key: str, text: str) -> str:
    return f"# {hashlib.sha256(f'{key} {text}'.encode()).hexdigest()}"
