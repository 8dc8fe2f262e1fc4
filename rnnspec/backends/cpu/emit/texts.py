"""The texts of a cell's kernels for this machine's CPU, made once and kept on disk.

A text depends on the spec, on the generator (our own sources and SymPy's version), and on the
target. Texts are kept under the digest of all three, so that a process that finds one never imports
SymPy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from rnnspec.language.load import digest
from rnnspec.language.spec import Spec
from rnnspec.lowering.pipeline import MODES, Keyed, made_together, programs
from rnnspec.storage.locks import making


def texts(spec: Spec, dtype: str) -> Mapping[str, str]:
    """The text of each kernel of a cell for this machine's CPU: {"forward": ..., "backward": ...,
    "infer": ...}."""
    with making:
        return _texts(Keyed(spec, digest(spec)), dtype, MODES)


def text_of(spec: Spec, dtype: str, mode: str) -> str:
    """The text of the kernel of one mode."""
    with making:
        return _texts(Keyed(spec, digest(spec)), dtype, made_together(mode))[mode]


@lru_cache(maxsize=256)
def _texts(keyed: Keyed, dtype: str, modes: tuple[str, ...]) -> Mapping[str, str]:
    from rnnspec.backends.cpu.machine import host
    from rnnspec.backends.cpu.processor import VECTORS
    from rnnspec.storage.cache import uncollected
    from rnnspec.storage.texts import recall, remember

    lanes = host().lanes[dtype]
    key = hashlib.sha256(f"{keyed.digest} {generator_digest()} {dtype} {lanes}".encode()).hexdigest()
    found = {mode: recall(f"{keyed.spec.name}_{mode}", key) for mode in modes}
    if all(found.values()):
        return {mode: text for mode, text in found.items() if text}
    with uncollected():
        from rnnspec.backends.cpu.emit.emission import Target
        from rnnspec.backends.cpu.emit.kernel import emit

        target = Target(dtype, lanes, VECTORS)
        made = programs(keyed.spec, modes, fused=True)
        new = {mode: emit(program, target, keyed.digest) for mode, program in made.items()}
    for mode, text in new.items():
        remember(f"{keyed.spec.name}_{mode}", key, text)
    return new


@lru_cache(maxsize=1)
def generator_digest() -> str:
    """Digest of everything a text is made by."""
    root = Path(__file__).resolve().parents[3]
    content = hashlib.sha256(f"sympy {version('sympy')}".encode())
    folders = "language", "symbolic", "lowering", "backends/cpu"
    for path in (
        *(p for folder in folders for p in sorted((root / folder).rglob("*.py"))),
        root / "backends/polynomials.py",
        root / "backends/primitives.py",
    ):
        content.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return content.hexdigest()
