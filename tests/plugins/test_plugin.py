"""How profilers are found: by the entry points that anybody's package uses, and only when asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sysperf import plugin
from sysperf.model.errors import UsageError


def other(folder: Path, name: str, module: str, source: str = "") -> None:
    """Install a package with one profiler, as pip leaves it."""
    info = folder / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[sysperf.profilers]\n{name} = {module}\n")
    (folder / f"{module}.py").write_text(source)


def test_ours_are_installed() -> None:
    """The wheel and a checkout name both."""
    assert {"pyspy", "torch"} <= set(plugin.names())
    assert callable(plugin.stack_taker().dump)
    assert callable(plugin.tracer().trace)


def test_a_third_partys_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module answers as ours do."""
    monkeypatch.syspath_prepend(str(tmp_path))
    other(tmp_path, "mine", "my_profiler", "def dump(host, pid): return 'mine'\nsample = dump\n")

    assert plugin.stack_taker("mine").dump(None, 1) == "mine"  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(UsageError, match="no owner and no trace"):
        plugin.tracer("mine")


def test_what_cannot_be_loaded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such profiler, one that fails, and two of one name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    other(tmp_path, "broken", "my_broken", "import nothing_of_this_name\n")
    other(tmp_path, "twice", "my_first")
    other(tmp_path, "twice", "my_second")

    for name, why in (("absent", "no profiler `absent`"), ("broken", "cannot be imported"), ("twice", "several packages")):
        with pytest.raises(UsageError, match=why):
            plugin.stack_taker(name)


def test_an_audit_imports_no_plugin() -> None:
    """Neither the command line nor the dashboard pays for them."""
    script = "import sys, sysperf.cli.audit, sysperf.cli.tui, sysperf.tui.app, sysperf.tui.profilers\nprint([n for n in sys.modules if n.startswith('sysperf_')])"
    assert subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True).stdout == "[]\n"
