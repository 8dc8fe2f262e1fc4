"""Keeps emitted texts on disk under the digest of what they were made from, so that a known one is
read, not made again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid

from rnnspec.storage.cache import cache_folder


def recall(name: str, key: str) -> str | None:
    """The text that was remembered under this name and key; None if there is none or it is
    damaged."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        content = (folder / f"text_{name}_{key[:32]}.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    first, _, text = content.partition("\n")
    return text if first == _seal(key, text) else None


def remember(name: str, key: str, text: str) -> None:
    """Keeps a text. A folder that can't be written costs speed only."""
    folder = cache_folder()
    if folder is None:
        return
    temporary = folder / f"{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_text(f"{_seal(key, text)}\n{text}", encoding="utf-8")
        os.replace(temporary, folder / f"text_{name}_{key[:32]}.py")
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _seal(key: str, text: str) -> str:
    return f"# {hashlib.sha256(f'{key} {text}'.encode()).hexdigest()}"
