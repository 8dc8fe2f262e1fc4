"""Hypothesis strategies over specs; needs `pip install 'rnnspec[test]'`.

    from hypothesis import given
    from rnnspec.check.random.strategies import invalid_specs, specs

    @given(specs())
    def test_my_engine_takes_it(text): ...

`specs()` are YAML texts of valid cells, over the whole language. `invalid_specs()` are such texts
with one fault each: pairs of the fault's name and the text, for which nothing but an error that
says where it is will do.
"""

from __future__ import annotations

from hypothesis import strategies as st

from rnnspec.check.random.broken import broken_spec
from rnnspec.check.random.specs import random_spec


def specs(name: str = "random") -> st.SearchStrategy[str]:
    """YAML texts of valid cells."""
    return st.randoms(use_true_random=False).map(lambda rng: random_spec(rng, name))


def invalid_specs(name: str = "random") -> st.SearchStrategy[tuple[str, str]]:
    """Pairs (what is wrong, YAML text)."""
    return st.randoms(use_true_random=False).map(lambda rng: broken_spec(rng, name))
