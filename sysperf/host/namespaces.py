"""Whether a process is in the namespaces in which the kernel started.

Reads   /proc/self/ns/pid
Kernel  include/linux/proc_ns.h (PROC_PID_INIT_INO)
"""

from sysperf.host import Host

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def counts_processes_as_the_kernel(host: Host) -> bool:
    """Whether process numbers that drivers tell are ours; those of a container are others."""
    return host.link("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE
