"""DSA: the same dynamics in other coordinates are near, other dynamics are not."""

from __future__ import annotations

import numpy as np
import pytest

from rnnspec.dynamics import compare
from rnnspec.errors import RnnspecError, ShapeError

RNG = np.random.default_rng(11)


def trajectories(matrix: np.ndarray, seed: int, steps: int = 80) -> np.ndarray:
    now, found = np.random.default_rng(seed).normal(size=(30, len(matrix))), []
    for _ in range(steps):
        found.append(now)
        now = now @ matrix.T
    return np.stack(found)


def turning(*angles: float) -> np.ndarray:
    found = np.zeros((2 * len(angles), 2 * len(angles)))
    for i, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        found[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
    return found


def test_a_rotation_of_the_same_trajectories_is_no_distance():
    """Singular vectors do not turn with the data: the two maps are the same but for signs."""
    a = trajectories(0.98 * turning(0.3, 1.1), 1)
    b = a @ np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    found = compare(a, b, delays=3, rank=4)
    assert found.distance < 1e-5 and found.explained == pytest.approx((1, 1)) and found.fit == pytest.approx((1, 1))
    assert np.allclose(found.rotation @ found.rotation.T, np.eye(4))


def test_other_starts_of_the_same_system_are_near_and_another_system_is_far():
    a, other = turning(0.3, 1.1), turning(0.9, 2.0)
    mixed = RNG.normal(size=(4, 4))
    same = compare(trajectories(a, 1), trajectories(a, 2) @ mixed, delays=3, rank=4)
    far = compare(trajectories(a, 1), trajectories(other, 2), delays=3, rank=4)
    assert same.distance < 0.1 and far.distance > 4 * same.distance
    assert sorted(np.abs(np.linalg.eigvals(same.a))) == pytest.approx([1] * 4)
    back = compare(trajectories(other, 2), trajectories(a, 1), delays=3, rank=4)
    assert back.distance == pytest.approx(far.distance, abs=1e-4)


def test_the_distance_of_two_rotations_of_a_plane_is_known():
    """cos of it is <R(p), C R(q) C'> / 2 = cos(p - q), or cos(p + q) of a reflection."""
    found = compare(trajectories(turning(0.4), 3), trajectories(turning(-1.0), 4), delays=1, rank=2)
    plain = [found.a / np.linalg.norm(found.a), found.b / np.linalg.norm(found.b)]
    assert found.relative == pytest.approx(2 * np.sin(found.distance / 2))
    best = max(
        np.sum(plain[0] * (c @ plain[1] @ c.T))
        for angle in np.linspace(0, np.pi, 400)
        for c in (turning(angle), turning(angle) @ np.diag([1, -1]))
    )
    assert np.cos(found.distance) == pytest.approx(best, abs=1e-4)


def test_what_is_refused():
    a = trajectories(turning(0.3), 1)
    for bad, more, why in (
        (a[:, 0], {}, "are \\[T, B, n\\]"),
        (a[:5], {"delays": 9}, "do not fit a"),
        (a, {"rank": 4, "delays": 4}, "span 2 delay coordinates"),
    ):
        with pytest.raises(ShapeError, match=why):
            compare(bad, a, **more)
    with pytest.raises(RnnspecError, match="of b are not finite"):
        compare(a, np.full_like(a, np.nan), rank=2, delays=2)
    with pytest.raises(ShapeError, match="2 starts"):
        compare(a, a, starts=1)
