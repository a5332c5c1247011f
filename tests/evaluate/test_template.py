"""What a rule's message makes of a value."""

import pytest

from sysperf.evaluate.template import FILTERS


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (12_345, "12,345"), (2.0, "2"), (0.1234, "0.123"), (12.36, "12.4"), (999.4, "999"), (999.6, "1,000"), (1_690.4, "1,690")],
)
def test_a_number_for_readers_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert FILTERS["num"](value) == text
