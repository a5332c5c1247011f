"""Running one program while sysperf stays as its parent, which `--probe` needs to say at the end what was counted.

The program is in our process group: what a terminal sends (Ctrl-C, Ctrl-Z, its size), or somebody to the group, comes to both, and what
somebody sends to us alone is passed on. It ends when we are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from sysperf.host.forked import ended, ending_with_parent
from sysperf.launch import several, start
from sysperf.launch.witness import Witness

_FROM_KERNEL = 0x80
"""si_code of a signal that the kernel sent, as it does for a terminal (sigaction(2), SI_KERNEL)."""
_AWAITED = {*several.FORWARDED, signal.SIGCHLD}


def run(argv: Sequence[str], env: Mapping[str, str], before: Callable[[], object] = lambda: None) -> int:
    """Start the program, pass signals on, wait. Returns its exit code, or 128+n when signal n ended it.

    `before` is called in the process that then becomes the program.
    """
    end_with_us = ending_with_parent(signal.SIGTERM)
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    pid = os.fork()
    if pid == 0:
        end_with_us()
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        _become(argv, env, before)
    witness = Witness()
    try:
        return _wait(pid, witness)
    finally:
        witness.end()
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _become(argv: Sequence[str], env: Mapping[str, str], before: Callable[[], object]) -> NoReturn:
    """Become the program, in the child, with signals as Python found them."""
    code = start.NOT_EXECUTABLE
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # which a script's programs in the background inherit
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        before()
        code, problem = start.become(argv, env)
        os.write(2, f"sysperf wrap: {problem}\n".encode())
    finally:
        os._exit(code)


def _wait(program: int, witness: Witness) -> int:
    while True:
        info = signal.sigwaitinfo(_AWAITED)
        if info.si_signo != signal.SIGCHLD:
            if not witness.got(info.si_signo) and info.si_code != _FROM_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(program, info.si_signo)
            continue
        code = dict(ended()).get(program)  # others are orphans, when we are the first process of a container
        if code is not None:
            return 128 - code if code < 0 else code
