"""What is kept of files that users and packages wrote: names and versions, at the door."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.host import redact
from sysperf.host.extracts import extract_for, version
from tests.conftest import make_machine

SECRET = "s3cr3t-" + "0123456789abcdef"
TORCH = f"""from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']
# token {SECRET}
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '0123456789abcdef0123456789abcdef01234567'
hip: Optional[str] = None
password = '{SECRET}'
"""


@pytest.mark.parametrize(
    ("path", "raw", "kept"),
    [
        (
            "/p/requirements.txt",
            (
                f"--index-url https://me:{SECRET}@pypi.corp/simple\n-e git+https://{SECRET}@git.corp/a.git#egg=a\n"
                f"torch == 2.13.0 ; python_version > '3' # {SECRET}\nnumpy>=1.26,<3\nb @ https://{SECRET}@x/b.whl\nuvicorn[standard]\r\n"
                f"c==1.0 --hash=sha256:{SECRET}\n"
            ),
            "torch == 2.13.0\nnumpy>=1.26,<3\nuvicorn[standard]\nc==1.0\n",
        ),
        (
            "/c/conda-meta/history",
            (
                f"==> 2026-01-01 <==\n# cmd: conda create -c https://conda.corp/t/{SECRET}/main\n"
                f"+https://conda.corp/t/{SECRET}/pytorch/linux-64::pytorch-2.5.1-py3.11_cpu_0\n"
                f"+https://conda.corp/t/{SECRET}/linux-64::private-1.0-0\n+conda-forge/noarch::tzdata-2024a-0\n# update specs: ['{SECRET}']\n"
            ),
            "+pytorch/linux-64::pytorch-2.5.1-py3.11_cpu_0\n+conda-forge/noarch::tzdata-2024a-0\n",
        ),
        (
            "/s/torch/version.py",
            TORCH,
            (
                "__version__ = '2.13.0+cu130'\ndebug = False\ncuda = '13.0'\n"
                "git_version = '0123456789abcdef0123456789abcdef01234567'\nhip = None\n"
            ),
        ),
        ("/s/torch/build-version", "2.9.0a0+git0123456\n", "2.9.0a0+git0123456"),
        ("/s/torch/build-version", "root:$y$j9T$hash:19700:0:99999:7:::\n", ""),
        (
            "/s/x.dist-info/METADATA",
            (
                f"Metadata-Version: 2.1\nName: x\nVersion: 1.0\nHome-page: https://{SECRET}@git.corp\n"
                'Requires-Dist: nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"\n'
                f"Requires-Dist: y @ git+https://{SECRET}@git.corp/y\nRequires-Dist: z (>=1.0) ; extra == 'dev'\n\nVersion: {SECRET}\n"
            ),
            (
                'Metadata-Version: 2.1\nName: x\nVersion: 1.0\nRequires-Dist: nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"\n'
                "Requires-Dist: z (>=1.0) ; extra == 'dev'\n"
            ),
        ),
        ("/v/pyvenv.cfg", f"home = /usr/bin\nversion = 3.11.2\nprompt = {SECRET}\n", "home = /usr/bin\nversion = 3.11.2\n"),
        (
            "/home/ada/.conda/environments.txt",
            f"/opt/conda\n# {SECRET}\nhttps://me:{SECRET}@x\n/data/envs/my work\r\n",
            "/opt/conda\n/data/envs/my work\n",
        ),
        (
            "/etc/nccl.conf",
            (
                f"# asked {SECRET}\nNCCL_IB_HCA = =mlx5_0:1\r\nPASSWORD={SECRET}\nNCCL_X_TOKEN={SECRET}\nexport HF={SECRET}\n"
                f"NCCL_DEBUG_FILE=https://me:{SECRET}@h.example/x\n"
            ),
            "NCCL_IB_HCA==mlx5_0:1\nNCCL_DEBUG_FILE=https://<hidden>@h.example/x\n",
        ),
        ("/home/ada/.nccl.conf", f"NCCL_ALGO=Ring\n{SECRET}\n", "NCCL_ALGO=Ring\n"),
        ("/s/x.dist-info/INSTALLER", "uv\n", "uv"),
        ("/s/x.dist-info/INSTALLER", f"uv {SECRET}", ""),
        ("/s/__editable__.torch-2.0.pth", "/src/pytorch\n", "/src/pytorch\n"),
        (
            "/s/__editable___torch_2_0_finder.py",
            f"x = '{SECRET}'\nMAPPING = {{'torch': '/src/pytorch/torch'}}\n",
            "'torch': '/src/pytorch/torch'\n",
        ),
    ],
)
def test_names_and_versions_are_kept(path: str, raw: str, kept: str) -> None:
    """What rules ask of each file, and not a word of the rest, neither in facts nor in a capture."""
    assert redact.clean(path, raw.encode()).decode().strip() == kept.strip()
    assert SECRET not in (make_machine({path: raw}).text(path) or "")


@pytest.mark.parametrize("path", ["/proc/sys/kernel/version", "/sys/x/version.py", "/etc/os-release"])
def test_other_files_stay_as_they_are(path: str) -> None:
    """Only files of these names, and never the kernel's."""
    assert redact.clean(path, b"any = 'thing'") == b"any = 'thing'"


@pytest.mark.parametrize("text", ["2.13.0+cpu", "2.14.0a0+git1234567", " 1.0\n", "v2.1", "2.5.1.post1", "20240101"])
def test_versions_are_versions(text: str) -> None:
    """As wheels and builds write them."""
    assert version(text) == text.strip()


@given(st.text(max_size=200))
def test_no_text_becomes_a_version_by_accident(text: str) -> None:
    """Whatever the file holds: digits first, and no blank, colon, slash or at sign in it."""
    assert not set(version(text)) & set(" \t\n:/@$'\"=")


@given(
    st.sampled_from(["requirements.txt", "history", "version.py", "METADATA", "pyvenv.cfg", "INSTALLER", "environments.txt", "nccl.conf"]),
    st.text(max_size=400),
)
def test_extracts_are_stable(name: str, text: str) -> None:
    """What was extracted is extracted again as it is: a capture answers as the machine did."""
    once = redact.clean(f"/x/{name}", text.encode("utf-8", "replace"))

    assert redact.clean(f"/x/{name}", once) == once


def test_a_path_file_of_an_editable_torch_keeps_its_first_line() -> None:
    """`.egg-link` is what older pip wrote; another file of that folder is nobody's business."""
    extract = extract_for("torch.egg-link")

    assert extract is not None
    assert extract(f"/home/ada/pytorch\n{SECRET}\n") == "/home/ada/pytorch"
    assert extract_for("notes.link") is None


def test_a_long_file_keeps_so_many_lines() -> None:
    """What is kept is bounded, however long the file is."""
    extract = extract_for("environments.txt")

    assert extract is not None
    assert extract("/env\n" * (20_000 + 5)).count("\n") == 20_000
