"""/proc/PID/cmdline: the arguments with which a program was started, a NUL behind each.

Kernel  https://man7.org/linux/man-pages/man5/proc_pid_cmdline.5.html
"""

MAX_BYTES = 256 << 10
MAX_ARGUMENTS = 4_096


def arguments(text: str) -> tuple[str, ...]:
    """The arguments. A program that overwrote them with a title has one; one that cleared them has one empty one."""
    return tuple(text.rstrip("\0").split("\0"))[:MAX_ARGUMENTS]
