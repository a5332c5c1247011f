"""`sysperf service` on a machine with systemd."""

from __future__ import annotations

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("service")]


@pytest.fixture(scope="module")
def service(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_service")


def test_a_user_is_told_the_command(service: Booted) -> None:
    """Without root nothing happens, and the error says what to type, with the same options."""
    done = service["install_by_a_user"]

    assert done["code"] == 2
    assert "only root" in done["err"]
    assert "sudo /opt/sysperf/bin/python -I -m sysperf service install --now --no-helper" in done["err"]


def test_print_writes_nothing(service: Booted) -> None:
    """--print shows every file in full, and changes none."""
    done, same = service["print_only"]

    assert same
    assert done["out"].count("\n+++ ") == 10
    assert "+ExecStart=/opt/sysperf/bin/python -I -m sysperf agent" in done["out"]


def test_install_writes_the_units(service: Booted) -> None:
    """The units and the group; nothing is enabled or started unasked, and the next step is shown."""
    done = service["install"]

    assert done["code"] == 0
    assert done["out"].count("wrote ") == 10
    assert "sudo systemctl enable --now sysperf-agent.socket" in done["err"]
    assert service["installed_files"] == [
        "/etc/systemd/system/sysperf-agent.service",
        "/etc/systemd/system/sysperf-agent.socket",
        "/etc/systemd/system/sysperf-audit.service",
        "/etc/systemd/system/sysperf-audit.timer",
        "/etc/systemd/system/sysperf-helper.service",
        "/etc/systemd/system/sysperf-helper.socket",
        "/etc/systemd/system/sysperf-metrics.service",
        "/etc/systemd/system/sysperf-metrics.socket",
        "/etc/systemd/system/sysperf-restore.service",
        "/etc/sysusers.d/sysperf.conf",
    ]
    assert {unit["LoadState"] for unit in service["loaded"].values()} == {"loaded"}
    assert {unit["UnitFileState"] for unit in service["loaded"].values()} == {"disabled"}


def test_install_makes_the_group(service: Booted) -> None:
    """The group exists at once, without a reboot."""
    assert service["group"]["out"].startswith("sysperf:")


def test_install_twice_changes_nothing(service: Booted) -> None:
    """A second installation finds all as it is."""
    assert service["again"]["out"].count("unchanged ") == 10
    assert service["again"]["code"] == 0


def test_an_administrators_change_is_kept(service: Booted) -> None:
    """A unit that somebody edited stays, is reported by install and status, and --force replaces it."""
    done, kept, status = service["changed_by_an_administrator"]

    assert kept
    assert done["code"] == 1
    assert "kept      /etc/systemd/system/sysperf-agent.service: changed since sysperf wrote it" in done["out"]
    assert "changed since sysperf wrote it" in status
    assert service["forced"][0]["code"] == 0
    assert service["forced"][1]


def test_a_masked_unit_stays_masked(service: Booted) -> None:
    """`systemctl mask` is a decision, too."""
    done, target = service["masked_stays_masked"]

    assert done["code"] == 1
    assert target == "/dev/null"


def test_now_enables(service: Booted) -> None:
    """--now enables the units and listens; --with adds the drop-in."""
    _, units = service["started"]

    assert {unit["UnitFileState"] for unit in units.values()} == {"enabled"}
    assert units["sysperf-agent.socket"]["ActiveState"] == "active"
    assert units["sysperf-helper.socket"]["ActiveState"] == "active"
    assert units["sysperf-audit.timer"]["ActiveState"] == "active"
    assert units["sysperf-agent.service"]["DropInPaths"].endswith("sysperf-see-all-users.conf")


def test_sockets_are_the_groups(service: Booted) -> None:
    """systemd makes both sockets, for root and the group."""
    assert service["sockets"] == {"agent": "srw-rw---- root sysperf", "helper": "srw-rw---- root sysperf"}


def test_status_tells_exposure(service: Booted) -> None:
    """Status shows each unit's state and its exposure."""
    lines = {line.split()[0]: line for line in service["status"]["out"].splitlines() if not line.startswith(" ")}

    assert "active (listening), enabled" in lines["sysperf-helper.socket"]
    assert "exposure 1.7" in lines["sysperf-agent.service"], "with see-all-users"
    assert "exposure 1.3" in lines["sysperf-helper.service"]


def test_the_daily_audit_runs(service: Booted) -> None:
    """In its sandbox it finds out what the machine is, takes no limit of its own for the machine's, and reports into the journal."""
    properties, journal = service["audit_runs_in_its_sandbox"]

    assert properties == {"Result": "success", "ExecMainStatus": "0"}
    assert " checks in " in journal
    assert "limit of" not in journal


def test_uninstall_leaves_no_file(service: Booted) -> None:
    """Exactly what was written is removed, links of `enable` included, and what runs is stopped."""
    done, left, lost = service["uninstall"]

    assert done["code"] == 0
    assert (left, lost) == ([], [])
    assert not [line for line in service["units_afterwards"].splitlines() if "sysperf-checks" not in line]
    assert "nothing of sysperf is installed" in service["uninstall_again"]["out"]


def test_what_others_can_write_is_not_run_as_root(service: Booted) -> None:
    """A sysperf in a folder that a user owns is refused."""
    done = service["program_that_others_can_write"]

    assert done["code"] == 2
    assert "/opt/sysperf/lib belongs to user 65534" in done["err"]
