"""The variables with which a program was started, and what they say: its rank, and what was to be preloaded.

Reads   /proc/[pid]/{environ,cmdline,exe}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import loaded_torch, ranks, unknown_variables
from sysperf.collect.process.subject import Subject
from sysperf.model.record import Fields


def variables(subject: Subject) -> Fields:
    """The environment of the program, its launcher, its ranks and its job."""
    host, env, mapped, stat = subject.host, subject.env, subject.mapped, subject.stat
    launcher = ranks.launcher(subject.family.argv, subject.threads)
    given = ranks.given(host, env, stat.ppid)
    is_child = stat.ppid in subject.machine.families or (not launcher and (given["rank"] or 0) >= 0 and env is not None)
    preload = None if env is None else tuple(env.get("LD_PRELOAD", "").replace(":", " ").split())
    return {
        "env": env,
        "preload": preload,
        "preload_missing": None if preload is None else loaded_torch.not_loaded(host, preload, mapped, subject.root),
        "variables_searched": env is not None and host.deep,
        "unread_variables": unknown_variables.unread(host, env, mapped, subject.root) if env is not None and host.deep else None,
        "launcher": launcher,
        **given,
        "job": stat.ppid if is_child else stat.pid,
    }
