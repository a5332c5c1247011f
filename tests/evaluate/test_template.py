"""What a rule's message makes of a value."""

import pytest

from sysperf.evaluate.scope import Scope
from sysperf.evaluate.template import FILTERS, compile_template

from .conftest import SCHEMA, Box


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (12_345, "12,345"), (2.0, "2"), (0.1234, "0.123"), (12.36, "12.4"), (999.4, "999"), (999.6, "1,000"), (1_690.4, "1,690")],
)
def test_a_number_for_readers_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert FILTERS["num"](value) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{box.swappiness} kernels, {box.mode} of them small; {box.share|pct} is Python.", "30 % is Python."),
        ("It runs {box.share|pct} of the time; {box.swappiness} kernels.", "It runs 30 % of the time."),
        ("{box.swappiness} thread(s); as always; {box.share|pct}.", "As always; 30 %."),
        ("{box.swappiness} of {box.share|pct}; {box.share|pct}.", "? of 30 %; 30 %."),
        ("{box.swappiness} kernels; {box.mode}.", "? kernels; ?."),
        ("Nothing to fill in; at all.", "Nothing to fill in; at all."),
    ],
)
def test_a_part_of_which_nothing_is_known_is_left_out(text: str, said: str) -> None:
    """Where something else is known: a reader learns nothing from `? operators a step`."""
    assert compile_template(text, SCHEMA).sentence(Scope({"box": Box(share=0.3)})) == said
