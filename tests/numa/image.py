"""What a test machine boots: a kernel, an initramfs, and a root file system with the Python that runs the tests.

Nothing is installed on this machine: Debian packages are downloaded and unpacked, and the rest is copied from the running Python.
Each piece is built once and kept in a folder of the user's own, named by what it is made of.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import importlib.metadata
import lzma
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TOOLS = {
    # program, the Debian package that has it
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "mke2fs": "e2fsprogs",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
KERNEL = "linux-image-cloud-amd64"
MODULES = ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk")
"""What a disk needs, in the order in which they are loaded; ext4 is built into the kernel."""
ALWAYS = ("numactl", "libnuma1")
VENV = "opt/venv"
LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "dist-packages", "config-*")
SPARE_MB = 192
"""Free space on the root disk."""
MAX_KEPT = 6
"""How many versions of a piece stay; the oldest goes first."""

INITRAMFS = """#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /bin/busybox insmod /modules/$module.ko; done
/bin/busybox mount -t ext4 /dev/vda /root || exec /bin/busybox poweroff -f
exec /bin/busybox switch_root /root /sbin/test-init
"""

# vdb is a tar with the job, ttyS1 is the host's file of what the script prints, vdc becomes a tar of what it leaves in /out.
INIT = f"""#!/bin/busybox sh
export PATH=/{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /run /tmp /out
mount -t devpts devpts /dev/pts
for place in /dev/shm /run /tmp /out; do mount -t tmpfs tmpfs $place; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
hostname numa
ifconfig lo 127.0.0.1
tar xf /dev/vdb -C /run
stty -F /dev/ttyS1 raw -echo 115200
cd /root
python /run/job/script.py </dev/null >/dev/ttyS1 2>&1
echo $? >/out/.rc
sync
tar cf /dev/vdc -C /out .
sync
poweroff -f
"""


def missing() -> str:
    """Why no machine can be booted here; "" when one can."""
    if os.uname().machine != "x86_64":
        return "a test machine is x86_64, and so must this one be"
    absent = sorted({package for tool, package in TOOLS.items() if not _tool(tool)})
    return f"apt-get install {' '.join(absent)}" if absent else ""


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def run(*words: str | Path, folder: Path | None = None, stdin: bytes | None = None) -> str:
    """Run a tool; its output. Fails loudly, with what it said."""
    done = subprocess.run([_tool(str(words[0])) or words[0], *words[1:]], cwd=folder, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr.decode('utf-8', 'replace')[-2000:]}"
    return done.stdout.decode("utf-8", "replace")


# ---------------------------------------------------------------------- what is kept between runs


def _store() -> Path:
    folder = Path(tempfile.gettempdir(), f"sysperf-test-machines-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} belongs to somebody else"
    return folder


def kept(name: str, key: Iterable[object], make: Callable[[Path], None]) -> Path:
    """The folder `name` made from `key`: built by the first who needs it, used by all."""
    digest = hashlib.sha256(repr(list(key)).encode()).hexdigest()[:16]
    store = _store()
    folder = store / f"{name}-{digest}"
    with (store / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in store.glob(f"{name}-*.part"):
                shutil.rmtree(old)
            part = store / f"{folder.name}.part"
            part.mkdir()
            make(part)
            part.rename(folder)
            for old in sorted(store.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime)[:-MAX_KEPT]:
                shutil.rmtree(old)
    return folder


# ---------------------------------------------------------------------- Debian packages


def _download(packages: Sequence[str], folder: Path) -> list[Path]:
    """Packages as files, without installing them. As root, apt drops its rights for downloads, but not into a private folder."""
    run("apt-get", "-o", "APT::Sandbox::User=root", "download", *packages, folder=folder)
    return sorted(folder.glob("*.deb"))


def _download_closure(packages: Sequence[str], folder: Path) -> list[Path]:
    """The packages and all that they need, down to libc: what apt would install into an empty system."""
    for place in ("archives/partial", "state/lists"):
        (folder / place).mkdir(parents=True)
    (folder / "state/status").touch()
    options = (
        "APT::Sandbox::User=root",
        "APT::Install-Recommends=false",
        f"Dir::State::status={folder}/state/status",
        f"Dir::Cache::archives={folder}/archives",
        "Debug::NoLocking=true",
    )
    run("apt-get", *(word for option in options for word in ("-o", option)), "-qq", "-y", "--download-only", "install", *packages)
    return sorted((folder / "archives").glob("*.deb"))


def _unpack(packages: Iterable[Path], tree: Path) -> None:
    """Into a tree whose /bin, /sbin and /lib are links into /usr, which packages older than that must not replace."""
    for package in packages:
        contents = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
        run("tar", "-x", "--keep-directory-symlink", "-C", tree, stdin=contents)


# ---------------------------------------------------------------------- kernel


def kernel() -> Path:
    """A folder with `vmlinuz` and `initramfs`: the distribution's newest kernel for virtual machines."""
    return kept("kernel", (KERNEL, INITRAMFS, MODULES), _make_kernel)


def _make_kernel(folder: Path) -> None:
    depends = run("apt-cache", "depends", KERNEL)
    match = re.search(r"Depends: (linux-image-\S+)", depends)
    assert match, f"apt knows no {KERNEL}: {depends}"
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    _unpack(_download([match[1]], folder), unpacked)
    (image,) = unpacked.glob("boot/vmlinuz-*")
    image.rename(folder / "vmlinuz")
    _make_initramfs(unpacked, folder)
    shutil.rmtree(unpacked)
    for package in folder.glob("*.deb"):
        package.unlink()


def _make_initramfs(unpacked: Path, folder: Path) -> None:
    tree = folder / "tree"
    for name in ("bin", "dev", "root", "modules"):
        (tree / name).mkdir(parents=True)
    busybox = _tool("busybox")
    assert busybox
    shutil.copy(busybox, tree / "bin/busybox")
    for name in MODULES:
        (module,) = unpacked.glob(f"**/kernel/**/{name}.ko*")
        raw = module.read_bytes()
        (tree / f"modules/{name}.ko").write_bytes(lzma.decompress(raw) if module.suffix == ".xz" else raw)
    (tree / "init").write_text(INITRAMFS.format(modules=" ".join(MODULES)))
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), capture_output=True, check=True)
    (folder / "initramfs").write_bytes(gzip.compress(archive.stdout, 6))
    shutil.rmtree(tree)


# ---------------------------------------------------------------------- root file system


def root(packages: Sequence[str] = ()) -> Path:
    """An ext4 image with this Python, what sysperf imports, numactl, busybox, and further Debian packages with all they need."""
    installed = sorted(f"{package.name} {package.version}" for package in _needed())
    key = (sys.version, sys.base_prefix, installed, packages, Path(__file__).read_text())
    return kept("root", key, lambda folder: _make_root(folder, packages)) / "root.img"


def _make_root(folder: Path, packages: Sequence[str]) -> None:
    tree, downloads = folder / "tree", folder / "downloads"
    downloads.mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "sys", "run", "tmp", "out", "root", "etc", "var"):
        (tree / name).mkdir()
    _unpack(_download_closure(packages, downloads) if packages else (), tree)
    _unpack(_download(ALWAYS, downloads), tree)
    _copy_python(tree)
    _copy_libraries(tree)
    _finish(tree)
    size = int(run("du", "-sm", tree).split()[0]) * 5 // 4 + SPARE_MB
    run("mke2fs", "-q", "-t", "ext4", "-d", tree, folder / "root.img", f"{size}M")
    shutil.rmtree(tree)
    shutil.rmtree(downloads)


def _copy_python(tree: Path) -> None:
    """The interpreter with its standard library where it is here, so that it finds itself, and an environment with our packages."""
    interpreter = Path(sys.executable).resolve()
    paths = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    _copy(interpreter, tree)
    for folder in {paths["stdlib"], paths["platstdlib"].replace(sys.prefix, sys.base_prefix)}:
        _copy(Path(folder), tree)
    venv = tree / VENV
    site = venv / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    site.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to(interpreter)
    for package in _needed():
        for file in package.files or ():
            source = Path(str(package.locate_file(file)))
            if ".." not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, site / file)
    (site / "sysperf.pth").write_text("/run/job\n")
    script = venv / "bin/sysperf"
    script.write_text(f"#!/{VENV}/bin/python\nfrom sysperf.cli import entry\nimport sys\nsys.exit(entry())\n")
    script.chmod(0o755)


def _copy(source: Path, tree: Path) -> None:
    """A file or folder to the same place in the tree."""
    target = tree / source.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _needed() -> Iterator[importlib.metadata.Distribution]:
    """What sysperf imports, as installed here: its requirements without extras, and theirs."""
    ours = importlib.metadata.distribution("sysperf-torch")
    waiting, seen = [ours], {ours.name}
    while waiting:
        for requirement in waiting.pop().requires or ():
            name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()
            if "extra ==" in requirement or name in seen:
                continue
            seen.add(name)
            try:
                waiting.append(importlib.metadata.distribution(name))
            except importlib.metadata.PackageNotFoundError:  # for another Python version
                continue
            yield waiting[-1]


def _copy_libraries(tree: Path) -> None:
    """Every shared library that a binary in the tree wants and the tree has not; links to libraries become the files."""
    binaries = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)]
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    for name in sorted(set(re.findall(r"(?:=> )?(/[^\s:]+) \(0x", listed))):
        if not (tree / name.lstrip("/")).exists():
            _copy(Path(name), tree)


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _finish(tree: Path) -> None:
    busybox = _tool("busybox")
    assert busybox
    shutil.copy(busybox, tree / "usr/bin/busybox")
    for applet in run("busybox", "--list").split():
        if not any((tree / "usr" / folder / applet).exists() for folder in ("bin", "sbin")):
            (tree / "usr/bin" / applet).symlink_to("/usr/bin/busybox")
    for name, text in {"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n", "os-release": "ID=test\n"}.items():
        if not (tree / "etc" / name).exists():
            (tree / "etc" / name).write_text(text)
    (tree / "sbin/test-init").write_text(INIT)
    (tree / "sbin/test-init").chmod(0o755)
    (tree / "etc/ld.so.conf").touch()
    run("ldconfig", "-r", tree)


# ---------------------------------------------------------------------- sysperf itself


def sources() -> Path:
    """A tar of this checkout's sysperf and rules, compiled, to be unpacked as /run/job."""
    files = sorted(path for folder in ("sysperf", "rules") for path in (CHECKOUT / folder).rglob("*") if path.suffix in (".py", ".toml"))
    key = [(str(path.relative_to(CHECKOUT)), path.read_bytes()) for path in files]
    return kept("sources", (sys.version, key), lambda folder: _make_sources(folder, files)) / "job.tar"


def _make_sources(folder: Path, files: Sequence[Path]) -> None:
    job = folder / "job"
    for path in files:
        inside = path.relative_to(CHECKOUT)
        target = job / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    run(sys.executable, "-m", "compileall", "-q", "-s", folder, "-p", "/run", job)
    with tarfile.open(folder / "job.tar", "w") as tar:
        tar.add(job, "job")
    shutil.rmtree(job)
