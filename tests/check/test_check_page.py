"""Every property of `check` is explained in the manual."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"


def test_every_property_is_explained() -> None:
    from rnnspec.check import PROPERTIES

    text = PAGE.read_text(encoding="utf-8").lower()
    assert not [
        p.name for p in PROPERTIES if p.name.split(",")[0].lower() not in text and p.name not in ("schema", "compiles")
    ]
