"""A program's threads: which there are, how many compute, how many CPUs they want.

Reads   /proc/[pid]/task/*/{stat,schedstat,syscall}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import demand
from sysperf.collect.process.parts import ProgramThreads
from sysperf.collect.process.subject import Subject
from sysperf.model.text import neutral


def threads(subject: Subject) -> ProgramThreads:
    """The number and names of threads, and the CPUs that they want."""
    threads, host, pid, uptime_s = subject.threads, subject.host, subject.pid, subject.machine.uptime_s
    if threads is None:
        return ProgramThreads(count=subject.stat.threads)
    shares = demand.of_threads(host, pid, threads.stats, uptime_s)
    wanted = None if shares is None else demand.together(shares.values())
    if shares is None and threads.compute > 2:  # too many for all of them, hardly for the team
        shares = demand.of_threads(host, pid, threads.team, uptime_s)
    team = demand.together(shares[stat.pid] for stat in threads.team if stat.pid in shares) if shares and threads.compute > 2 else None
    waiters = demand.lock_waiters(host, pid, [stat.pid for stat in threads.team]) if team else 0
    takes_turns = demand.share_a_lock(threads.compute, team, waiters)
    return ProgramThreads(
        count=subject.stat.threads,
        computing=1 if takes_turns else threads.compute,
        sharing_lock=threads.compute if takes_turns else 0,
        lock_waiters=waiters if takes_turns else 0,
        wanted_cpus=None if wanted is None else round(wanted.cpus, 3),
        used_cpus=None if wanted is None else round(wanted.used, 3),
        wait_s=None if wanted is None else round(wanted.wait_s, 3),
        names=tuple(neutral(name, 40) for name in threads.names),
        pins_memory=subject.has_thread("pt_data_pin", since="2.5"),
        ran_backward=subject.has_thread("pt_autograd", since="2.4"),
        nccl_group=subject.has_thread("pt_nccl", since="2.5"),
        gloo_group=subject.has_thread("pt_gloo", "gloo_", since="2.11"),
    )
