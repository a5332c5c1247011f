"""The allocator that a launch asks for: the file to preload, or why there is none."""

from __future__ import annotations

from sysperf.engine.wrap.facts import Known

PACKAGES = {"tcmalloc_minimal": "libtcmalloc-minimal4", "jemalloc": "libjemalloc2", "mimalloc": "libmimalloc2.0"}
"""Debian's packages of the allocators."""


def find_allocator(known: Known, library: str) -> tuple[str, str]:
    """(path, problem): a file that is there and that the program will take, or "" and the reason."""
    from sysperf.launch import preload  # noqa: PLC0415 - 0.7 ms; few launches ask for an allocator

    live, program = known.host.live, known.program
    listed = {file.name: file.path for file in (known.areas.allocator.libraries if known.areas.allocator else None) or ()}
    folder = program.torch.lib_folder if program.torch else ""
    paths = preload.candidates(library, (folder,), listed) if live else [listed[library]] if library in listed else []
    target = program.interpreter or program.path
    problem = f"no {library} was found here: install it (Debian: {PACKAGES[library]})"
    for path in paths:
        refusal = preload.refusal(path, target) if live else ""
        if not refusal:
            return path, ""
        problem = refusal
    return "", problem


def is_missing(known: Known, library: str) -> bool:
    """Whether an allocator was named that cannot be preloaded."""
    return library in PACKAGES and not find_allocator(known, library)[0]
