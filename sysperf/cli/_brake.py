"""Limits of marking nodes, which `fleet mark` and `check --drain` share."""

from __future__ import annotations

import argparse
import re

from sysperf.model.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at-most",
        default="2%",
        metavar="N",
        help="nodes of a partition that may be marked within 24 hours: a number, or a share (default: 2%%)",
    )
    parser.add_argument("--keep", type=int, default=1, metavar="N", help="usable nodes that a drain leaves in each partition (default: 1)")


def most(text: str) -> int | float:
    """``10`` or ``2%``. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)%|([1-9][0-9]{0,5})", text)
    if not match or (match[1] and not 0 < float(match[1]) <= 100):
        raise UsageError(f"--at-most {text[:40]}", "a number of nodes, or a share such as 2%")
    return float(match[1]) / 100 if match[1] else int(match[2])
