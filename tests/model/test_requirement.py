"""Requirements of Python distributions: what wheels really say, and what nobody should write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.model.requirement import canonical, fits, holds, parse_requirement

LINUX = {"platform_system": "Linux", "sys_platform": "linux", "python_version": "3.11", "platform_machine": "x86_64", "extra": ""}


def test_the_forms_that_wheels_write() -> None:
    """Extras, brackets around the versions and markers are all told apart."""
    toolkit = parse_requirement('cuda-toolkit[cublas,nvRTC]==13.0.2; platform_system == "Linux"')
    vision = parse_requirement("torch (>=2.14.0)")

    assert (toolkit.name, toolkit.spec, toolkit.extras, toolkit.marker) == (
        "cuda-toolkit",
        "==13.0.2",
        ("cublas", "nvrtc"),
        'platform_system == "Linux"',
    )
    assert (vision.name, vision.spec, vision.marker) == ("torch", ">=2.14.0", "")
    assert parse_requirement("nvidia_cuDNN.cu13").name == "nvidia-cudnn-cu13"


@pytest.mark.parametrize("text", ["", "==1.0", "torch @ https://example.org/torch.whl", "torch" + "x" * 2000])
def test_what_is_no_requirement_of_versions_is_refused(text: str) -> None:
    """A link, an empty line and an endless one raise ValueError."""
    with pytest.raises(ValueError, match="not a requirement"):
        parse_requirement(text)


@pytest.mark.parametrize(
    ("version", "spec", "answer"),
    [
        ("9.20.0.48", "==9.20.0.48", True),
        ("9.15.1.9", "==9.10.2.21", False),
        ("13.1.0.3", "==13.1.0.3.*", True),
        ("13.1.0.4", "==13.1.0.3.*", False),
        ("3.9.2", "~=3.9.0", True),
        ("3.10.0", "~=3.9.0", False),
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.0+cpu", "==2.13.0+cu130", False),
        ("2.13.0", ">=2.14.0", False),
        ("2.13.0", "!=8.3.*,>=2.0", True),
        ("2.13.0", "", True),
        ("", "==2.13.0", None),
        ("2.13.0", "about 2", None),
    ],
)
def test_versions_against_specifiers(version: str, spec: str, answer: Any) -> None:
    """The local part counts only when the requirement names one; what cannot be read is unknown."""
    assert fits(version, spec) is answer


@pytest.mark.parametrize(
    ("marker", "answer"),
    [
        ("", True),
        ('platform_system == "Linux" and platform_machine == "x86_64"', True),
        ("(sys_platform == 'linux' or sys_platform == 'win32') and extra == 'all'", False),
        ('python_version < "3.9"', False),
        ('python_version >= "3.9"', True),
        ("platform_machine in 'x86_64 AMD64'", True),
        ("platform_machine not in 'x86_64 AMD64'", False),
        ('platform_release == "6.1"', None),
        ("((", None),
        ("python_version", None),
        ("extra == 'a' extra", None),
    ],
)
def test_markers(marker: str, answer: Any) -> None:
    """A marker that asks for what nobody told us is unknown, never true."""
    assert holds(marker, LINUX) is answer


@settings(max_examples=25)
@given(st.text(max_size=200))
def test_any_text_is_a_requirement_or_a_value_error(text: str) -> None:
    """No text makes the parsers raise anything else, or hang."""
    try:
        parsed = parse_requirement(text)
    except ValueError:
        parsed = None
    assert parsed is None or parsed.name == canonical(parsed.name)
    assert fits("1.2.3", text) in (True, False, None)
    assert holds(text, LINUX) in (True, False, None)


def test_deep_brackets_end() -> None:
    """A marker nested a thousand deep is unknown and costs nothing."""
    assert holds("(" * 900 + "'a' == 'a'", LINUX) is None
