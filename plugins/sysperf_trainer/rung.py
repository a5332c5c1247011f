"""A rung: one piece of advice that can be switched on, and what is said of it."""

from __future__ import annotations

from typing import NamedTuple

TEXT, VISION = "text", "vision"
WORKLOADS = (TEXT, VISION)
FALLS, RISES = "falls", "rises"

LADDER = "ladder"
"""Climbed from the bottom to the top."""
VARIANT = "variant"
"""Another form of a rung of the ladder, tried in its place."""
MEMORY = "memory"
"""Buys memory and costs time: worth it where it lets a larger batch fit."""
DOUBTFUL = "doubtful"
"""Advice of the articles that does nothing today, or harms: tried at the bottom and at the top, never climbed."""

EXACT = 0.0
"""The same operations in the same order: the losses are equal bit for bit, on a CPU."""
ROUNDING = 1e-3
"""The same mathematics in another order of additions, over the first twenty steps."""
HALF = 4e-2
"""Products of 8 bits of mantissa. Seen over the first twenty steps: 1e-5 for text; 2.2e-2 for small batches of images, where batch norm
divides by the deviation of few values."""


class Sign(NamedTuple):
    """How a rung's mechanism shows: a figure that falls or rises, where the program computes on this kind of device."""

    figure: str
    change: str
    device: str = "any"


class Launch(NamedTuple):
    """How a rung changes the start of the program; `launch.py` joins those of several rungs."""

    wrap_rules: tuple[str, ...] = ()
    """What `sysperf wrap --only` applies."""
    wrap_options: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    prefix: tuple[str, ...] = ()
    """A command in front of the interpreter."""


class Rung(NamedTuple):
    """One piece of advice that can be switched on."""

    id: str
    title: str
    rules: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    workloads: tuple[str, ...] = WORKLOADS
    needs: tuple[str, ...] = ()
    """Words of `needs.py`, such as ``cuda``: where one is absent the rung is skipped, with the reason."""
    role: str = LADDER
    instead_of: str = ""
    """Of a variant: the rung whose place it takes. Both at once are refused."""
    requires: tuple[str, ...] = ()
    """Rungs without which it would change nothing."""
    excludes: tuple[str, ...] = ()
    """Rungs beside which it does not work."""
    loss_bound: float = EXACT
    """By how much the mean of the first twenty losses may differ from the run without it, as a share."""
    signs: tuple[Sign, ...] = ()
    predicted_by: str = ""
    launch: Launch | None = None
    """How the program is started with it; None: it changes lines of the program instead."""
