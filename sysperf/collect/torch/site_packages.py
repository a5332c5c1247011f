"""the packages in one Python environment, told by names of folders. No area of its own; `torch` asks.

Reads   */site-packages  */site-packages/*.dist-info/{METADATA,INSTALLER}  */conda-meta
Format  https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

import re
from collections.abc import Iterable, Iterator

from sysperf.host import Host
from sysperf.model.requirement import Requirement, canonical, holds, parse_requirement
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_REQUIREMENTS = 500
MAX_LIBRARY_FOLDERS = 24
OPENMP = ("libgomp", "libiomp5", "libomp")

_DIST = lazy(r"([A-Za-z0-9][A-Za-z0-9._]{0,120})-([0-9][A-Za-z0-9.+!_]{0,120}?)(?:-py[0-9.]{1,8})?\.(?:dist-info|egg-info)")
_REQUIRES = lazy(r"^Requires-Dist:[ \t]*(\S[^\r\n]{0,1000})", re.MULTILINE)
_EXTRA = lazy(r"\bextra\s*==\s*[\"']([^\"']{1,100})[\"']")
_CONDA = lazy(r"([a-z0-9_][a-z0-9_.-]{0,120})-([0-9][^-]{0,60})-([^-]{1,120})\.json")
_OPENMP = lazy(rf"({'|'.join(OPENMP)})(?:-[0-9a-f]{{4,16}})?\.so(?:\.[0-9.]{{1,12}})?")


class Site:
    """One folder of packages, listed once, with the conda packages of its environment if conda made that."""

    def __init__(self, host: Host, folder: str, prefix: str, python_version: str, *, conda: bool) -> None:
        self.host, self.folder, self.prefix = host, folder, prefix
        self.names = host.names(folder)
        self.folders = _dist_folders(self.names or ())
        self.conda = _conda_packages(host.names(f"{prefix}/conda-meta") or ()) if conda else {}
        self.machine = (host.uname() or ("", ""))[1]
        self._python = ".".join(python_version.split(".")[:2])

    @property
    def readable(self) -> bool:
        """Whether the folder could be listed, so that what is not in it is known to be absent."""
        return self.names is not None

    def dist(self, name: str) -> str:
        """The version of an installed distribution; empty when it is not there."""
        return next(iter(self.folders.get(name, {})), "")

    def version_of(self, *names: str) -> str | None:
        """The version of the first of these packages that is installed, by pip or conda; empty when none is."""
        if not self.readable:
            return None
        return next((version for name in names if (version := self.dist(name) or self.conda.get(name, ("", ""))[0])), "")

    def installer(self, dist: str, package: str, metadata: str = "") -> str | None:
        """What installed a distribution: pip, uv, conda, …; empty when nothing says."""
        folder = metadata or self.folders.get(dist, {}).get(self.dist(dist), "")
        if folder.endswith(".dist-info"):
            return neutral(self.host.word(f"{self.folder}/{folder}/INSTALLER") or "", 40)
        return "conda" if package in self.conda else "" if self.readable else None

    def from_index(self, dist: str) -> bool:
        """Whether an index gave it; what was built here or came as a file has a record of its own."""
        folder = self.folders.get(dist, {}).get(self.dist(dist), "")
        return folder.endswith(".dist-info") and self.host.exists(f"{self.folder}/{folder}/direct_url.json") is False

    def requirements(self, dist: str, metadata: str = "", extras: tuple[str, ...] = ()) -> list[Requirement] | None:
        """What a distribution requires here, with these of its extras; None when its metadata cannot be read."""
        folder = metadata or self.folders.get(dist, {}).get(self.dist(dist), "")
        text = self.host.text(f"{self.folder}/{folder}/METADATA") if folder.endswith(".dist-info") else None
        if text is None:
            return None
        return [requirement for requirement in _parsed(text) if self._wanted(requirement, extras)]

    def _wanted(self, requirement: Requirement, extras: tuple[str, ...]) -> bool:
        """Whether a requirement counts on this machine; what its marker asks for beyond what we know does not."""
        asked = _EXTRA.search(requirement.marker)
        if (canonical(asked[1]) in extras) is not bool(extras) if asked else bool(extras):
            return False
        return holds(requirement.marker, self._surroundings(asked[1] if asked else "")) is True

    def _surroundings(self, extra: str) -> dict[str, str]:
        known = {
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": self.machine,
            "python_version": self._python,
        }
        return {**{name: value for name, value in known.items() if value}, "extra": extra}

    def library_folders(self) -> list[str]:
        """The folders in which wheels keep the shared libraries that they bring."""
        return [f"{self.folder}/{name}" for name in self.names or () if name.endswith(".libs")][:MAX_LIBRARY_FOLDERS]


def openmp_runtimes(names: Iterable[str]) -> tuple[str, ...]:
    """The OpenMP runtimes among these file names."""
    matches = (_OPENMP.fullmatch(name) for name in names)
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def conda_blas(packages: dict[str, tuple[str, str]]) -> str | None:
    """The matrix library that conda's packages agree on: the last word of libblas's build, else what is installed."""
    for name in ("libblas", "blas"):
        if name in packages:
            word = packages[name][1].rpartition("_")[2]
            return {"netlib": "reference"}.get(word, word)
    return "mkl" if "mkl" in packages else "openblas" if "libopenblas" in packages else None


def _dist_folders(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Distributions by canonical name: version to the folder that says so. More than one is a leftover."""
    folders: dict[str, dict[str, str]] = {}
    for name in names:
        if name.endswith("-info") and (match := _DIST.fullmatch(name)):
            folders.setdefault(canonical(match[1]), {})[match[2]] = name
    return folders


def _conda_packages(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Conda packages by name: version and build."""
    matches = (_CONDA.fullmatch(name) for name in names)
    return {match[1]: (match[2], match[3]) for match in matches if match}


def _parsed(text: str) -> Iterator[Requirement]:
    for line in _REQUIRES.findall(text)[:MAX_REQUIREMENTS]:
        try:
            yield parse_requirement(line)
        except ValueError:  # noqa: PERF203 - one that cannot be read must not hide the others
            continue
