"""Keeps emitted texts on disk under the digest of what they were made from: a known one is read,
not made again."""

from __future__ import annotations

import hashlib

from rnnspec.storage.cache import keep, kept


def recall(name: str, key: str) -> str | None:
    """The text that was remembered under this name and key; None if there is none or it is
    damaged."""
    content = kept(_file(name, key), lambda data: _text(data, key) is not None)
    return None if content is None else _text(content, key)


def remember(name: str, key: str, text: str) -> None:
    """Keeps a text. A folder that can't be written costs speed only."""
    keep(_file(name, key), f"{_seal(key, text)}\n{text}".encode())


def _file(name: str, key: str) -> str:
    return f"text_{name}_{key[:32]}.py"


def _text(content: bytes, key: str) -> str | None:
    first, _, text = content.decode("utf-8", "replace").partition("\n")
    return text if first == _seal(key, text) else None


def _seal(key: str, text: str) -> str:
    return f"# {hashlib.sha256(f'{key} {text}'.encode()).hexdigest()}"
