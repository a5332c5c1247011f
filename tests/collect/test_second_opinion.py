"""py-cpuinfo and psutil under --deep: other voices on the processor, never on the fast path."""

from __future__ import annotations

import pytest

from sysperf.collect.cpu import collect
from sysperf.collect.cpu.second_opinion import second_opinion
from sysperf.host import Host
from tests.conftest import make_machine


def test_it_is_asked_only_deeply() -> None:
    """A plain audit does not spend its second."""
    host = Host()

    assert collect(host).second_opinion is None
    assert not any(source.path.startswith("run:") for source in host.sources)


def test_the_real_py_cpuinfo_answers() -> None:
    """On this machine it names a maker and features, and agrees with the kernel about the model."""
    facts = collect(Host(deep=True))
    opinion = facts.second_opinion

    assert opinion is not None
    assert opinion.flags
    assert (opinion.brand or "").split() == (facts.model_name or "").split()
    assert (opinion.cpus, opinion.cores) == (len(facts.online), facts.cores), "psutil counts as we do"


@pytest.mark.parametrize("output", ["", "{", "[]", "null", '{"flags": 5, "hz_actual": "x", "brand_raw": 7}', '{"hz_actual": []}'])
def test_a_strange_answer_is_unknown(output: str) -> None:
    """Whatever a capture holds in its place, nothing breaks."""
    opinion = second_opinion(make_machine(calls={"run:cpuinfo": output}, deep=True))

    assert opinion is None or (opinion.brand, opinion.actual_mhz, opinion.flags, opinion.cpus) == (None, None, None, None)
