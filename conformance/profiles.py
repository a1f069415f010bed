"""How long a run may take, and its budget of false alarms."""

from __future__ import annotations

from dataclasses import dataclass

ALPHA_OF_A_RUN = 1e-6
ALPHA_OF_A_CHECK = 1e-8
"""A hundred statistical checks fit into a run; the sum is checked at its end."""
POWER = 0.99


@dataclass(frozen=True)
class Profile:
    """examples: drawn cases a check. trials: most cases a statistical check. seconds: most time it may buy
    at the declared cost. shrink_seconds: most time spent on making a failing case smaller. timeout: seconds
    after which a check counts as hung. repeatable: same seed unless
    one is given."""

    name: str
    examples: int
    trials: int
    seconds: float
    shrink_seconds: float
    timeout: float
    repeatable: bool = True


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", examples=25, trials=4_000, seconds=0.4, shrink_seconds=5, timeout=120),
        Profile("ci", examples=150, trials=40_000, seconds=8.0, shrink_seconds=20, timeout=180),
        Profile(
            "deep", examples=2_000, trials=1_000_000, seconds=180.0, shrink_seconds=120, timeout=1_800, repeatable=False
        ),
    )
}
