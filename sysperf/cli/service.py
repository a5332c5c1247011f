"""Install sysperf's services into systemd. They are the agent, a daily audit, and the helper that changes settings.

examples:
  sysperf service install --print          what would be written, and how it differs from what is there
  sudo sysperf service install --now       write the units, enable and start them
  sudo sysperf service install --now --no-helper --with see-all-users
  sysperf service status
  sudo sysperf service uninstall           remove what was written
  sysperf service install --prefix "$DESTDIR" --program /usr/bin/sysperf      for a package

Units that somebody changed are kept and named. docs/service.md tells what each unit may do.

exit codes:
  0  done; or all units are as they should be
  1  a unit was kept; or, of `status`, one failed or is of an older version
  2  the command line is wrong, or nothing can be installed here
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable

from sysperf import paths
from sysperf.cli import _units
from sysperf.model.change import LIVE
from sysperf.model.errors import Exit, SysperfError, UsageError
from sysperf.model.text import neutral

_KEPT = {
    "changed": "changed since sysperf wrote it (--force replaces it)",
    "foreign": "sysperf did not write it (--force replaces it)",
}
_SHOWN = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts", "StatusText", "FragmentPath", "DropInPaths")
_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "uninstall", "status"))
    parser.add_argument("--print", action="store_true", help="show what would be written or removed, and change nothing")
    parser.add_argument("--now", action="store_true", help="enable the units, and start them")
    parser.add_argument("--force", action="store_true", help="replace or remove files that somebody changed, too")
    parser.add_argument("--no-helper", action="store_true", help="without the helper that changes settings, which runs as root")
    parser.add_argument(
        "--with",
        dest="drop_ins",
        action="append",
        default=[],
        choices=sorted(_units.DROP_INS),
        help="let a service do more: see-all-users (agent and audit), apply (the agent), more-settings (the helper)",
    )
    group = parser.add_argument_group("for packages")
    group.add_argument("--prefix", metavar="DIR", help="write all units below DIR/usr/lib, and do nothing else")
    group.add_argument("--program", metavar="COMMAND", default="/usr/bin/sysperf", help="what they start then (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    if args.prefix is not None:
        return _package(args)
    return {"install": _install, "uninstall": _uninstall, "status": _status}[args.action](args)


def _install(args: argparse.Namespace) -> int:
    drop_ins = list(dict.fromkeys(args.drop_ins))
    if args.no_helper and "more-settings" in drop_ins:
        raise UsageError("more-settings is for the helper, which --no-helper leaves out", "give one of the two")
    if args.print:
        return _show(_units.wanted(_program_or_its_place(), helper=not args.no_helper, drop_ins=drop_ins))
    _needs_systemd()
    _needs_root(args)
    _no_package()
    kept = _write(_units.wanted(_units.this_program(), helper=not args.no_helper, drop_ins=drop_ins), force=args.force)
    _run("systemd-sysusers", f"{_units.SYSUSERS}/sysperf.conf")
    _run("systemctl", "daemon-reload")
    started = [name for name in _units.STARTED if not (args.no_helper and name in _units.HELPER)]
    if args.now:
        _start(started)
    else:
        sys.stderr.write(f"  next: sudo systemctl enable --now {' '.join(started)}\n")
    return Exit.FINDINGS if kept else Exit.CLEAN


def _start(names: list[str]) -> None:
    """Enable and start. Raises UsageError that names what did not start."""
    try:
        _run("systemctl", "enable", "--now", *names)
    except UsageError:
        failed = [name for name in names if _problem(_shown(name)) or _shown(name).get("ActiveState") == "activating"]
        if not failed:
            raise
        raise UsageError(f"{', '.join(failed)} did not start", f"journalctl -e -u {failed[0]}") from None
    sys.stdout.write(f"started   {' '.join(names)}\n")


def _write(files: Iterable[_units.File], *, force: bool) -> bool:
    """Write what is missing or older; whether something was kept."""
    kept = False
    for file in files:
        if file.state in _KEPT and not force:
            sys.stdout.write(f"kept      {file.path}: {_KEPT[file.state]}\n")
            kept = True
        elif file.state == "ours":
            sys.stdout.write(f"unchanged {file.path}\n")
        else:
            _or_usage(_units.write, file.path, file.content)
            sys.stdout.write(f"wrote     {file.path}\n")
    return kept


def _uninstall(args: argparse.Namespace) -> int:
    files = list(_units.written())
    if args.print:
        for file in files:
            sys.stdout.write(f"{'keep  ' if file.state == 'changed' and not args.force else 'remove'} {file.path}\n")
        return Exit.CLEAN
    _needs_root(args)
    gone = [file for file in files if file.state != "changed" or args.force]
    names = [os.path.basename(file.path) for file in gone if os.path.dirname(file.path) == _units.UNITS]
    if names and os.path.isdir("/run/systemd/system"):
        agent = [name for name in names if name in _units.AGENT]
        if agent:
            _run("systemctl", "disable", "--now", *agent)  # first, or it would make its changes again
        _end_leases()
        _run("systemctl", "disable", "--now", *names)
    for file in files:
        if file in gone:
            _or_usage(_units.remove, file.path)
            sys.stdout.write(f"removed   {file.path}\n")
        else:
            sys.stdout.write(f"kept      {file.path}: {_KEPT['changed'].replace('replaces', 'removes')}\n")
    if names and os.path.isdir("/run/systemd/system"):
        _run("systemctl", "daemon-reload")
        _run("systemctl", "reset-failed", *names, quiet=True)
    with contextlib.suppress(OSError):
        os.rmdir(paths.SYSTEM_RUNTIME)
    if not files:
        sys.stdout.write("nothing of sysperf is installed\n")
    else:
        _say_what_stays()
    return Exit.FINDINGS if len(gone) < len(files) else Exit.CLEAN


def _end_leases() -> None:
    """Undo what has a lease: who would end it is removed. Raises UsageError with nothing removed when it cannot be."""
    from sysperf.engine.change import Changer  # noqa: PLC0415 - only who uninstalls undoes

    changer = Changer(folder=paths.SYSTEM_STATE)
    for transaction in reversed(changer.journal.transactions()):
        if not (transaction.live and transaction.lease):
            continue
        try:
            left = [undone for undone in changer.undo(transaction.number) if undone.step.state in LIVE]
        except SysperfError as error:
            raise UsageError(f"transaction {transaction.number} has a lease and cannot be undone: {error}", error.hint) from None
        if left:
            reasons = "; ".join(f"{undone.step.change.target}: {undone.message}" for undone in left)
            raise UsageError(
                f"transaction {transaction.number} has a lease and cannot be undone ({reasons})",
                f"sudo sysperf undo {transaction.number}, then uninstall",
            )
        sys.stdout.write(f"undid     transaction {transaction.number}, whose lease would otherwise never end\n")


_STAY = {
    "/var/lib/private/sysperf-agent": "the history",
    "/var/lib/sysperf-agent": "the history",
    "/var/cache/private/sysperf-agent": "the agent's compiled rules",
    "/var/cache/sysperf-agent": "the agent's compiled rules",
    paths.SYSTEM_STATE: "the journal of changes",
    paths.SYSTEM_CONFIG: "the configuration",
}
"""What sysperf or systemd made for it, and `uninstall` leaves."""


def _say_what_stays() -> None:
    """All that is still there, by name; changes in force too."""
    stays = [f"{path} ({what})" for path, what in _STAY.items() if os.path.lexists(path)]
    sys.stderr.write(f"  still there: {', '.join(['the group sysperf', *stays])}\n")
    from sysperf.fix.journal import Journal  # noqa: PLC0415 - only who uninstalls looks

    live = [str(transaction.number) for transaction in Journal(paths.SYSTEM_STATE).transactions() if transaction.live]
    if live:
        sys.stderr.write(f"  still in force: transaction{'s' if len(live) > 1 else ''} {', '.join(live)} (`sudo sysperf undo --all`)\n")


def _status(_args: argparse.Namespace) -> int:
    _needs_systemd()
    drift = {os.path.basename(file.path): file.state for file in _drift()}
    bad = False
    for name in _units.ALL:
        facts = _shown(name)
        if facts.get("LoadState") == "not-found":
            sys.stdout.write(f"{name:<24} not installed\n")
            continue
        problem = _problem(facts)
        bad |= bool(problem)
        words = [f"{facts.get('ActiveState', '?')} ({facts.get('SubState', '?')})", facts.get("UnitFileState", "")]
        words += [f"exposure {_exposure(name)}"] if name.endswith(".service") else []
        words += [_WORDS[drift[name]]] if drift.get(name) in _WORDS else []
        words += [f"drop-ins: {facts['DropInPaths']}"] if facts.get("DropInPaths") else []
        words += [neutral(facts["StatusText"], 200)] if facts.get("StatusText") else []
        sys.stdout.write(f"{name:<24} {', '.join(word for word in words if word)}\n")
        if problem:
            sys.stdout.write(f"{'':<24} {problem}; why: journalctl -e -u {name}\n")
    older = any(state == "older" for state in drift.values())
    if older:
        sys.stderr.write("  next: `sudo sysperf service install` brings the units to this version\n")
    return Exit.FINDINGS if bad or older else Exit.CLEAN


_WORDS = {
    "older": "written by another version of sysperf",
    "changed": "changed since sysperf wrote it",
}


def _problem(facts: dict[str, str]) -> str:
    if facts.get("LoadState") != "loaded":
        return f"systemd cannot load it ({facts.get('LoadState', 'unknown')})"
    if facts.get("ActiveState") == "failed":
        return f"it failed ({facts.get('Result', 'unknown')})"
    if facts.get("NRestarts", "0") not in ("0", ""):
        return f"it was restarted {facts['NRestarts']} times"
    return ""


def _drift() -> list[_units.File]:
    """What is installed, compared with what this sysperf would write where a service can run it."""
    there = {file.path: file for file in _units.written()}
    try:
        now = {file.path: file for file in _units.wanted(_units.this_program(), drop_ins=_units.DROP_INS)}
    except UsageError:
        now = {}  # this sysperf is not the one that was installed: only changes by hand can be told
        return [file for file in there.values() if file.state == "changed"]
    return [now.get(path, file) for path, file in there.items()]


def _package(args: argparse.Namespace) -> int:
    if args.action != "install":
        raise UsageError(f"--prefix is for install, not for {args.action}", "remove the folder, or leave --prefix out")
    files = _units.packaged(args.program, args.prefix.rstrip("/"))
    if args.print:
        return _show(files)
    for file in files:
        _or_usage(_units.write, file.path, file.content)
        sys.stdout.write(f"wrote     {file.path}\n")
    return Exit.CLEAN


def _show(files: Iterable[_units.File]) -> int:
    """What would be written, as a diff."""
    for file in files:
        note = _KEPT.get(file.state, "")
        if note:
            sys.stdout.write(f"# kept {file.path}: {note}\n")
        before, after = file.now.splitlines(keepends=True), file.content.splitlines(keepends=True)
        sys.stdout.writelines(difflib.unified_diff(before, after, file.path if file.now else "/dev/null", file.path))
    return Exit.CLEAN


def _program_or_its_place() -> str:
    """The program for `--print`, which shall work anywhere; what hinders a real installation goes to stderr."""
    try:
        return _units.this_program()
    except UsageError as error:
        sys.stderr.write(f"sysperf: {error}\n  hint: {error.hint}\n")
        return "/opt/sysperf/bin/python -I -m sysperf"


def _needs_systemd() -> None:
    if not os.path.isdir("/run/systemd/system"):
        raise UsageError(
            "systemd does not run here",
            "let what starts programs here start `sysperf agent`; `sysperf service install --prefix DIR` writes units for another machine",
        )


def _needs_root(args: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        words = [args.action, *(["--now"] if args.now else []), *(["--force"] if args.force else [])]
        words += ["--no-helper"] if args.no_helper else []
        words += [word for name in args.drop_ins for word in ("--with", name)]
        raise UsageError("only root may change system services", f"sudo {sys.executable} -I -m sysperf service {' '.join(words)}")


def _no_package() -> None:
    """Units of a package would be hidden by ours, and the package's next version with them."""
    path = f"{_units.PACKAGED}/sysperf-agent.service"
    if os.path.exists(path):
        raise UsageError(f"{path}: a package has installed the units", f"sudo systemctl enable --now {' '.join(_units.STARTED)}")


def _or_usage(action: Callable[..., None], path: str, *rest: str) -> None:
    try:
        action(path, *rest)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "what was done before it stays; mend this and run it again") from None


def _run(tool: str, *words: str, quiet: bool = False) -> None:
    """Run a tool of systemd. Raises UsageError when it fails, unless `quiet`."""
    path = shutil.which(tool)
    if path is None:
        if quiet:
            return
        raise UsageError(f"no {tool} here", "it comes with systemd; the files that were written stay")
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{tool} {words[0]} did not end within {_SECONDS} s", "`systemctl list-jobs` shows what it waits for") from None
    if done.returncode and not quiet:
        raise UsageError(f"{tool} {words[0]}: {done.stderr.strip() or done.returncode}", "`sysperf service status` shows how far it came")


def _shown(name: str) -> dict[str, str]:
    out = _output("systemctl", "show", name, f"--property={','.join(_SHOWN)}")
    return dict(line.partition("=")[::2] for line in out.splitlines())


def _exposure(name: str) -> str:
    """The score that systemd gives the sandbox: 0 is closed, 10 open."""
    match = re.search(r"exposure level for \S+: ([0-9.]+)", _output("systemd-analyze", "security", "--no-pager", name))
    return match[1] if match else "unknown"


def _output(tool: str, *words: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout
