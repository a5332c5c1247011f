"""The NVML door: what the library answers, and every way in which it can fail to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.host import nvml
from sysperf.host.nvml import plain
from tests.stand_ins import build_nvml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 made for these tests."""
    return build_nvml(tmp_path_factory.mktemp("nvml"))


def ask(library: Path, script: str, mode: str = "", **env: str) -> Any:
    """What `script` prints as JSON in a Python of its own, where that library is the machine's NVML."""
    prelude = "import json\nfrom sysperf.host.nvml import Nvml\ndef tried(name, *args):\n    try: return door.ask(name, args)\n    except OSError as error: return str(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + script],
        env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "FAKE_NVML": mode, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


def test_answers_come_as_plain_data(library: Path) -> None:
    """Text, numbers, pairs, structures and lists of processes; what NVML calls not available is None."""
    answers = ask(
        library,
        """
door = Nvml()
print(json.dumps([
    tried("SystemGetDriverVersion"), tried("DeviceGetCount"), tried("DeviceGetName", 0), tried("DeviceGetCudaComputeCapability", 0),
    tried("DeviceGetMemoryInfo", 0, 0x2000028)["used"], tried("DeviceGetPciInfo", 0)["busId"],
    [(one["pid"], one["usedGpuMemory"]) for one in tried("DeviceGetComputeRunningProcesses_v3", 0)],
]))""",
    )

    assert answers == ["580.95.05", 2, "NVIDIA H100 80GB HBM3", [9, 0], 3 << 30, "00000000:65:00.0", [[4242, 1 << 30], [4243, None]]]


def test_versioned_structures_are_filled_in(library: Path) -> None:
    """The library refuses a structure without its version; ours have it."""
    answers = ask(
        library,
        """
door = Nvml()
print(json.dumps([
    tried("DeviceGetGpuFabricInfoV", 0)["state"], tried("DeviceGetSramEccErrorStatus", 0)["bThresholdExceeded"],
    tried("DeviceGetAddressingMode", 0), tried("DeviceGetMarginTemperature", 0), tried("GpmQueryDeviceSupport", 0)["isSupportedDevice"],
    tried("DeviceGetMemoryInfo", 0, 1),
]))""",
    )

    assert answers[:5] == [3, 1, 2, -3, 1]
    assert isinstance(answers[5], str), "a wrong version is refused with a reason"


def test_parts_of_a_partitioned_gpu_are_there_or_not(library: Path) -> None:
    """What NVML gives for one is a handle, by which its name is asked."""
    script = "door = Nvml()\nprint(json.dumps([tried('DeviceGetMigDeviceHandleByIndex', 0, part) for part in range(3)]))"

    assert ask(library, script) == ["MIG-part-0", "Not Found", "MIG-part-2"]


def test_activity_is_told_between_two_readings(library: Path) -> None:
    """The first answer is empty; each later one tells what was since the one before. What a GPU does not count is None."""
    script = "door = Nvml()\nprint(json.dumps([tried('GpmMetrics', 0, 2, 5, 10) for _ in range(3)]))"

    assert ask(library, script) == [{}, {"2": 102, "5": 105, "10": None}, {"2": 102, "5": 105, "10": None}]
    assert ask(library, script, "no-gpm") == ["Not Supported"] * 3


def test_many_questions_at_once(library: Path) -> None:
    """The answers come in the order of the questions, each with its own failure; a lost GPU is not asked again."""
    script = """
door = Nvml()
answers = door.ask_all([("DeviceGetClockInfo", (0, 1)), ("DeviceGetClockInfo", (1, 1)), ("DeviceSetX", (0,)), ("DeviceGetPowerUsage", (0,))])
again = door.ask_all([("DeviceGetClockInfo", (1, 2)), ("DeviceGetClockInfo", (0, 2))])
print(json.dumps([one if isinstance(one, int) else str(one) for one in answers + again]))"""

    assert ask(library, script) == [1755, "GPU is lost", "sysperf does not call nvmlDeviceSetX", 691200, "GPU is lost", 2619]


def test_field_values_are_typed_and_those_absent_are_none(library: Path) -> None:
    """One call for many fields: unsigned, long, and one that this GPU does not have."""
    assert ask(library, "door = Nvml()\nprint(json.dumps(tried('DeviceGetFieldValues', 0, 91, 38, 147)))") == {
        "91": 2,
        "38": 38,
        "147": None,
    }


def test_settings_in_flash_are_sound_or_corrupted(library: Path) -> None:
    """A call that gives nothing where all is well, and an error where not."""
    script = "door = Nvml()\nprint(json.dumps(tried('DeviceValidateInforom', 0)))"

    assert ask(library, script) is True
    assert "Corrupted infoROM" in str(ask(library, script, "inforom"))


def test_two_gpus_are_asked_about_each_other(library: Path) -> None:
    """Both numbers become handles."""
    assert ask(library, "door = Nvml()\nprint(json.dumps(tried('DeviceGetP2PStatus', 0, 1, 0)))") == 3


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("mismatch", "Driver/library version mismatch"),
        ("denied", "Insufficient Permissions"),
        ("not-loaded", "Driver Not Loaded"),
        ("unknown", "Unknown Error"),
        ("new-error", "Cosmic Ray"),
    ],
)
def test_a_library_that_does_not_open_says_why(library: Path, mode: str, reason: str) -> None:
    """Every call fails with the reason of the first, in NVIDIA's words."""
    assert ask(library, "door = Nvml()\nprint(json.dumps([tried('DeviceGetCount'), tried('DeviceGetName', 0)]))", mode) == [reason, reason]


def test_no_library_is_a_reason_too(tmp_path: Path) -> None:
    """Where libnvidia-ml.so.1 cannot be loaded, the door says so."""
    pytest.importorskip("pynvml")
    (tmp_path / "libnvidia-ml.so.1").touch()  # no library, in front of one that this machine may have
    assert ask(tmp_path, "door = Nvml()\nprint(json.dumps(tried('DeviceGetCount')))") == "NVML Shared Library Not Found"


def test_a_lost_gpu_is_not_asked_again(library: Path) -> None:
    """Each call to a GPU that is gone can take seconds: after the first its neighbours are asked, it is not."""
    answers = ask(
        library,
        """
import ctypes
door = Nvml()
lost = [tried("DeviceGetPowerUsage", 1), tried("DeviceGetUUID", 1)]
fake = ctypes.CDLL("libnvidia-ml.so.1")
handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
fake.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle))
fake.nvmlDeviceGetUUID(handle, text, 96)
print(json.dumps([*lost, text.value.decode(), tried("DeviceGetPowerUsage", 0)]))""",
    )

    assert answers == ["GPU is lost", "GPU is lost", "GPU-asked-1", 691200]


def test_a_call_that_hangs_is_left_behind(library: Path) -> None:
    """A driver that does not answer costs the time limit once; afterwards every call is refused at once."""
    answers = ask(
        library,
        """
import time
door = Nvml(seconds=3.0)
start = time.monotonic()
first, second = tried("DeviceGetUtilizationRates", 0), tried("DeviceGetName", 0)
print(json.dumps([first, second, time.monotonic() - start]), flush=True)
import os; os._exit(0)""",
        "hang",
    )

    assert answers[0] == answers[1] == "nvmlDeviceGetUtilizationRates did not answer within 3 s: the driver hangs"
    assert answers[2] < 6


def test_a_start_that_hangs_is_left_behind(library: Path) -> None:
    """The same for the first call of all."""
    script = "door = Nvml(seconds=0.3)\nprint(json.dumps(tried('DeviceGetCount')), flush=True)\nimport os; os._exit(0)"

    assert ask(library, script, "slow-start") == "nvmlInit did not answer within 0.3 s: the driver hangs"


def test_a_name_that_is_no_text_is_refused(library: Path) -> None:
    """Bytes that are not UTF-8 are an unknown with a reason, not a crash."""
    assert "UnicodeDecodeError" in ask(library, "door = Nvml()\nprint(json.dumps(tried('DeviceGetName', 0)))", "bad-text")


def test_nothing_but_reading_passes_the_door(library: Path) -> None:
    """Settings, resets and serial numbers are not asked, whatever a caller names."""
    names = [
        "DeviceSetPowerManagementLimit",
        "DeviceResetGpuLockedClocks",
        "DeviceClearEccErrorCounts",
        "DeviceGetSerial",
        "Shutdown",
        "Init",
    ]
    answers = ask(library, f"door = Nvml()\nprint(json.dumps([tried(name, 0) for name in {names}]))")

    assert answers == [f"sysperf does not call nvml{name}" for name in names]


def test_wrong_calls_are_refused_with_a_reason(library: Path) -> None:
    """No such function, no such GPU, too few arguments."""
    answers = ask(
        library,
        "door = Nvml()\nprint(json.dumps([tried('DeviceGetNonsense', 0), tried('DeviceGetName', 9), tried('DeviceGetClockInfo', 0), tried('DeviceGetName', 'x')]))",
    )

    assert answers[0] == "ValueError: this nvidia-ml-py has no nvmlDeviceGetNonsense"
    assert answers[1] == "Invalid Argument"
    assert all("Error" in answer for answer in answers[2:])


def test_a_closed_door_lets_the_gpus_go(library: Path) -> None:
    """After close() the library is shut down, so a driver can be unloaded; later calls say that it was closed."""
    script = (
        "import time\ndoor = Nvml()\ntried('DeviceGetCount')\ndoor.close()\ntime.sleep(0.5)\nprint(json.dumps(tried('DeviceGetCount')))"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json\nfrom sysperf.host.nvml import Nvml\ndef tried(name, *args):\n    try: return door.ask(name, args)\n    except OSError as error: return str(error)\n"
            + script,
        ],
        env={"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "FAKE_NVML_SAYS_BYE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    assert done.stdout.splitlines() == ["closed", '"NVML was closed"']


def test_collectors_read_a_live_machine_through_it(library: Path) -> None:
    """From the library to the facts: driver and GPUs of a machine whose files are a dict and whose NVML is real."""
    facts = ask(
        library,
        """
import sys
from sysperf.collect import driver, gpu
from sysperf.host import Host
from sysperf.model.record import to_json
from tests.conftest import Dict
from tests.gpus import files
class Live(Dict):
    live = True
found, links = files(2)
host = Host("/", tree=Live(found, links), record=True)
before = driver.collect(host), gpu.collect(host)
replayed = Host("/capture", tree=Dict(found, links), answers=host.answers)
after = driver.collect(replayed), gpu.collect(replayed)
print(json.dumps([json.loads(to_json(before)), before == after]))""",
    )[0:2]

    (driver, gpu), same = facts
    assert same, "a replay of what was recorded gives the same facts"
    assert (driver["nvml_problem"], driver["cuda_driver_version"], driver["nvml_version"]) == ("", "13.0", "13.580.95.05")
    healthy, lost = gpu["devices"]
    assert (healthy["name"], healthy["bus_id"], healthy["compute_capability"]) == ("NVIDIA H100 80GB HBM3", "0000:65:00.0", "9.0")
    assert healthy["clocks"]["events"] == ["sw-power-cap", "hw-thermal"]
    assert (healthy["ecc"]["uncorrected"], healthy["ecc"]["remap_pending"], healthy["ecc"]["sram_threshold_exceeded"]) == (10, True, True)
    assert (healthy["nvlink"]["links"], healthy["nvlink"]["active"], healthy["nvlink"]["fabric"]) == (2, 1, "completed")
    assert (healthy["power"]["usage_watts"], healthy["power"]["limit_watts"]) == (691.2, None)
    assert (healthy["lost"], lost["lost"]) == (False, True)
    assert gpu["p2p_blocked"] == ["0-1 (topology)"]
    assert gpu["confidential"] is False


def test_a_machine_without_driver_does_not_load_the_binding() -> None:
    """Importing nvidia-ml-py costs 20 ms: no sign of a driver, no import."""
    if Path("/proc/driver/nvidia").exists() or Path("/dev/dxg").exists():
        pytest.skip("this machine has a GPU driver: run where none is loaded")
    script = "import sys\nfrom sysperf.host import Host\nfrom sysperf.collect import driver, gpu\nhost = Host()\ndriver.collect(host); gpu.collect(host)\nprint('pynvml' in sys.modules, 'ctypes' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_a_hand_over_to_the_thread_is_cheap(library: Path) -> None:
    """Hundreds of calls make an audit of eight GPUs; the thread that guards against hangs must not slow it."""
    script = "import time\ndoor = Nvml()\nstart = time.perf_counter()\nfor _ in range(300): tried('DeviceGetPowerUsage', 0)\nprint(json.dumps((time.perf_counter() - start) / 300))"

    assert ask(library, script) < 0.005


@settings(max_examples=25)
@given(st.recursive(st.none() | st.integers() | st.binary() | st.text(), lambda inner: st.lists(inner) | st.tuples(inner), max_leaves=8))
def test_whatever_the_binding_returns_becomes_json(value: Any) -> None:
    """Lists, bytes and numbers, nested, as a capture keeps them."""
    assert json.dumps(plain(value)) is not None
    assert plain(SimpleNamespace(inner=value)) == {"inner": plain(value)}


def test_not_available_is_unknown() -> None:
    """NVML's largest number stands for "I do not tell"."""
    assert plain((1 << 64) - 1) is None
    assert plain(7) == 7


def test_waiting_ends_by_itself() -> None:
    """A door whose thread never answers gives up after its time."""
    door = nvml.Nvml.__new__(nvml.Nvml)
    door._seconds, door._problem, door._lost = 0.05, None, set()
    from queue import SimpleQueue
    from threading import Lock

    door._turn = Lock()

    door._tasks, door._answers = SimpleQueue(), SimpleQueue()
    start = time.monotonic()

    with pytest.raises(OSError, match="did not answer"):
        door.ask("DeviceGetName", (0,))
    assert time.monotonic() - start < 2


REAL = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libnvidia-ml.so.1"))


@pytest.mark.skipif(not REAL, reason="needs NVML's library: Debian's package libnvidia-ml1, as .ci/run installs it")
@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="needs a machine without NVIDIA's driver")
def test_the_real_library_without_a_driver_says_so() -> None:
    """No GPU is known, and why: that is neither an error nor fine."""
    done = subprocess.run(
        [sys.executable, "-m", "sysperf", "facts", "gpu"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )

    assert "gpu.nvml" in done.stdout
    assert "no NVIDIA driver is loaded" in done.stdout
