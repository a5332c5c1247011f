"""What ends a run, in one line for whoever started it."""


class TrainerError(Exception):
    """Training cannot go on, for this reason."""

    exit_code = 1


class UsageError(TrainerError):
    """The command is wrong."""

    exit_code = 2


class Unavailable(TrainerError):
    """A rung cannot be had on this machine."""

    exit_code = 3
