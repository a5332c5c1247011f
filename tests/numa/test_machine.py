"""The machines themselves: what a test can rely on when it boots one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.numa import machine
from tests.numa.machine import Machine

pytestmark = [pytest.mark.numa, pytest.mark.timeout(300)]


def test_output_files_and_exit_code_come_back() -> None:
    result = Machine().run("import sys; open('/out/note', 'w').write('left'); print('said'); print('[1]'); sys.exit(3)")
    assert (result.rc, result.output, result.json, result.files) == (3, "said\n[1]\n", [1], {"note": b"left"})


def test_a_kernel_that_stalls_at_its_start_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each of them says so; the last one may take its time."""
    starts: list[bool] = []
    boot = machine._boot

    def counted(*given: Any, may_stall: bool) -> bool:  # any: handed on
        starts.append(may_stall)
        return boot(*given, may_stall=may_stall)

    monkeypatch.setattr(machine, "STALLED", "SeaBIOS")
    monkeypatch.setattr(machine, "_boot", counted)

    assert Machine().run("print('said')").output == "said\n"
    assert starts == [False, False, True]


def test_a_disk_survives_a_power_loss(tmp_path: Path) -> None:
    """What was synced is there after it; the file system is whole. So after a reset by the kernel."""
    debian = Machine()
    disk = debian.disk(tmp_path)
    write = "import os, time; open('/root/{0}', 'w').write('x'); os.sync(); print('written', flush=True); "

    lost = debian.run(write.format("one") + "time.sleep(60)", disk=disk, power_loss_at="written")
    reset = debian.run(write.format("two") + "open('/proc/sysrq-trigger', 'w').write('b'); time.sleep(60)", disk=disk)
    after = debian.run("import os; print(os.path.exists('/root/one'), os.path.exists('/root/two'))", disk=disk)

    assert (lost.rc, reset.rc, after.output) == (None, None, "True True\n")
    assert "False" in debian.run("import os; print(os.path.exists('/root/one'))").output
