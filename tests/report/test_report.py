"""How formats are chosen, and what choosing one costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sysperf.model.errors import UsageError
from sysperf.report.formats import FORMATS, render
from tests.report import reports

CODE = """
import sys
from tests.report import reports
from sysperf.report.formats import render
before = set(sys.modules)
render(reports.sick(), {format!r})
print(*sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("machine", reports.MACHINES)
def test_every_report_renders_in_every_format(machine: str, format: str) -> None:  # noqa: A002 - the option's name
    """Text that ends with a newline and can be written as UTF-8; a line a finding is none where nothing was found."""
    report = reports.MACHINES[machine]()
    text = render(report, format)

    assert text.endswith("\n") or (format == "concise" and not report.findings())
    assert text.encode() is not None


def test_an_unknown_format_is_a_usage_error() -> None:
    """The hint lists the formats there are."""
    with pytest.raises(UsageError) as caught:
        render(reports.perfect(), "pdf")

    assert "sarif" in caught.value.hint


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_imports_nothing_of_the_others(format: str) -> None:  # noqa: A002 - the option's name
    """The text costs no import of HTML, XML, JSON schema or Rich."""
    done = subprocess.run([sys.executable, "-c", CODE.format(format=format)], capture_output=True, text=True, check=True, timeout=300)

    modules = set(done.stdout.split())
    allowed = {f"as_{format}"} | {"sarif": {"as_json", "as_markdown"}, "html": {"frame"}}.get(format, set())
    own = {name.rpartition(".")[2] for name in modules if name.startswith("sysperf.report.")} - {
        "words",
        "formats",
        "machine",
        "machine_facts",
        "terminal",
    }
    assert own == allowed
    assert not {"rich", "textwrap", "xml", "jinja2"} & modules
