"""What each tool answers: by one of sysperf's own commands with fixed words, or by what its agent knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from sysperf import paths
from sysperf.agent.answers import Findings
from sysperf.agent.client import Client
from sysperf.collect import AREAS
from sysperf.engine import gains, judging, reading
from sysperf.fleet.engines import programs as started
from sysperf.host.commands import sysperf_command
from sysperf.mcp.pages import Answer, cut, untrusted
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.node import is_name
from sysperf.model.record import Json, JsonObject, from_json, plain
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral

SECONDS = 60.0
MAX_OUTPUT_BYTES = 64 << 20
MAX_OBSERVED_S = 30
MAX_FIXES = 3
AGENT_S = 2.0
AREAS_SHOWN = tuple(area for area in AREAS if area != "process")
"""Programs have a tool of their own, which shows neither environments nor whole command lines."""
_SECRET = ("env", "environment", "command", "argv", "cmdline", "variables")
_RULE = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)+")


def inside(path: str, folders: Sequence[str]) -> str:
    """The path, links followed, if it lies below an allowed folder. Raises UsageError."""
    real = os.path.realpath(path)
    for folder in map(os.path.realpath, folders):
        if real == folder or real.startswith(folder.rstrip("/") + "/"):
            return real
    raise UsageError("this path lies in no allowed folder", "start the server with `sysperf mcp --allow FOLDER`")


def _asked(*words: str, seconds: float = SECONDS) -> Json:
    """What a command of ours answers as JSON. Raises SysperfError with what it complained of."""
    ended = started.run((*sysperf_command(), *words), seconds, most=MAX_OUTPUT_BYTES)
    if ended.code not in (0, 1, 3):
        lines = [line.removeprefix("sysperf: ") for line in ended.complaint.splitlines() if line.startswith("sysperf: ")]
        raise SysperfError(neutral(ended.problem or (lines or [ended.last_words or "it ended without an answer"])[0], 300))
    try:
        return from_json(ended.output, Json)
    except ValueError:
        raise SysperfError("the answer of the command is no JSON") from None


def findings(min_severity: str = "hint", rule: str = "", scope: str = "") -> Answer:
    """The agent's findings, else an audit's."""
    try:
        tracked = Client(paths.default_socket(), AGENT_S).ask("/v1/findings", Findings).findings
        found = [plain(each.outcome) for each in tracked if each.state == "active"]
        about: JsonObject = {"as_of": reading.now(), "source": "agent"}
        unknown: list[JsonObject] = []
    except SysperfError:
        report = _asked("audit", "--json", "--fail-on", "never")
        found = [each for each in report["outcomes"] if each["state"] in ("finding", "confirmed", "likely")]
        about = {"as_of": report["snapshot"]["taken_at"], "source": "audit"}
        unknown = [_gap(each) for each in report["outcomes"] if each["state"] == "unknown"]
    worst = SEVERITIES.index(min_severity)
    rows = [
        finding(each)
        for each in found
        if SEVERITIES.index(each["severity"]) <= worst and rule in ("", each["rule"]) and scope in ("", each["scope"])
    ]
    return Answer(rows, unknown, machine=os.uname().nodename, **about)


def finding(found: Mapping[str, Json]) -> JsonObject:
    """One finding: what is ours as it is, what others wrote under names that say so."""
    fixes = [
        {"safety": fix["safety"], "needs": fix["needs"], **untrusted(title=fix["title"], command=fix["command"])}
        for fix in found.get("fixes", ())[:MAX_FIXES]
    ]
    places = [
        untrusted(place=f"{place.get('file', '')}:{place.get('line', 0)}", code=place.get("code")) for place in found.get("places", ())
    ]
    gain = {name: found["gain"].get(name) for name in ("basis", "low", "middle", "high")}
    costs = {"cost_pct": found["cost_pct"]} if found.get("cost_pct") is not None else {}
    return {
        **{name: found[name] for name in ("rule", "state", "severity", "scope", "title", "confidence")},
        **untrusted(subject=_subject(found.get("subject", {})), message=found.get("message")),
        **costs,
        **({"places": places[:3]} if places else {}),
        "fixes": fixes,
        **({"gain": gain} if gain["basis"] != "unmeasured" else {}),
    }


def _subject(subject: Mapping[str, Json]) -> str:
    kind, name = subject.get("kind", "machine"), subject.get("name", "")
    if kind == "gpu":
        return f"GPU {subject.get('index')} ({name})"
    return f"{name} (pid {subject.get('pid')})" if kind == "process" else str(name)


def _gap(outcome: Mapping[str, Json]) -> JsonObject:
    first = (outcome.get("unknown") or [{}])[0]
    return {"rule": outcome["rule"], "fact": neutral(str(first.get("fact", "")), 100), **untrusted(reason=first.get("reason"))}


def explain_rule(rule: str) -> Answer:
    """The rule's own text, which comes with sysperf or from the site's rule files."""
    if not _RULE.fullmatch(rule):
        raise UsageError("this is no id of a rule", "findings have them, such as memory.thp-never")
    told = _asked("explain", rule, "--json")
    return Answer([{"rule": rule, "text": cut(_flat_text(told), 12_000)}])


def _flat_text(told: Json) -> str:
    if isinstance(told, dict):
        return "\n".join(
            f"{name}: {_flat_text(value)}" for name, value in told.items() if value not in (None, "", [], {}) and name != "test"
        )
    return "; ".join(map(_flat_text, told)) if isinstance(told, list) else str(told)


def programs() -> Answer:
    """Programs by what they are; neither their environment nor their command line."""
    area = _asked("ps", "--json")["process"]
    rows = [
        {
            **{name: each[name] for name in ("pid", "user", "age_s", "cuda_used") if isinstance(each.get(name), int | float | bool)},
            "torch_version": each["torch"]["version"],
            "rank": each["job"]["rank"],
            "world_size": each["job"]["world_size"],
            "threads": each["threads"]["count"],
            "workers": each["workers"]["count"],
            **untrusted(name=each.get("name")),
        }
        for each in (area.get("facts") or {}).get("processes") or ()
    ]
    unknown = [untrusted(reason=area["problem"])] if area.get("problem") else []
    return Answer(rows, unknown, machine=os.uname().nodename, as_of=reading.now())


def facts(area: str) -> Answer:
    """One area, fact by fact."""
    told = _asked("facts", area, "--json")
    read = told["areas"].get(area) or {}
    rows = [{"fact": name, **untrusted(value=value)} for name, value in _flat(read.get("facts"), area)]
    unknown = [untrusted(source=each.get("path"), reason=each.get("error")) for each in read.get("failures") or ()]
    unknown += [untrusted(reason=read["problem"])] if read.get("problem") else []
    return Answer(rows, unknown, machine=os.uname().nodename, as_of=told["taken_at"])


def _flat(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each fact; what may be somebody's environment or command line is left out."""
    if isinstance(value, dict):
        for name, item in value.items():
            if not any(word in name.lower().split("_") for word in _SECRET):
                yield from _flat(item, f"{path}.{neutral(name, 80)}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, item in enumerate(value):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, "unknown" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def diagnose(pid: int, seconds: int, *, observe: bool) -> Answer:
    """The causes that a running program shows."""
    how = () if observe else ("--passive",)
    told = _asked("diagnose", str(pid), "--json", "--seconds", str(min(seconds, MAX_OBSERVED_S)), *how, seconds=SECONDS + MAX_OBSERVED_S)
    return Answer(
        [finding(each) for each in told["causes"]], (), verdict=told["verdict"], as_of=reading.now(), **untrusted(sentence=told["sentence"])
    )


def trace_report(path: str, top: int = 50) -> Answer:
    """The findings of a trace, with what each costs."""
    told = _asked("analyze", path, "--json", "--fail-on", "never", seconds=5 * SECONDS)
    unknown = [_gap(each) for each in told["unknown"] if isinstance(each, dict) and "rule" in each]
    return Answer([finding(each) for each in told["findings"][:top]], unknown, verdict=told["verdict"], **untrusted(why=told["why"]))


def trace_compare(a: str, b: str) -> Answer:
    """What differs between two traces, fact by fact."""
    told = _asked("analyze", b, "--against", a, "--json", "--fail-on", "never", seconds=5 * SECONDS)
    return Answer([{"what": name, **untrusted(value=value)} for name, value in _flat(told, "")])


def lint_script(path: str) -> Answer:
    """Hypotheses with their lines."""
    told = _asked("lint", path, "--json", "--fail-on", "never")
    unknown = [untrusted(reason=str(each)) for each in told["unread"]]
    return Answer([finding(each) for each in told["hypotheses"]], unknown, undecided=told["undecided"])


def plan(rules: Sequence[str] = ()) -> Answer:
    """The changes that a user could make with `sysperf apply`."""
    if not all(map(_RULE.fullmatch, rules)):
        raise UsageError("this is no id of a rule", "findings have them, such as memory.thp-never")
    told = _asked("plan", "--json", *(word for rule in rules for word in ("--select", rule)))
    rows = [{"kind": "change", **untrusted(change=_flat_text(each))} for each in told["plan"]["changes"]]
    rows += [
        {"kind": "by hand", "rule": each["rule"], **untrusted(subject=each["subject"], reason=each["reason"])} for each in told["manual"]
    ]
    return Answer(rows, to_apply="sudo sysperf apply", to_undo="sudo sysperf undo", changed="nothing")


def studies(name: str = "") -> Answer:
    """Results of this machine, the newest first."""
    kept = gains.kept()
    rows = [
        {
            **{
                field: getattr(trial, field)
                for field in ("experiment", "verdict", "ratio", "low", "high", "confidence", "pairs", "at", "rule")
            },
            "stale": kept.is_stale(trial),
            **untrusted(what=trial.what, metric=trial.metric),
        }
        for trial in reversed(kept.results)
        if name.lower() in f"{trial.what} {trial.rule} {trial.experiment}".lower()
    ]
    return Answer(rows, [untrusted(reason=kept.problem)] if kept.problem else [])


def fleet_report(folder: str, node: str = "", of_class: str = "") -> Answer:
    """The lines of a fleet, of one node or class where one is named."""
    if node and not is_name(node):
        raise UsageError("this is no name of a node", "names have letters, digits, dots and hyphens")
    told = _asked("fleet", "audit", folder, "--json", "--fail-on", "never")
    rows = [
        *(
            {"kind": "finding", "rule": each["rule"], "severity": each["severity"], **_who(each["nodes"], node, message=each["message"])}
            for each in told["findings"]
        ),
        *(
            {"kind": each["kind"], "fact": neutral(each["fact"], 200), "known": each["known"], "doubtful": each["doubtful"]}
            | _who([name for held in each["values"] for name in held["nodes"]], node, expected=each["expected"], of_class=each["of_class"])
            | {"values": [{"count": held["count"], **untrusted(value=held["value"])} for held in each["values"][:4]]}
            for each in told["differences"]
        ),
        *(
            {"kind": "unknown", "area": neutral(each["area"], 100), **_who(each["nodes"], node, why=each["why"])}
            for each in told["unknown"]
        ),
        *({"kind": each["state"], **_who(each["nodes"], node, reason=each["reason"])} for each in told["silent"]),
    ]
    wanted = [row for row in rows if (not node or row["count"]) and of_class in ("", row.get("untrusted_of_class", ""))]
    classes = [{"count": each["count"], **untrusted(name=each["name"])} for each in told["classes"][:8]]
    return Answer(wanted, asked=told["asked"], answered=told["answered"], as_of=told["newest"] or told["taken_at"], classes=classes)


def _who(nodes: Sequence[str], node: str, **texts: object) -> JsonObject:
    from sysperf.fleet.names import fold  # noqa: PLC0415 - beside its only use

    kept = [name for name in nodes if node in ("", name)]
    return {"count": len(kept), **untrusted(nodes=fold(kept, 8), **texts)}


def rule_ids() -> list[str]:
    """The ids of all rules in force."""
    return sorted({rule.id for rule in judging.load_rules().rules})


def doc(page: str) -> str:
    """A page of the documentation."""
    folder = paths.shipped("docs")
    if page not in doc_pages():
        raise UsageError("no such page", f"there are {', '.join(doc_pages())}")
    with open(f"{folder}/{page}.md", encoding="utf-8") as file:
        return cut(file.read())


def doc_pages() -> list[str]:
    """The names of the pages."""
    folder = paths.shipped("docs")
    return sorted(name.removesuffix(".md") for name in os.listdir(folder) if name.endswith(".md")) if os.path.isdir(folder) else []
