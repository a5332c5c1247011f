"""The command: what is asked, whether it can be done here, and how it ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from sysperf_trainer import showing
from sysperf_trainer.chosen import ALL, Chosen, UnknownRung
from sysperf_trainer.errors import TrainerError, Unavailable, UsageError
from sysperf_trainer.options import Options, ids, parser
from sysperf_trainer.rung import LADDER, Rung
from sysperf_trainer.rungs import BY_ID, rungs

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code. What a user can do something about is one line on stderr."""
    args = parser().parse_args(argv)
    try:
        return run(args)
    except UnknownRung as error:
        return _fail(UsageError(str(error)))
    except TrainerError as error:
        return _fail(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (RuntimeError, OSError, ValueError) as error:
        if args.debug:
            raise
        hint = f"; where a compile was killed, remove {compile_cache()}" if "inductor" in type(error).__module__ else ""
        return _fail(TrainerError(f"{type(error).__name__}: {first_line(error)} (--debug shows where{hint})"))


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say. Raises TrainerError and UnknownRung."""
    if args.show:
        sys.stdout.write(showing.show(args.show))
        return 0
    if not args.workload:
        raise UsageError("which workload? --workload text, or --workload vision")
    import_needed()
    from sysperf_trainer.needs import lacks  # noqa: PLC0415 - torch is there now

    given = options(args)
    reasons = {rung: lacks(rung, given) for rung in rungs(given.workload)}
    if args.list:
        sys.stdout.write(showing.listing(reasons, as_json=bool(args.json)))
        return 0
    if args.rungs == ALL:
        reasons |= dict.fromkeys(Chosen(ids(args.without)), "left out by --without")
        chosen, skipped = every(reasons)
    else:
        chosen, skipped = Chosen(ids(args.rungs)), {}
    check(chosen, given.workload, reasons)
    return train(given._replace(rungs=chosen), skipped)


def train(given: Options, skipped: dict[str, str]) -> int:
    """Train, write the record however that ends, and return the exit code. Raises TrainerError."""
    from sysperf_trainer.train import Training  # noqa: PLC0415 - torch is there now

    training = Training(given)
    try:
        training.run()
    except BaseException as error:
        training.leave(skipped, first_line(error) or type(error).__name__)
        raise
    training.leave(skipped)
    return INTERRUPTED if training.was_interrupted else 1 if training.checkpoint_failed() else 0


def import_needed() -> None:
    """Import torch and numpy. Raises UsageError with what is to be installed."""
    try:
        import numpy  # noqa: F401, PLC0415 - here an absent one becomes a sentence
        import torch  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError(f"{sys.executable}: {error}; install it: {sys.executable} -m pip install torch numpy") from None


def options(args: argparse.Namespace) -> Options:
    """Return the options of a command line; device and size by what is here. Raises UsageError."""
    device = _device(args.device)
    size = args.size if args.size != "auto" else "full" if device.startswith("cuda") else "small"
    if args.max_steps < 1 or args.batch < 0 or args.checkpoint_every < 0:
        raise UsageError("steps and samples are counted from 1")
    if (args.resume or args.checkpoint_every) and not args.checkpoints:
        raise UsageError("which folder? --checkpoints FOLDER")
    same = {name: getattr(args, name) for name in Options._fields if hasattr(args, name)}
    shows = args.json != "-"
    return Options(
        **{**same, "rungs": Chosen(), "device": device, "size": size, "lines": shows, "progress": shows and not args.no_progress}
    )


def _device(asked: str) -> str:
    """The device of this rank."""
    import torch  # noqa: PLC0415 - it is there now

    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise UsageError(f"torch {torch.__version__} sees no GPU")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= torch.cuda.device_count():
        raise UsageError(f"there are {torch.cuda.device_count()} GPUs for rank {local_rank} of this machine")
    torch.cuda.set_device(local_rank)
    return f"cuda:{local_rank}"


def every(reasons: dict[Rung, str]) -> tuple[Chosen, dict[str, str]]:
    """Return all rungs of the ladder that can be had, and the reasons of the others."""
    ladder = {rung: reason for rung, reason in reasons.items() if rung.role == LADDER and rung.launch is None}
    skipped = {rung.id: reason for rung, reason in ladder.items() if reason}
    for rung in ladder:
        if absent := [other for other in rung.requires if other in skipped or BY_ID[other] not in ladder]:
            skipped.setdefault(rung.id, f"it changes nothing without {' and '.join(absent)}")
    return Chosen(rung.id for rung in ladder if rung.id not in skipped), skipped


def check(chosen: Chosen, workload: str, reasons: dict[Rung, str]) -> None:
    """Raise UnknownRung where rungs do not go together, and Unavailable where one cannot be had here."""
    chosen.check(workload)
    for rung in chosen:
        if rung.launch is not None:
            raise UsageError(f"the rung {rung.id} changes how the program is started: `sysperf bench trainer` does that")
        if reasons[rung]:
            raise Unavailable(f"the rung {rung.id} cannot be had here: {reasons[rung]}")


def compile_cache() -> str:
    """Return the folder in which torch.compile keeps kernels; it does not notice a file that a killed compile left half written."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415 - after an error of that compiler only

    return str(cache_dir())


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def _fail(error: TrainerError) -> int:
    rank = os.environ.get("RANK")
    sys.stderr.write(f"sysperf_trainer: {f'rank {rank}: ' if rank else ''}{error}\n")
    return error.exit_code
