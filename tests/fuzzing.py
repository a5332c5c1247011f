"""How fuzzers run: a fixed sample with every test run, as many examples as wanted with `make fuzz`.

    @fuzz
    @given(st.binary())
    def test_no_input_breaks_it(raw: bytes) -> None: ...

SYSPERF_FUZZ_EXAMPLES is the number of examples; without it there are 25, the same in every run.
"""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("SYSPERF_FUZZ_EXAMPLES", "0"))
EVERYDAY_EXAMPLES = 25

Test = TypeVar("Test", bound=Callable[..., None])


def fuzz(test: Test) -> Test:
    """Mark a test with `@given` as a fuzzer."""
    limits = settings(
        max_examples=EXAMPLES or EVERYDAY_EXAMPLES,
        derandomize=not EXAMPLES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
    marked: Test = pytest.mark.fuzz(limits(test))
    return marked
