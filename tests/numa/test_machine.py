"""The machines themselves: what a test can rely on when it boots one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.numa.machine import Machine

pytestmark = [pytest.mark.numa, pytest.mark.timeout(300)]


def test_output_files_and_exit_code_come_back() -> None:
    result = Machine().run("import sys; open('/out/note', 'w').write('left'); print('said'); print('[1]'); sys.exit(3)")
    assert (result.rc, result.output, result.json, result.files) == (3, "said\n[1]\n", [1], {"note": b"left"})


def test_a_disk_survives_a_power_loss(tmp_path: Path) -> None:
    """What was synced is there after it; the file system is whole. So after a reset by the kernel."""
    machine = Machine()
    disk = machine.disk(tmp_path)
    write = "import os, time; open('/root/{0}', 'w').write('x'); os.sync(); print('written', flush=True); "

    lost = machine.run(write.format("one") + "time.sleep(60)", disk=disk, power_loss_at="written")
    reset = machine.run(write.format("two") + "open('/proc/sysrq-trigger', 'w').write('b'); time.sleep(60)", disk=disk)
    after = machine.run("import os; print(os.path.exists('/root/one'), os.path.exists('/root/two'))", disk=disk)

    assert (lost.rc, reset.rc, after.output) == (None, None, "True True\n")
    assert "False" in machine.run("import os; print(os.path.exists('/root/one'))").output
