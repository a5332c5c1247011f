"""What reading scripts costs: `ast` beside libcst (where it is installed), and the whole of `sysperf lint`, on 100,000 lines of a package;
then all of a folder by `sysperf lint` beside `ruff check`, which follows no values.

    python benchmarks/lint.py /path/to/site-packages/torch

Each reader runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

LINES = 100_000
READERS = {
    "ast": "import ast; ast.parse(text)",
    "libcst": "import libcst; libcst.parse_module(text)",
    "libcst with positions": "import libcst as c; c.MetadataWrapper(c.parse_module(text), unsafe_skip_copy=True)"
    ".resolve(c.metadata.PositionProvider)",
    "facts of sysperf lint": "from sysperf.script import examine, source; examine.examine(source.Source(path, text.encode()))",
}
MEASURE = """
import resource, sys, time
path = sys.argv[1]
text = open(path).read()
start = time.process_time()
{reader}
print(f"{{time.process_time() - start:7.2f}} s  {{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:5d}} MiB")
"""


def joined(folder: str) -> str:
    """The sources below a folder as one, up to `LINES` lines."""
    parts: list[str] = []
    lines = 0
    for parent, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".py") and lines < LINES:
                with open(os.path.join(parent, name), encoding="utf-8", errors="replace") as file:
                    parts.append(file.read().replace("from __future__ import annotations", ""))
                lines += parts[-1].count("\n")
    return "\n".join(parts)


def folder_of(path: str) -> None:
    """Measure both linters on a whole folder: wall, CPU of all processes, and files a second."""
    ruff = shutil.which("ruff", path=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', '')}")
    commands = {
        "ruff check": [ruff, "check", "--isolated", "--no-cache", "--quiet", "--exit-zero", path] if ruff else [],
        "sysperf lint": [sys.executable, "-m", "sysperf", "lint", path, "--config", os.devnull],
    }
    files = sum(name.endswith(".py") for _, _, names in os.walk(path) for name in names)
    print(f"\n{path}: {files:,} files")
    for name, command in commands.items():
        print(f"{name:<22} {cost(command, files) if command else 'is not installed'}")


def cost(command: list[str], files: int) -> str:
    """The time of a command and of its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{wall:7.2f} s  {cpu:7.2f} s of CPU  {files / wall:7,.0f} files a second"


def main() -> None:
    """Measure each reader on one file, then both linters on the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a package whose sources are read")
    folder = parser.parse_args().folder
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        text = joined(folder)
        file.write(text)
        file.flush()
        print(f"{text.count(chr(10)):,} lines, {len(text) >> 10:,} KiB")
        for name, reader in READERS.items():
            done = subprocess.run(
                [sys.executable, "-c", MEASURE.format(reader=reader), file.name], capture_output=True, text=True, check=False
            )
            print(f"{name:<22} {done.stdout.strip() or done.stderr.strip().splitlines()[-1]}")
    folder_of(folder)


if __name__ == "__main__":
    main()
