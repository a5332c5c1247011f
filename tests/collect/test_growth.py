"""Counters that are read twice: real files that somebody writes in between."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sysperf.collect import nic
from sysperf.collect.readers import growth


def written_meanwhile(patch: pytest.MonkeyPatch, files: dict[Path, str]) -> None:
    def pause(seconds: float) -> None:
        for path, text in files.items():
            path.write_text(text)
        time.sleep(seconds)

    patch.setattr(growth, "pause", pause)


def test_what_gave_no_number_twice_is_left_out_and_a_counter_that_began_anew_grew_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"steady": "7\n", "grows": "7\n", "anew": "900\n", "late": "N/A\n", "gone": "3\n"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    written_meanwhile(monkeypatch, {tmp_path / "grows": "19\n", tmp_path / "anew": "2\n", tmp_path / "late": "4\n", tmp_path / "gone": ""})

    grown, seconds = growth.growth([str(tmp_path / name) for name in (*before, "absent")], 0.05)

    assert {Path(path).name: count for path, count in grown.items()} == {"steady": 0, "grows": 12, "anew": 0}
    assert 0.05 <= seconds < 5


def test_the_errors_of_a_port_are_of_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "port_xmit_discards").write_text("100\n")
    written_meanwhile(monkeypatch, {tmp_path / "port_xmit_discards": "400\n"})
    monkeypatch.setattr(nic, "LOOK_S", 0.2)

    rates = nic._errors_in_a_second({"mlx5_0/1 send_discards": str(tmp_path / "port_xmit_discards"), "mlx5_0/1 slow_restarts": "/none"})

    assert list(rates) == ["mlx5_0/1 send_discards"]
    assert 300 < rates["mlx5_0/1 send_discards"] <= 1500, "300 in 0.2 seconds or more"
