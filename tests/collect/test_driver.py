"""What we say of the driver is what its files and NVML say; no driver is known only where nothing hints at one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.collect import driver
from sysperf.collect.driver import Driver, collect
from tests.conftest import Files, MakeMachine, captured, make_machine
from tests.gpus import H100, calls, driver_files

LIB = "/usr/lib/x86_64-linux-gnu"
NOTHING: Files = {"/dev/null": "", "/usr/local/bin/x": ""}


def libraries(version: str, folder: str = LIB) -> dict[str, str]:
    """Links as a driver package makes them."""
    return {f"{folder}/{name}.so.1": f"{name}.so.{version}" for name in ("libcuda", "libnvidia-ml")}


def test_a_loaded_driver_is_read_whole(machine: MakeMachine) -> None:
    """Module, libraries, CUDA version, device nodes and daemons."""
    files = {
        **NOTHING,
        **driver_files(),
        "/run/nvidia-persistenced/socket": "",
        f"{LIB}/libcuda.so.580.95.05": "",
        f"{LIB}/libnvidia-ml.so.580.95.05": "",
    }

    facts = collect(machine(files, libraries("580.95.05"), calls(H100)))

    assert (facts.nvidia_version, facts.open_module, facts.nvml_problem) == ("580.95.05", True, "")
    assert (facts.cuda_driver_version, facts.nvml_version) == ("13.0", "13.580.95.05")
    assert (facts.library_version, facts.nvml_library_version) == ("580.95.05", "580.95.05")
    assert facts.device_nodes == ("nvidia0", "nvidia-uvm", "nvidiactl")
    assert (facts.uvm, facts.persistence_daemon, facts.fabric_manager, facts.profiling_admin_only) == (True, True, False, True)


@pytest.mark.parametrize(("line", "disabled"), [("NvLinkDisable: 1\n", True), ("NvLinkDisable: 0\n", False), ("", False)])
def test_a_parameter_that_switches_nvlink_off_is_read(machine: MakeMachine, line: str, disabled: bool) -> None:
    """Drivers that list none have none."""
    files = {**NOTHING, **driver_files(), driver.PARAMS: f"RmProfilingAdminOnly: 1\n{line}"}

    assert collect(machine(files, {}, calls(H100))).nvlink_disabled is disabled


def test_no_driver_is_known(machine: MakeMachine) -> None:
    """A complete machine without any sign of a driver has none: empty text, not unknown."""
    facts = collect(machine(NOTHING))

    assert (facts.nvidia_version, facts.library_version, facts.device_nodes, facts.uvm) == ("", "", (), False)
    assert (facts.nouveau, facts.wsl, facts.open_module) == (False, False, None)
    assert facts.toolkits == ()


def test_a_capture_without_these_files_says_nothing() -> None:
    """Absence in an archive of another project is no proof."""
    facts = collect(captured("hwloc", "8em64t-4c2t"))

    assert (facts.nvidia_version, facts.library_version, facts.nouveau) == (None, None, None)


def test_an_updated_library_beside_an_old_module_shows(machine: MakeMachine) -> None:
    """After a package update without a reboot: NVML refuses, and both versions are told."""
    files = {**NOTHING, **driver_files("570.124.06"), f"{LIB}/libcuda.so.580.95.05": "", f"{LIB}/libnvidia-ml.so.580.95.05": ""}
    refused = {"nvml:SystemGetDriverVersion()": OSError("Driver/library version mismatch")}

    facts = collect(machine(files, libraries("580.95.05"), refused))

    assert (facts.nvidia_version, facts.library_version) == ("570.124.06", "580.95.05")
    assert facts.nvml_problem == "Driver/library version mismatch"
    assert facts.cuda_driver_version is None


def test_the_proprietary_module_is_told_from_the_open_one(machine: MakeMachine) -> None:
    """The kernel module's own line says which it is; the version in it serves where /sys is not there."""
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc 12.2.0\n"

    facts = collect(machine({**NOTHING, "/proc/driver/nvidia/version": text}))

    assert (facts.nvidia_version, facts.open_module) == ("470.256.02", False)


def test_debians_alternatives_are_followed(machine: MakeMachine) -> None:
    """libcuda.so.1 leads through /etc/alternatives to the file that bears the version."""
    links = {
        f"{LIB}/libcuda.so.1": "/etc/alternatives/nvidia--libcuda.so.1-x86_64-linux-gnu",
        "/etc/alternatives/nvidia--libcuda.so.1-x86_64-linux-gnu": f"{LIB}/nvidia/current/libcuda.so.1",
        f"{LIB}/nvidia/current/libcuda.so.1": "libcuda.so.535.183.01",
    }

    facts = collect(machine({**NOTHING, f"{LIB}/nvidia/current/libcuda.so.535.183.01": ""}, links))

    assert facts.library_version == "535.183.01"


def test_links_in_a_circle_are_unknown(machine: MakeMachine) -> None:
    """A library that leads to itself has no version."""
    facts = collect(machine(NOTHING, {f"{LIB}/libcuda.so.1": "libcuda.so", f"{LIB}/libcuda.so": "libcuda.so.1"}))

    assert facts.library_version is None


def test_under_wsl_the_version_comes_from_nvml(machine: MakeMachine) -> None:
    """There is no module: Windows has it. The library is a plain file without a version in its name."""
    files = {**NOTHING, "/dev/dxg": "", "/usr/lib/wsl/lib/libcuda.so.1": b"\x7fELF"}

    facts = collect(machine(files, calls=calls(H100, driver="591.44")))

    assert (facts.wsl, facts.nvidia_version, facts.library_version) == (True, "591.44", None)


def test_under_wsl_without_an_answer_the_version_is_unknown(machine: MakeMachine) -> None:
    """/dev/dxg hints at a driver on the other side, so none is not known."""
    assert collect(machine({**NOTHING, "/dev/dxg": ""})).nvidia_version is None


def test_nouveau_counts_when_it_holds_a_device(machine: MakeMachine) -> None:
    """The module alone holds nothing."""
    folder = "/sys/bus/pci/drivers/nouveau"

    assert collect(machine({**NOTHING, f"{folder}/bind": "", f"{folder}/0000:01:00.0/x": ""})).nouveau is True
    assert collect(machine({**NOTHING, f"{folder}/bind": ""})).nouveau is False


def test_toolkits_tell_versions_compilers_and_copies(machine: MakeMachine) -> None:
    """Each folder once: version.json, the older version.txt, or the folder's name; cuDNN copied in; compat libraries."""
    new, old, bare = "/usr/local/cuda-13.0", "/usr/local/cuda-10.2", "/usr/local/cuda-12.4"
    files: Files = {
        **NOTHING,
        f"{new}/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.2"}, "cuda_nvcc": {"name": "CUDA NVCC", "version": "13.0.88"}}',
        f"{new}/bin/nvcc": b"\x7fELF",
        f"{new}/lib64/libcudart.so.13": "",
        f"{old}/version.txt": "CUDA Version 10.2.89\n",
        f"{old}/lib64/libcudnn.so.7.6.5": "",
        f"{old}/lib64/libcudnn_static.a": "",
        f"{bare}/compat/libcuda.so.550.54.15": "",
        f"{bare}/compat/libcuda.so.1": "",
    }

    facts = collect(machine(files, {"/usr/local/cuda": "/usr/local/cuda-13.0"}))

    assert facts.toolkits is not None
    toolkits = {toolkit.path: toolkit for toolkit in facts.toolkits}
    assert set(toolkits) == {new, old, bare}
    assert (toolkits[new].version, toolkits[new].nvcc, toolkits[new].cudnn, toolkits[new].compat_version) == ("13.0.2", True, (), "")
    assert (toolkits[old].version, toolkits[old].nvcc, toolkits[old].cudnn) == ("10.2.89", False, (f"{old}/lib64/libcudnn.so.7.6.5",))
    assert (toolkits[bare].version, toolkits[bare].compat_version) == ("12.4", "550.54.15")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"cuda": 3}', '{"cuda": {"version": {}}}', "[" * 5000, "\x00\x01"])
def test_a_broken_version_file_is_unknown(machine: MakeMachine, text: str) -> None:
    """A truncated or hostile version.json gives no version and breaks nothing."""
    facts = collect(machine({**NOTHING, "/usr/local/cuda-13.0/version.json": text}))

    assert facts.toolkits is not None
    assert facts.toolkits[0].version is None


def test_a_file_that_may_not_be_read_is_unknown(machine: MakeMachine) -> None:
    """A module that is loaded but does not tell its version is not none."""
    facts = collect(machine({**NOTHING, "/sys/module/nvidia/version": OSError(13, "Permission denied")}))

    assert facts.nvidia_version is None


def test_mps_and_peermem_are_seen(machine: MakeMachine) -> None:
    """A pid file of the multi-process service, a module of GPUDirect."""
    facts = collect(
        machine({**NOTHING, "/tmp/nvidia-mps/nvidia-cuda-mps-control.pid": "12", "/sys/module/nvidia_peermem/initstate": "live"})
    )

    assert (facts.mps, facts.peermem) == (True, True)


FILES = (
    "/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/sys/module/nvidia/version", "/usr/local/cuda/version.json",
    "/usr/local/cuda-12/version.txt", "/usr/local/cuda-12/lib64/libcudnn.so.9", "/dev/nvidia0", f"{LIB}/libcuda.so.1",
)  # fmt: skip


@settings(max_examples=25)
@given(
    st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)),
    st.dictionaries(
        st.sampled_from((f"{LIB}/libcuda.so.1", f"{LIB}/libnvidia-ml.so.1", "/usr/local/cuda")),
        st.text(max_size=20).filter(lambda text: "\0" not in text),
    ),
    st.one_of(st.none(), st.integers(), st.text(max_size=20), st.lists(st.integers(), max_size=3)),
)
def test_nothing_breaks_the_collector(files: dict[str, bytes], links: dict[str, str], answer: object) -> None:
    """Whatever the files hold and NVML answers, a record comes back."""
    names = ("SystemGetDriverVersion", "SystemGetNVMLVersion", "SystemGetCudaDriverVersion_v2")
    host = make_machine({**NOTHING, **files}, links, calls={f"nvml:{name}()": answer for name in names})

    assert isinstance(collect(host), Driver)


def test_the_fabric_managers_version_is_asked_under_deep_where_it_is_installed(machine: MakeMachine) -> None:
    """Its command prints a sentence. One of another version than the driver's has ended: the program tells, not the service."""
    calls: dict[str, object] = {"run:fabric-manager-version": "Fabric Manager version is : 550.54.15\n"}
    files: Files = {driver.FABRIC_MANAGER: ""}

    assert collect(machine(files, calls=calls, deep=True)).fabric_manager_version == "550.54.15"
    assert collect(machine(files, calls=calls)).fabric_manager_version is None
    assert collect(machine({driver.FABRIC_PROGRAM[0]: ""}, calls=calls, deep=True)).fabric_manager_version == "550.54.15"
    assert collect(machine({"/dev/null": ""}, calls=calls, deep=True)).fabric_manager_version == ""


@pytest.mark.parametrize(
    "files",
    [
        {"/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3\n"},
        {"/proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0"},
        {"/sys/class/dmi/id/product_name": "NVIDIA Jetson AGX Orin Developer Kit\n"},
    ],
    ids=["release file", "device tree", "firmware"],
)
def test_a_jetson_is_known_by_each_of_its_signs(machine: MakeMachine, files: Files) -> None:
    assert collect(machine(files)).tegra is True
    assert collect(machine({"/dev/null": ""})).tegra is False


@pytest.mark.parametrize(
    ("text", "release"),
    [("# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic, EABI: aarch64\n", "36.4.7"), ("no release\n", None), (None, "")],
    ids=["a release", "other words", "no Jetson"],
)
def test_the_release_of_jetson_linux_is_read(text: str | None, release: str | None) -> None:
    assert collect(make_machine({"/dev/null": "", **({"/etc/nv_tegra_release": text} if text else {})}, {}, {})).l4t == release


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("/opt/rocm-7.2.1/lib/librocdxg.so", True),
        ("/opt/rocm/lib/librocdxg.so.1", True),
        ("/usr/lib/x86_64-linux-gnu/librocdxg.so.1", True),
        ("/usr/local/lib/librocdxg.so", True),
        ("/opt/rocm/lib/librocm_smi64.so", False),
        ("/opt/other/lib/librocdxg.so", False),
        ("/usr/bin/x", False),
    ],
)
def test_under_wsl_the_library_that_reaches_the_gpu_is_looked_for_beside_rocm_and_in_the_system(place: str, found: bool) -> None:
    """On Linux, where no program needs it, nobody looks."""
    assert collect(make_machine({**NOTHING, "/dev/dxg": "", place: ""}, {}, {})).rocdxg is found
    assert collect(make_machine({**NOTHING, place: ""}, {}, {})).rocdxg is None


def test_where_the_folders_of_rocm_cannot_be_listed_its_library_is_not_said_to_be_absent() -> None:
    closed: Files = {**NOTHING, "/dev/dxg": "", "/opt": OSError(13, "Permission denied")}

    assert collect(make_machine(closed, {}, {})).rocdxg is None


@pytest.mark.parametrize(
    ("package", "found"),
    [
        ("/var/lib/dpkg/info/hsa-runtime-rocr4wsl-amdgpu.list", True),
        ("/var/lib/dpkg/info/hsa-rocr.list", False),
        ("/var/lib/rpm/rpmdb.sqlite", False),
        ("/usr/lib/sysimage/rpm/rpmdb.sqlite", False),
        (None, None),
    ],
    ids=["for WSL", "for Linux", "of RPM, of which AMD has none for WSL", "the same, of newer ones", "neither kind of packages"],
)
def test_rocms_runtime_for_wsl_is_known_by_its_package(package: str | None, found: bool | None) -> None:
    there: Files = {package: ""} if package else {}

    assert collect(make_machine({**NOTHING, "/dev/dxg": "", **there}, {}, {})).rocr4wsl is found
    assert collect(make_machine({**NOTHING, **there}, {}, {})).rocr4wsl is None


@pytest.mark.parametrize(
    ("file", "build"),
    [
        ("libze_intel_gpu.so.1.3.28717.12", 28717),
        ("libze_intel_gpu.so.1.6.33578", 33578),
        ("libze_intel_gpu.so.1.0.8416", 8416),
        ("other.so", None),
    ],
)
def test_the_build_of_intels_compute_driver_is_in_the_name_of_its_file(file: str, build: int | None) -> None:
    link = {f"{LIB}/libze_intel_gpu.so.1": file}
    facts = collect(make_machine({**NOTHING, f"{LIB}/{file}": ""}, link, {}))

    assert (facts.level_zero_gpu, facts.compute_runtime) == (True, build)


def test_a_library_is_absent_where_every_folder_was_seen() -> None:
    assert collect(make_machine({**NOTHING, "/usr/local/lib64/libze_loader.so.1": ""}, {}, {})).level_zero is True
    assert collect(make_machine(NOTHING, {}, {})).level_zero is False
    assert collect(captured("hwloc", "8em64t-4c2t")).level_zero is None


KFD = {"/dev/kfd": "", "/dev/dri/renderD128": "", "/dev/dri/renderD129": "", "/dev/dri/card0": ""}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", ""),
        (OSError("`dd` failed: dd: failed to open '/dev/kfd': Invalid argument"), "Invalid argument"),
        (OSError("`dd` took too long"), "no answer in 10 seconds"),
        (OSError("`dd` is not installed"), None),
    ],
)
def test_nodes_for_computing_are_opened_to_see_whether_they_do(machine: MakeMachine, answer: object, problem: str | None) -> None:
    """Their permissions do not tell. Only under --deep, and only where they allow it."""
    answers = {"access:/dev/kfd": True, "run:kfd-open": answer}
    uvm = {"/dev/nvidia-uvm": ""}, {"access:/dev/nvidia-uvm": True, "run:uvm-open": _of_uvm(answer)}

    assert collect(machine(KFD, calls=answers, deep=True)).kfd_problem == problem
    assert collect(machine(KFD, calls=answers)).kfd_problem is None
    assert collect(machine(KFD, calls={**answers, "access:/dev/kfd": False}, deep=True)).kfd_problem is None
    assert collect(machine(uvm[0], calls=uvm[1], deep=True)).uvm_problem == problem
    assert collect(machine(uvm[0], calls=uvm[1])).uvm_problem is None


def _of_uvm(answer: object) -> object:
    return OSError(str(answer).replace("/dev/kfd", "/dev/nvidia-uvm")) if isinstance(answer, OSError) else answer


CLOSED = OSError(13, "Permission denied")
SLICE = {"/sys/fs/cgroup/system.slice/dbus.service/cgroup.procs": "900\n"}
POWERD = {"/usr/lib/systemd/system/nvidia-powerd.service": "[Unit]\n"}


@pytest.mark.parametrize(
    ("tree", "state"),
    [
        ({**SLICE, **POWERD, "/sys/fs/cgroup/system.slice/nvidia-powerd.service/cgroup.procs": "901\n"}, "runs"),
        ({**SLICE, **POWERD}, "stopped"),
        (SLICE, ""),
        (POWERD, None),
    ],
)
def test_the_daemon_of_laptops_is_known_by_its_control_group(tree: dict[str, str], state: str | None) -> None:
    assert collect(make_machine({**NOTHING, **tree}, {}, {})).power_daemon == state


@pytest.mark.parametrize("closed", ["/sys/fs/cgroup/system.slice/nvidia-powerd.service", "/usr/lib/systemd/system/nvidia-powerd.service"])
def test_a_daemon_is_not_called_absent_where_a_folder_is_closed(closed: str) -> None:
    assert collect(make_machine({**NOTHING, **SLICE}, {}, {f"exists:{closed}": CLOSED})).power_daemon is None


@pytest.mark.parametrize(
    ("first", "second", "access"),
    [(True, True, True), (True, False, True), (False, True, True), (False, False, False), (False, None, None)],
)
def test_a_batch_system_keeps_the_nodes_of_other_jobs_closed(
    machine: MakeMachine, first: bool, second: bool | None, access: bool | None
) -> None:
    """One node that opens is enough; where one cannot be asked and none opens, nothing is known."""
    answers = {"access:/dev/dri/renderD128": first, "access:/dev/dri/renderD129": second}

    assert collect(machine(KFD, calls={key: value for key, value in answers.items() if value is not None})).render_access is access


RELEASE = "6.11.0-26-generic"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"/var/lib/dkms/amdgpu/6.8.5-1756574.22.04/6.8.0-60-generic/x86_64/log/make.log": ""}, "6.8.5-1756574.22.04"),
        ({f"/var/lib/dkms/amdgpu/6.8.5-1756574.22.04/{RELEASE}/x86_64/log/make.log": ""}, ""),
        ({"/var/lib/dkms/amdgpu/6.7.0-1.22.04/source": "", f"/var/lib/dkms/amdgpu/6.8.5-1.22.04/{RELEASE}/x86_64/x": ""}, ""),
        ({"/var/lib/dkms/amdgpu/original_module/x": ""}, ""),
        ({}, ""),
        ({"/var/lib/dkms/amdgpu": OSError(13, "Permission denied")}, None),
    ],
)
def test_a_module_of_amds_that_was_built_for_other_kernels_only_is_told(files: Files, told: str | None) -> None:
    host = make_machine({**NOTHING, "/var/lib/x": "", **files}, {}, {"uname": [RELEASE, "x86_64"]})

    assert collect(host).amdgpu_unbuilt == told


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"dpm": "-1", "msi": "-1", "vramlimit": "0"}, ()),
        ({"dpm": "0", "msi": "-1", "vramlimit": "0"}, ("dpm=0",)),
        ({"msi": "0", "vramlimit": "8192"}, ("msi=0", "vramlimit=8192")),
        ({"dpm": "1", "msi": "1"}, ()),
        ({"dpm": "-1", "msi": "-1", "vramlimit": CLOSED}, None),
        (
            {
                "disable_cu": "(null)",
                "ppfeaturemask": "0xfff7bfff",
                "debug_mask": "0",
                "pcie_p2p": "Y",
                "noretry": "-1",
                "sched_policy": "0",
            },
            (),
        ),
        ({"disable_cu": "0.0.1", "ppfeaturemask": "0xfffffffd"}, ("disable_cu=0.0.1", "ppfeaturemask=0xfffffffd")),
        ({"ppfeaturemask": "4294967294", "debug_mask": "3"}, ("ppfeaturemask=4294967294", "debug_mask=3")),
        (
            {"pcie_p2p": "N", "use_xgmi_p2p": "0", "noretry": "0", "sched_policy": "2"},
            ("sched_policy=2", "use_xgmi_p2p=0", "pcie_p2p=N", "noretry=0"),
        ),
        ({"dpm": "0", "msi": "-1", "vramlimit": CLOSED}, ("dpm=0",)),
    ],
)
def test_parameters_that_hold_gpus_of_amd_back_are_told(values: Files, told: tuple[str, ...] | None) -> None:
    """One that only root may read is unknown, and keeps none of the others from being told."""
    files: Files = {f"/sys/module/amdgpu/parameters/{name}": value for name, value in values.items()}

    assert collect(make_machine({**NOTHING, **files}, {}, {})).amdgpu_held_back == told


@pytest.mark.parametrize(
    ("file", "version"),
    [("libze_loader.so.1.8.0", "1.8.0"), ("libze_loader.so.1.24", "1.24"), ("libze_loader.so", None), ("other.so", None)],
)
def test_the_version_of_intels_loader_is_in_the_name_of_its_file(file: str, version: str | None) -> None:
    facts = collect(make_machine({**NOTHING, f"{LIB}/{file}": ""}, {f"{LIB}/libze_loader.so.1": file}, {}))

    assert (facts.level_zero, facts.level_zero_version) == (True, version)
