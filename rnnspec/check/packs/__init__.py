"""Conformance packs: cases with values, for implementations in any language."""
