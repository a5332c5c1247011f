"""torch: what the files of an installation say, without importing it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.process.parts import LoadedTorch
from sysperf.collect.process.records import Process
from sysperf.collect.torch import collect, install_at, with_running
from sysperf.collect.torch.records import Companion, Copy, Install, Package, Pin
from sysperf.collect.torch.wheels import capabilities, wheel
from sysperf.evaluate.rule_files import read_file
from sysperf.host import Host
from sysperf.host.capture import write_capture
from sysperf.model.errors import Missing
from tests.collect.environments import Files, conda_at, cu130_in, dist, python_at, site_of, torch_in
from tests.conftest import MakeMachine, captured

V = "/home/ada/p/.venv"
SITE = site_of(V)
CALLS = {"home": "/home/ada", "uname": ["6.1.0", "x86_64"]}
SHELL = {"/proc/self/environ": f"VIRTUAL_ENV={V}\0"}
MOUNTS = "36 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 36 0:50 / /home/ada rw - nfs4 nas:/home rw\n"


Only = Callable[..., Install]


@pytest.fixture
def only(machine: MakeMachine) -> Only:
    """The only installation of a machine whose shell is in the venv V."""

    def read(files: Files, links: dict[str, str] | None = None, calls: dict[str, object] | None = None) -> Install:
        facts = collect(machine({**SHELL, **files}, links, {**CALLS, **(calls or {})})).installs
        assert len(facts) == 1
        return facts[0]

    return read


def test_packages_that_write_one_folder_are_listed(only: Only) -> None:
    """What asks for triton brings PyPI's beside that of ROCm's build, whatever its release."""
    both = {**dist(SITE, "triton", "3.1.0"), **dist(SITE, "pytorch_triton_rocm", "3.1.0")}

    assert only({**python_at(V), **torch_in(SITE, "2.5.1+rocm6.2", hip="6.2.41134"), **both}).tritons == ("triton", "pytorch-triton-rocm")
    assert only({**python_at(V), **torch_in(SITE)}).tritons == ()


def test_a_wheel_of_pypi_is_read_from_its_files(only: Only) -> None:
    """Version, CUDA, cuDNN, NCCL, triton and the GPU code of an official build, none of it by importing."""
    library = f"gpu-code:{SITE}/torch/lib/libtorch_python.so"
    install = only(
        {**python_at(V), **cu130_in(SITE), "/proc/self/mountinfo": MOUNTS},
        calls={library: ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]},
    )

    assert (install.prefix, install.site_packages, install.manager, install.active) == (V, SITE, "venv", True)
    assert (install.version, install.release, install.local) == ("2.13.0+cu130", "2.13.0", "cu130")
    assert (install.cuda, install.hip, install.xpu, install.debug) == ("13.0", "", "", False)
    assert (install.cudnn, install.nccl, install.triton, install.cuda_majors) == ("9.20.0.48", "2.29.7", "3.7.1", ("13",))
    assert (install.official, install.editable, install.installer, install.conda_channel) == (True, False, "pip", "")
    assert install.pin_mismatches == ()
    assert install.arch_list == ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
    assert (install.arch_source, install.wheel) == ("library", "2.13 13.0 x86_64")
    assert (install.sass, install.ptx) == (("7.5", "8.0", "8.6", "9.0", "10.0", "12.0"), ("12.0",))
    assert (install.openmp_runtime, install.other_openmp, install.blas) == ("libgomp", (), "mkl")
    assert (install.numpy, install.ipex, install.torchvision, install.duplicates, install.stale_dists) == ("2.4.6", "", "", (), ())
    assert install.prefix_fstype == "nfs4"
    assert install.deep is None


def test_of_wheels_for_two_majors_of_cuda_those_of_torch_count(only: Only) -> None:
    others = {**dist(SITE, "nvidia_cublas_cu12", "12.8.4.1"), **dist(SITE, "nvidia_cudnn_cu12", "9.10.2.21")}
    install = only({**python_at(V), **others, **cu130_in(SITE, nvidia_cublas="13.1.0.3")})
    assert (install.cublas, install.cudnn) == ("13.1.0.3", "9.20.0.48")
    twelve = only({**python_at(V), **torch_in(SITE, "2.10.0+cu128", cuda="12.8"), **dist(SITE, "nvidia_cublas", "13.1.0.3"), **others})
    assert (twelve.cublas, twelve.cudnn) == ("12.8.4.1", "9.10.2.21")


def test_a_cpu_build_is_known_to_have_no_cuda(only: Only) -> None:
    """`cuda = None` in version.py is the known absence, an empty text; nothing about GPUs is left unknown."""
    install = only({**python_at(V), **torch_in(SITE)})

    assert (install.version, install.cuda, install.cudnn, install.nccl, install.arch_list) == ("2.13.0+cpu", "", "", "", ())


def test_a_build_for_amd_gpus_says_so(only: Only) -> None:
    """A ROCm build has no CUDA, and its hip version."""
    install = only({**python_at(V), **torch_in(SITE, "2.13.0+rocm7.1", hip="7.1.52802")})

    assert (install.cuda, install.hip, install.official) == ("", "7.1.52802", True)


def test_two_environments_with_two_versions_are_both_shown(machine: MakeMachine) -> None:
    """A conda environment and a venv on one machine are two installations, the shell's first."""
    conda, links = conda_at(
        "/opt/conda", "pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0", "numpy-2.0.0-py311_0", "mkl-2023.1.0-h213fc3f_46344"
    )
    site = "/opt/conda/lib/python3.11/site-packages"
    conda.update({**torch_in(site, "2.5.1", cuda="12.4", installer="conda"), "/home/ada/.conda/environments.txt": "/opt/conda\n"})

    facts = collect(machine({**SHELL, **python_at(V), **cu130_in(SITE), **conda}, links, CALLS)).installs

    assert [(install.prefix, install.manager, install.version, install.cuda, install.active) for install in facts] == [
        (V, "venv", "2.13.0+cu130", "13.0", True),
        ("/opt/conda", "conda", "2.5.1", "12.4", False),
    ]


def test_two_environments_on_a_real_disk(tmp_path: Path) -> None:
    """The same on this machine's own file system, found by what the user named, and again in a capture of it."""
    conda, links = conda_at(f"{tmp_path}/conda", "pytorch-2.5.1-py3.11_cpu_0")
    files = {
        **conda,
        **torch_in(f"{tmp_path}/conda/lib/python3.11/site-packages", "2.5.1", installer="conda"),
        **python_at(f"{tmp_path}/venv"),
        **cu130_in(site_of(f"{tmp_path}/venv")),
    }
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(str(text))
    for path, target in links.items():
        Path(path).symlink_to(target)
    Path(f"{tmp_path}/venv/bin/python").symlink_to("python3")
    host = Host(pythons=(f"{tmp_path}/conda", f"{tmp_path}/venv/bin/python"), record=True)

    live = collect(host)
    write_capture(host, tmp_path / "machine.tar.zst")

    assert collect(Host(tmp_path / "machine.tar.zst")) == live
    installs = {install.prefix: install for install in live.installs}

    assert installs[f"{tmp_path}/conda"].version == "2.5.1"
    assert installs[f"{tmp_path}/conda"].conda_channel == "pytorch"
    assert installs[f"{tmp_path}/venv"].version == "2.13.0+cu130"
    assert installs[f"{tmp_path}/venv"].pin_mismatches == ()


def test_a_process_names_its_installation_by_a_mapped_library(machine: MakeMachine) -> None:
    """/proc/PID/maps gives a path below torch/lib; the same record comes from the prefix."""
    host = machine({**python_at("/srv/job/venv"), **cu130_in(site_of("/srv/job/venv"))}, calls=CALLS)

    mapped = install_at(host, f"{site_of('/srv/job/venv')}/torch/lib/libtorch_cpu.so")

    assert mapped is not None
    assert (mapped.prefix, mapped.version, mapped.active) == ("/srv/job/venv", "2.13.0+cu130", False)
    assert install_at(host, "/srv/job/venv") == mapped
    assert install_at(host, "/srv/nothing") is None
    assert install_at(host, "not a path") is None


def program(pid: int, prefix: str, version: str) -> Process:
    """A running program that has loaded this PyTorch."""
    return Process(pid=pid, ppid=1, name="python", user=1000, torch=LoadedTorch(version=version, prefix=prefix))


def test_what_runs_is_shown_even_where_nobody_looks(machine: MakeMachine) -> None:
    """A job's own venv joins the list; a container's folder of the same name, which holds another version here, does not."""
    host = machine({**SHELL, **python_at(V), **torch_in(SITE), **python_at("/srv/job"), **cu130_in(site_of("/srv/job"))}, calls=CALLS)
    versions = [(V, "2.13.0+cpu"), ("/srv/job", "2.13.0+cu130"), ("/srv/job", "2.13.0+cu130"), ("", "2.9.0"), ("/gone", "2.9.0")]
    running = [program(7, prefix, version) for prefix, version in versions]
    other = program(8, "/srv/job", "2.5.1")

    joined = with_running(host, collect(host), running)
    in_container = with_running(host, collect(host), [other])

    assert [(install.prefix, install.version) for install in joined.installs] == [(V, "2.13.0+cpu"), ("/srv/job", "2.13.0+cu130")]
    assert in_container == collect(host)


def test_a_library_that_is_not_the_pinned_one_is_named(only: Only) -> None:
    """Pins are compared one by one, through the metapackage too; what another machine needs is not asked for."""
    install = only({**python_at(V), **cu130_in(SITE, nvidia_cudnn_cu13="9.15.1.9", nvidia_nccl_cu13="", nvidia_cuda_runtime="13.2.3")})

    assert install.pin_mismatches == (
        Pin("nvidia-cudnn-cu13", "==9.20.0.48", "9.15.1.9"),
        Pin("nvidia-nccl-cu13", "==2.29.7", ""),
        Pin("nvidia-cuda-runtime", "==13.0.96.*", "13.2.3"),
    )
    assert install.cudnn == "9.15.1.9"


def test_metadata_that_cannot_be_read_leaves_the_pins_unknown(only: Only) -> None:
    """An unreadable METADATA is never taken for a clean one."""
    files = {**python_at(V), **cu130_in(SITE)}
    files[f"{SITE}/torch-2.13.0.dist-info/METADATA"] = PermissionError(13, "Permission denied")

    assert only(files).pin_mismatches is None


def test_packages_built_for_another_torch_do_not_fit(only: Only) -> None:
    """torchvision requires its torch; builds of flash-attn and PyG say theirs in their own version."""
    install = only({
        **python_at(V),
        **cu130_in(SITE),
        **dist(SITE, "torchvision", "0.24.1", ("numpy", "torch (==2.9.1)", "pillow (!=8.3.*,>=5.3.0)")),
        **dist(SITE, "torchaudio", "2.11.0"),
        **dist(SITE, "flash_attn", "2.8.3+cu12torch2.8cxx11abitrue"),
        **dist(SITE, "torch_scatter", "2.1.2+pt213cu130"),
    })  # fmt: skip

    assert install.companions == (
        Companion("torchvision", "0.24.1", "==2.9.1", False),
        Companion("torchaudio", "2.11.0", "", True, "cuda"),
        Companion("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue", "==2.8.*", False, "cuda"),
        Companion("torch-scatter", "2.1.2+pt213cu130", "==2.13.*", True, "cuda"),
    )
    assert install.extensions == (Package("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue"), Package("torch-scatter", "2.1.2+pt213cu130"))
    assert install.torchvision == "0.24.1"


def test_a_copy_in_the_users_folder_hides_that_of_the_environment(machine: MakeMachine) -> None:
    """~/.local is searched before a conda environment's own folder: both are shown, and the hidden one says so."""
    conda, links = conda_at("/opt/conda", "pytorch-2.5.1-py3.11_cpu_0")
    own, users = "/opt/conda/lib/python3.11/site-packages", "/home/ada/.local/lib/python3.11/site-packages"
    files = {**conda, **torch_in(own, "2.5.1"), **torch_in(users, "2.9.1+cpu")}

    facts = collect(machine({**files, "/proc/self/environ": "CONDA_PREFIX=/opt/conda\0"}, links, CALLS)).installs

    assert [(install.prefix, install.manager, install.version, install.active, install.duplicates) for install in facts] == [
        ("/home/ada/.local", "user", "2.9.1+cpu", True, ()),
        ("/opt/conda", "conda", "2.5.1", False, (Copy(users, "2.9.1+cpu"),)),
    ]


def test_halves_that_pip_left_behind_are_named(only: Only) -> None:
    """An interrupted uninstall leaves ~orch folders, an overwritten version its metadata."""
    install = only({**python_at(V), **torch_in(SITE), **dist(SITE, "torch", "2.9.1"), f"{SITE}/~orch/version.py": ""})

    assert install.version == "2.13.0+cpu"
    assert install.stale_dists == ("torch-2.9.1.dist-info", "~orch")


@pytest.mark.parametrize(
    ("history", "build", "channel"),
    [
        ("+pytorch/linux-64::pytorch-2.5.1-py3.11_cpu_0\n", "py3.11_cpu_0", "pytorch"),
        ("+https://conda.anaconda.org/conda-forge/linux-64::pytorch-2.5.1-cpu_mkl_py311_h1\n", "cpu_mkl_py311_h1", "conda-forge"),
        ("-conda-forge/linux-64::pytorch-2.5.1-cpu_1\n+defaults/linux-64::pytorch-2.5.1-cpu_1\n", "cpu_1", "defaults"),
        ("", "py3.11_cuda12.4_cudnn9.1.0_0", "pytorch"),
        ("", "cuda126_py311h1_200", None),
    ],
)
def test_the_channel_of_condas_torch(machine: MakeMachine, history: str, build: str, channel: str | None) -> None:
    """Conda's history names it; without that, only the old official channel's build names are unmistakable."""
    files, links = conda_at("/opt/conda", f"pytorch-2.5.1-{build}", history=history)
    files.update(torch_in("/opt/conda/lib/python3.11/site-packages", "2.5.1", installer="conda"))

    install = install_at(machine(files, links, CALLS), "/opt/conda")

    assert install is not None
    assert (install.conda_channel, install.installer, install.python_version) == (channel, "conda", "3.11.9")


def test_pips_torch_in_a_conda_environment_is_told_from_condas_numpy(machine: MakeMachine) -> None:
    """Who installed what, and which OpenMP runtimes conda brings beside torch's own."""
    files, links = conda_at("/opt/conda", "numpy-2.0.0-py311h1_0", "mkl-2023.1.0-h1_1", "intel-openmp-2023.1.0-h1_1", "blas-1.0-mkl")
    site = "/opt/conda/lib/python3.11/site-packages"
    files.update({**torch_in(site), **dist(site, "numpy", "2.0.0", installer="conda")})

    install = install_at(machine(files, links, CALLS), "/opt/conda")

    assert install is not None
    assert (install.installer, install.numpy_installer, install.conda_channel) == ("pip", "conda", "")
    assert (install.openmp_runtime, install.other_openmp, install.numpy_blas) == ("libgomp", ("libiomp5",), "mkl")


def test_openmp_runtimes_of_other_wheels_are_seen(only: Only) -> None:
    """scikit-learn's wheel brings a libgomp of its own."""
    install = only({**python_at(V), **torch_in(SITE), f"{SITE}/scikit_learn.libs/libgomp-a34b3233.so.1.0.0": ""})

    assert install.other_openmp == ("libgomp",)


@pytest.mark.parametrize(("target", "blas"), [("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3", "reference"), ("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3", "openblas")])  # fmt: skip
def test_debians_numpy_uses_what_the_alternatives_choose(machine: MakeMachine, target: str, blas: str) -> None:
    """The distribution's NumPy has no library of its own."""
    site = "/usr/lib/python3/dist-packages"
    files = {
        "/usr/bin/python3.11": "",
        f"{site}/torch/version.py": "__version__ = '1.13.1'\ndebug = False\ncuda = None\n",
        f"{site}/torch-1.13.1.egg-info/PKG-INFO": "",
        f"{site}/numpy-1.24.2.egg-info/PKG-INFO": "",
    }
    links = {"/usr/bin/python3": "python3.11", "/etc/alternatives/libblas.so.3-x86_64-linux-gnu": target}

    install = install_at(machine(files, links, CALLS), site)

    assert install is not None
    assert (install.prefix, install.manager, install.version, install.numpy, install.numpy_blas) == (
        "/usr",
        "system",
        "1.13.1",
        "1.24.2",
        blas,
    )
    assert install.pin_mismatches == ()


def test_torch_from_a_source_folder_is_read_there(only: Only) -> None:
    """An editable install has no torch folder in site-packages, only a file that names the source."""
    files = {
        **python_at(V),
        f"{SITE}/__editable__.torch-2.14.0a0+git1234567.pth": "/src/pytorch\n",
        f"{SITE}/torch-2.14.0a0+git1234567.dist-info/METADATA": "",
    }
    source = torch_in("/src/pytorch", "2.14.0a0+git1234567", debug="True")

    install = only({**files, "/src/pytorch/torch/version.py": source["/src/pytorch/torch/version.py"]})

    assert (install.version, install.editable, install.official, install.debug, install.site_packages) == (
        "2.14.0a0+git1234567",
        True,
        False,
        True,
        SITE,
    )
    assert install.arch_list == ()


def test_a_library_that_cannot_be_read_leaves_the_code_to_tables(only: Only) -> None:
    """The name of an official build is what rules look up; it is no claim about this library."""
    install = only({**python_at(V), **cu130_in(SITE)})

    assert (install.arch_list, install.sass, install.arch_source, install.wheel) == (None, None, None, "2.13 13.0 x86_64")


def test_a_rebuilt_torch_has_no_list_from_the_table(only: Only) -> None:
    """NVIDIA's containers and own builds hold what their builder chose: unknown where their library cannot be read."""
    install = only({**python_at(V), **torch_in(SITE, "2.9.0a0+50eac811a6.nv25.09", cuda="13.0")})

    assert (install.official, install.arch_list, install.sass, install.arch_source, install.wheel) == (False, None, None, None, "")


def test_a_project_beside_its_venv_shows_whether_it_is_locked(machine: MakeMachine) -> None:
    """A lock file, or requirements.txt with an exact torch, is what makes an environment reproducible."""
    files = {**python_at(V), **torch_in(SITE), "/home/ada/p/pyproject.toml": ""}
    loose = install_at(machine({**files, "/home/ada/p/requirements.txt": "numpy\ntorch>=2.0\n"}, calls=CALLS), V)
    pinned = install_at(machine({**files, "/home/ada/p/requirements.txt": "torch == 2.13.0 ; python_version > '3'\n"}, calls=CALLS), V)
    locked = install_at(machine({**files, "/home/ada/p/uv.lock": ""}, calls=CALLS), V)
    assert loose is not None
    assert pinned is not None
    assert locked is not None

    assert (loose.project, loose.lock_file, loose.requirements_pinned) == ("/home/ada/p", "", False)
    assert pinned.requirements_pinned is True
    assert (locked.lock_file, locked.requirements_pinned) == ("/home/ada/p/uv.lock", False)


def test_what_compiling_kernels_needs(only: Only) -> None:
    """Python.h of the interpreter, and a C++ compiler on the PATH."""
    bare = {**python_at(V), **torch_in(SITE)}
    which = {"PATH": {"g++": ["/usr/bin/g++", "/usr/bin/g++-12"]}}

    assert (only(bare, calls={"PATH": {}}).headers, only(bare, calls={"PATH": {}}).compiler) == (False, False)
    assert (only({**bare, "/usr/include/python3.11/Python.h": ""}, calls=which).headers, only(bare, calls=which).compiler) == (True, True)
    assert only(bare).compiler is None


def test_debians_debug_files_do_not_make_a_debug_interpreter(only: Only) -> None:
    """python3-dbg installs its files beside the release's; alone, they are what a debug build looks like."""
    debug, release = (f"/usr/lib/python3.11/_sysconfigdata_{flags}_linux_x86_64-linux-gnu.py" for flags in ("d", ""))
    bare = {**python_at(V), **torch_in(SITE)}

    assert only({**bare, debug: ""}).py_debug is True
    assert only({**bare, debug: "", release: ""}).py_debug is False


def test_braces_in_the_path_of_an_interpreter_are_no_pattern(only: Only) -> None:
    """A prefix that looks like a template, or like a pattern of a shell, is taken as it is written."""
    for prefix in ("/opt/{x}", "/opt/{", "/opt/{0}", "/opt/[a]"):
        debug = f"{prefix}/lib/python3.11/_sysconfigdata_d_linux_x86_64-linux-gnu.py"
        bare = {**python_at(V, home=f"{prefix}/bin"), **torch_in(SITE)}
        assert only({**bare, debug: ""}).py_debug is True, prefix
        assert only(bare).py_debug is not True, prefix


def test_the_answers_of_the_interpreter_win(machine: MakeMachine) -> None:
    """Under --deep, what torch says of itself replaces what its version suggests; wrong types are dropped."""
    answer = {
        "version": "2.13.0+cu130",
        "cuda": "13.0",
        "cudnn": "9.20.0",
        "arch_list": ["sm_80", "sm_90a", "compute_90"],
        "threads": "many",
        "cuda_error": "driver \x1b[31mtoo old",
        "__class__": "evil",
    }
    broken = {"broken": [{"name": "flash_attn", "error": "ImportError: undefined symbol: _ZN3c104cuda"}]}
    python = f"{V}/bin/python3"
    host = machine(
        {**SHELL, **python_at(V), **cu130_in(SITE)},
        calls={**CALLS, f"probe:torch:{python}": answer, f"probe:torch-extensions:{python}": broken},
    )
    host.deep = True

    (install,) = collect(host).installs

    assert install.deep is not None
    assert (install.arch_list, install.arch_source, install.sass, install.ptx) == (
        ("sm_80", "sm_90a", "compute_90"),
        "probe",
        ("8.0", "9.0"),
        ("9.0",),
    )
    assert (install.cudnn, install.deep.threads) == ("9.20.0", None)
    assert install.deep.cuda_error == "driver \\x1b[31mtoo old"
    assert install.deep.broken is not None
    assert install.deep.broken[0].name == "flash_attn"
    assert any(source.path == f"probe:torch:{python}" and "threads" in (source.error or "") for source in host.sources)


def test_without_deep_nothing_is_started(machine: MakeMachine) -> None:
    """An audit starts no interpreter of the user unless --deep asks for it."""
    host = machine({**SHELL, **python_at(V), **cu130_in(SITE)}, calls=CALLS)

    collect(host)

    assert not [source for source in host.sources if source.path.startswith("probe:")]


@pytest.mark.parametrize(
    ("version", "cuda", "machine_name", "has", "lacks"),
    [
        ("2.15.0", "13.2", "x86_64", "12.0", "7.0"),
        ("2.14.1", "12.6", "x86_64", "7.0", "12.0"),
        ("2.10.0", "12.8", "x86_64", "7.0", "6.0"),
        ("2.11.0", "12.8", "x86_64", "12.0", "7.0"),
        ("2.13.0", "13.0", "aarch64", "11.0", "7.5"),
        ("2.8.0+cu128", "12.8", "x86_64", "7.0", "5.0"),
        ("2.7.0+cu128", "12.8", "x86_64", "12.0", "7.0"),
        ("2.9.1", "12.8", "aarch64", "10.0", "7.5"),
        ("2.6.0", "12.4", "x86_64", "5.0", "10.0"),
    ],
)
def test_the_table_of_official_builds(version: str, cuda: str, machine_name: str, has: str, lacks: str) -> None:
    """Spot checks against the release notes' support matrix."""
    tables = read_file(Path(__file__).parents[2] / "rules" / "releases.toml").table
    code = tables["wheel_native"][wheel(version, cuda, machine_name)]

    assert has in code
    assert lacks not in code
    assert tables["wheel_native"].keys() == tables["wheel_portable"].keys()


@pytest.mark.parametrize(("version", "cuda"), [("2.16.0", "13.2"), ("1.13.1", "11.7"), ("dev", "13.0"), ("2.13.0", "")])
def test_what_the_table_does_not_list_is_unknown(version: str, cuda: str) -> None:
    """A release that was not looked up yet gets no list, not a guessed one."""
    tables = read_file(Path(__file__).parents[2] / "rules" / "releases.toml").table
    assert wheel(version, cuda, "x86_64") not in tables["wheel_native"]


def test_capabilities_are_read_from_torchs_names() -> None:
    """The last digit is the minor number; letters mark code for one chip only."""
    assert capabilities(("sm_75", "sm_100a", "compute_120", "sm_", "sm_x1"), "sm_") == ("7.5", "10.0")
    assert capabilities(None, "sm_") is None


def test_a_capture_without_python_is_unknown() -> None:
    """The captured trees hold /proc and /sys only."""
    with pytest.raises(Missing, match="captured"):
        collect(captured("hwloc", "8em64t-4c2t"))


@pytest.mark.torch
@pytest.mark.skipif(not os.environ.get("SYSPERF_TORCH_PYTHON"), reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
def test_a_real_installation_agrees_with_torch_itself() -> None:
    """What the files say is what torch says when it is asked."""
    host = Host(pythons=(os.environ["SYSPERF_TORCH_PYTHON"],), deep=True)

    facts = collect(host).installs[0]

    assert facts.deep is not None
    assert facts.deep.error == ""
    assert (facts.version, facts.cuda) == (facts.deep.version, facts.deep.cuda)
    assert facts.blas == facts.deep.blas
    assert (facts.deep.threads or 0) >= 1
    assert facts.deep.broken == ()
    assert facts.pin_mismatches == ()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version_py=st.binary(max_size=300),
    metadata=st.text(max_size=300),
    history=st.text(max_size=200),
    names=st.lists(st.text(alphabet=st.characters(exclude_characters="/\0"), min_size=1, max_size=40), max_size=8),
)
def test_no_content_of_an_installation_breaks_it(
    machine: MakeMachine, version_py: bytes, metadata: str, history: str, names: list[str]
) -> None:
    """version.py and METADATA belong to other users: whatever they hold is data."""
    files, links = conda_at("/c", "pytorch-2.5.1-py3.11_cpu_0", history=history)
    site = "/c/lib/python3.11/site-packages"
    files |= {
        f"{site}/torch/version.py": b"__version__ = '" + version_py,
        f"{site}/torch-2.5.1.dist-info/METADATA": f"Requires-Dist: {metadata}",
        **{f"{site}/{name}/x": "" for name in names if name not in (".", "..")},
    }

    assert install_at(machine(files, links, CALLS), "/c") is not None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    answer=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["version", "broken", "arch_list", "threads", "name", "error"]), inner)
        ),
        max_leaves=12,
    )
)
def test_no_answer_of_an_interpreter_breaks_it(machine: MakeMachine, answer: Any) -> None:
    """The user's interpreter may print any JSON."""
    python = f"{V}/bin/python3"
    calls = {**CALLS, f"probe:torch:{python}": answer, f"probe:torch-extensions:{python}": answer}
    host = machine({**SHELL, **python_at(V), **cu130_in(SITE)}, calls=calls)
    host.deep = True

    assert collect(host).installs[0].version == "2.13.0+cu130"


OWN_RUNTIME, ROCM_RUNTIME = f"{SITE}/torch/lib/libhsa-runtime64.so", "/opt/rocm/lib/libhsa-runtime64.so.1"


@pytest.mark.parametrize(("own", "differs"), [(3_311_000, True), (3_457_000, False), (None, None)])
def test_in_wsl_a_runtime_of_rocm_is_told_from_the_systems_by_its_size(only: Only, own: int | None, differs: bool | None) -> None:
    """AMD's cure copies the system's over that of the build, under the same name. A size that cannot be read is unknown."""
    files: Files = {**torch_in(SITE, "2.8.0+rocm6.4", hip="6.4.43482"), OWN_RUNTIME: "", "/dev/dxg": ""}
    sizes: dict[str, object] = {f"owner:{ROCM_RUNTIME}": {"uid": 0, "mode": 420, "size_bytes": 3_457_000}}
    sizes |= {} if own is None else {f"owner:{OWN_RUNTIME}": {"uid": 0, "mode": 420, "size_bytes": own}}

    assert only(files, calls=sizes).foreign_rocm_runtime is differs


@pytest.mark.parametrize(("hip", "more"), [("6.4.43482", {OWN_RUNTIME: ""}), ("6.4.43482", {"/dev/dxg": ""}), ("", {"/dev/dxg": ""})])
def test_no_runtime_is_compared_outside_of_wsl_without_one_or_for_another_maker(only: Only, hip: str, more: Files) -> None:
    assert only({**torch_in(SITE, "2.8.0", hip=hip), **more}).foreign_rocm_runtime is False


PRODUCTS = "lib/rocblas/library"


@pytest.mark.parametrize(
    ("hip", "names", "targets"),
    [
        ("7.2.53211", (f"{SITE}/torch/{PRODUCTS}/TensileLibrary_lazy_gfx942.dat", f"{SITE}/torch/{PRODUCTS}/Kernels.so-000-gfx900.hsaco"), ("gfx942",)),
        ("7.12.1", (f"{SITE}/_rocm_sdk_libraries_gfx120X_all/{PRODUCTS}/TensileLibrary_lazy_gfx1201.dat",), ("gfx1201",)),
        ("6.4.43483", (f"/opt/rocm/{PRODUCTS}/TensileLibrary_gfx90a.dat",), ("gfx90a",)),
        ("5.4.22801", (f"{SITE}/torch/{PRODUCTS}/TensileLibrary.dat", f"{SITE}/torch/{PRODUCTS}/TensileLibrary_gfx906.co"), None),
        ("7.2.53211", (), None),
        ("", (f"/opt/rocm/{PRODUCTS}/TensileLibrary_gfx90a.dat",), ()),
    ],
)  # fmt: skip
def test_targets_with_matrix_products_are_those_of_the_rocblas_that_pytorch_loads(
    only: Only, hip: str, names: tuple[str, ...], targets: tuple[str, ...] | None
) -> None:
    """Its own comes first, then that of AMD's packages, then the system's. Older releases have one file for all."""
    assert only({**torch_in(SITE, "2.8.0", hip=hip), **dict.fromkeys(names, "")}).product_targets == targets


@pytest.mark.parametrize(
    ("name", "version", "more", "runtime"),
    [
        ("torchvision", "0.24.1+cu128", {}, "cuda"),
        ("torchvision", "0.24.1+rocm6.4", {}, "rocm"),
        ("torchvision", "0.24.1+cpu", {}, "cpu"),
        ("torchvision", "0.24.1+xpu", {}, "xpu"),
        ("torchvision", "0.24.1a0+1e53952", {}, ""),
        ("torchvision", "0.25.0", {"torchvision.libs/libcudart.e8e8b82a.so.12": ""}, "cuda"),
        ("torchvision", "0.25.0", {"torchvision.libs/libpng16.c2edc9e1.so.16": ""}, ""),
        ("torchaudio", "2.10.0", {}, "cuda"),
        ("torchaudio", "2.10.0a0", {}, ""),
        ("torchaudio", "2.10.0", {"torchaudio-2.10.0.dist-info/direct_url.json": '{"url": "file:///build/torchaudio-2.10.0.whl"}'}, ""),
        ("xformers", "0.0.33", {}, ""),
        ("flash-attn", "2.8.3+cu12torch2.8cxx11abitrue", {}, "cuda"),
        ("vllm", "0.9.2.dev364+gb432b7a28.rocm700", {}, "rocm"),
    ],
)
def test_whose_gpus_a_package_is_built_for_is_told_by_its_version_or_by_what_it_brings(
    only: Only, name: str, version: str, more: Files, runtime: str
) -> None:
    files = {**torch_in(SITE, "2.10.0+rocm7.1", hip="7.1.25424"), **dist(SITE, name.replace("-", "_"), version)}

    (companion,) = only({**files, **{f"{SITE}/{path}": text for path, text in more.items()}}).companions or ()

    assert (companion.name, companion.runtime) == (name, runtime)


@pytest.mark.parametrize(("files", "second"), [(("amdsmi/libamd_smi.so",), True), (("amdsmi/__init__.py",), False)])
def test_a_second_library_of_amds_tool_is_told_where_pytorchs_packages_bring_one(only: Only, files: tuple[str, ...], second: bool) -> None:
    torch = {**torch_in(SITE, "2.12.0+rocm7.13.0", hip="7.13.60670"), **dict.fromkeys((f"{SITE}/{name}" for name in files), "")}

    assert only({**torch, f"{SITE}/_rocm_sdk_core/lib/libamd_smi.so.26": ""}).second_amdsmi is second
    assert only(torch).second_amdsmi is False
