"""How plugins are found: by the entry points that anybody's package uses, and imported only when asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sysperf import plugin
from sysperf.model.errors import UsageError


def install(folder: Path, name: str, module: str, source: str = "", kind: plugin.Kind = plugin.STACKS) -> None:
    """Install a package with one plugin, as pip leaves it."""
    info = folder / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{kind.group}]\n{name} = {module}\n")
    (folder / f"{module}.py").write_text(source)


@pytest.mark.parametrize("kind", plugin.KINDS, ids=lambda kind: kind.name)
def test_the_default_of_each_kind_is_installed(kind: plugin.Kind) -> None:
    """The wheel and a checkout name our own plugins, and each offers what its kind needs."""
    assert kind.default in [entry.name for entry in plugin.installed(kind)]
    assert all(callable(getattr(plugin.load(kind), name)) for name in kind.functions)


def test_a_third_partys_plugin_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module answers as ours do, and is of its own kind only."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "mine", "my_profiler", "def dump(host, pid): return 'mine'\nsample = dump\n")

    assert plugin.stack_taker("mine").dump(None, 1) == "mine"  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(UsageError, match="no traces plugin `mine`"):
        plugin.tracer("mine")


def test_a_plugin_without_its_kinds_functions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what it lacks."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "half", "my_half", "def owner(host, pid): return 0, 0\n", plugin.TRACES)

    with pytest.raises(UsageError, match="has no trace"):
        plugin.tracer("half")


def test_a_plugin_that_cannot_be_loaded_is_an_error_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such plugin, one whose import fails in any way, and two of one name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "broken", "my_broken", "import nothing_of_this_name\n")
    install(tmp_path, "raises", "my_raises", "1 / 0\n")
    install(tmp_path, "twice", "my_first")
    install(tmp_path, "twice", "my_second")

    reasons = {
        "absent": "no stacks plugin `absent`",
        "broken": "cannot be imported",
        "raises": "ZeroDivisionError",
        "twice": "several packages",
    }
    for name, reason in reasons.items():
        with pytest.raises(UsageError, match=reason):
            plugin.stack_taker(name)


def test_an_audit_imports_no_plugin() -> None:
    """Neither the command line nor the dashboard pays for them."""
    script = "import sys, sysperf.cli.audit, sysperf.cli.tui, sysperf.tui.app, sysperf.tui.profilers\nprint([n for n in sys.modules if n.startswith('sysperf_')])"
    assert subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True).stdout == "[]\n"
