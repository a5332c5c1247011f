"""Which build of PyTorch it is: version, origin, GPU code, and whether its metadata fits.

Reads   */site-packages/torch/{version.py,lib/libtorch_python.so}  */site-packages/*.dist-info/METADATA  */conda-meta/history
PyTorch https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

import re

from sysperf.collect.torch.records import Deep, Install, Pin, part
from sysperf.collect.torch.site_packages import Site
from sysperf.host import Host
from sysperf.host.gpu_code import gpu_code
from sysperf.model.requirement import fits
from sysperf.model.text import neutral
from sysperf.procfs import torch_version
from sysperf.startup import lazy

PINNED = ("nvidia-", "cuda-", "triton", "pytorch-triton", "intel-", "onemkl-", "oneccl", "mkl", "umf", "tbb", "impi-", "rocm")
OFFICIAL = lazy(r"cpu|cu[0-9]{2,3}|rocm[0-9.]{1,12}|xpu")
_FROM_CHANNEL = lazy(r"^\+(\S{1,300})/[a-z0-9-]{1,30}::(\S{1,300})$", re.MULTILINE)
_PYTORCH_CHANNEL_BUILD = lazy(r"py3\.[0-9]{1,2}_(?:cpu|cuda[0-9.]{1,12}_cudnn[0-9.]{1,12})_[0-9]{1,4}")


def version_file(host: Host, root: str) -> dict[str, str]:
    """The assignments of torch/version.py as text; None is empty."""
    text = host.text(f"{root}/version.py", torch_version.MAX_BYTES) or ""
    return {name: neutral(value, 200) for name, value in torch_version.assignments(text).items()}


def build(site: Site, version_fields: dict[str, str], version: str | None, *, editable: bool, alone: bool) -> Install:
    """Version, origin and integrity of the build."""
    local = None if version is None else version.partition("+")[2]
    channel = _channel(site)
    metadata = _metadata_folder(site, version)
    return part(
        version=version,
        release=None if version is None else version.partition("+")[0],
        local=local,
        cuda=version_fields.get("cuda"),
        hip=version_fields.get("hip", "" if version_fields else None),
        xpu=version_fields.get("xpu", "" if version_fields else None),
        debug={"True": True, "False": False}.get(version_fields.get("debug", "")),
        official=_official(local, channel, editable),
        editable=editable if site.readable else None,
        installer=site.installer("torch", "pytorch", metadata),
        conda_channel=channel,
        pin_mismatches=_pin_mismatches(site, metadata, alone=alone),
        stale_dists=_stale(site, metadata),
    )


def _metadata_folder(site: Site, version: str | None) -> str:
    """The metadata folder of the torch that is there; its name may lack the local part of the version."""
    folders = site.folders.get("torch", {})
    names = (version or "", (version or "").partition("+")[0])
    return next((folders[name] for name in names if name in folders), next(iter(folders.values()), ""))


def _official(local: str | None, channel: str | None, editable: bool) -> bool | None:
    """Whether the PyTorch project built it; a build without a local part may be anybody's."""
    if editable or (local and not OFFICIAL.fullmatch(local)):
        return False
    if channel:
        return channel == "pytorch"
    return True if local else None


def _channel(site: Site) -> str | None:
    """The channel of conda's torch, from conda's history or, where that is lost, from the shape of its build name."""
    version, build = site.conda.get("pytorch") or site.conda.get("libtorch") or ("", "")
    if not build:
        return ""
    history = site.host.text(f"{site.prefix}/conda-meta/history") or ""
    for channel, package in reversed(_FROM_CHANNEL.findall(history)):
        if package == f"pytorch-{version}-{build}":
            return neutral(channel.rpartition("/")[2], 80)
    return "pytorch" if _PYTORCH_CHANNEL_BUILD.fullmatch(build) else None


def _pin_mismatches(site: Site, metadata: str, *, alone: bool) -> tuple[Pin, ...] | None:
    """Libraries beside torch that differ from what its metadata asks for.

    One that is absent counts only where the interpreter has no other folder that could hold it.
    """
    if "pytorch" in site.conda or (site.readable and not metadata.endswith(".dist-info")):
        return ()
    required = site.requirements("torch", metadata)
    if required is None:
        return None
    pins = [pin for pin in required if pin.name.startswith(PINNED)]
    for requirement in required:
        pins += (
            site.requirements(requirement.name, extras=requirement.extras) or []
            if requirement.extras and requirement.name.startswith(PINNED)
            else []
        )
    mismatches = (Pin(pin.name, pin.spec, site.dist(pin.name)) for pin in pins if not fits(site.dist(pin.name), pin.spec))
    return tuple(pin for pin in mismatches if pin.installed or alone)


def _stale(site: Site, kept: str) -> tuple[str, ...] | None:
    """Metadata of other torch versions, and halves that an interrupted pip left behind."""
    if not site.readable:
        return None
    others = [folder for folder in site.folders.get("torch", {}).values() if folder != kept]
    return tuple(neutral(name, 200) for name in (*others, *(name for name in site.names or () if name.startswith("~orch"))))[:16]


def gpu_code_in(site: Site, root: str, found: Install, answers: Deep | None) -> tuple[tuple[str, ...] | None, str | None]:
    """The GPU code in the build: as torch says, else as its library has it; nothing in a build for CPUs."""
    if answers is not None and answers.arch_list is not None:
        return answers.arch_list, "probe"
    if found.cuda == "" and found.hip == "":
        return (), "version"
    library = f"{root}/lib/libtorch_python.so"
    targets: list[str] | None = site.host.call(f"gpu-code:{library}", lambda: gpu_code(library), list[str])
    return (tuple(neutral(target, 20) for target in targets[:64]), "library") if targets else (None, None)
