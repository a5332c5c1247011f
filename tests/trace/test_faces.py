"""The faces of an analysis: text in one screen, every format of the audit, a page of its own, rows for Perfetto, two traces side by side."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from pathlib import Path

import jsonschema
import pytest

from sysperf.cli import main
from sysperf.report.formats import FORMATS
from sysperf.report.profiling import difference as trace_difference
from sysperf.trace import account, read
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.output.annotate import PROCESS
from sysperf.trace.output.difference import compare

from .labelled import HERE
from .synthetic import Machine, steps, written

BEFORE, AFTER = str(HERE / "kineto_resnet50_nw0.json.gz"), str(HERE / "kineto_resnet50_nw4.json.gz")
SCREEN = 45
ROOT = HERE.parent.parent


OF_AUDIT = tuple(form for form in FORMATS if form not in ("text", "json", "html"))


@pytest.fixture(name="reports", scope="module")
def make_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reports of one analysis in every format, by format."""
    folder = tmp_path_factory.mktemp("reports")
    paths = {form: folder / form for form in ("text", "json", "html", *OF_AUDIT)}
    options = [option for form, path in paths.items() for option in ("--format", form, "--output", str(path))]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "100")
        assert main(["analyze", BEFORE, *options]) == 0
    return {form: path.read_text() for form, path in paths.items()}


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["analyze", *arguments]) == 0
    return capsys.readouterr().out


def test_each_format_is_one_of_its_own(reports: dict[str, str]) -> None:
    """None that is offered is answered by the text for people; `concise` has a line a finding."""
    assert len({*reports.values()}) == len(FORMATS)
    assert all(line.startswith(("warning: ", "info: ", "hint: ")) for line in reports["concise"].splitlines())


def test_text_fits_a_screen_and_says_what_bounds_the_program(reports: dict[str, str]) -> None:
    text = reports["text"]

    assert len(text.splitlines()) <= SCREEN
    assert max(map(len, text.splitlines())) <= 100
    assert "Input-bound: the device waits for the loader 33 % of the time." in text
    assert "dataloader.inline  costs 32.9 %  gains 25 to 32 %" in text
    assert "resnet50_profiler_api.py:42" in text
    assert "busy 57.1 %" in text


def test_json_fits_its_published_schema(reports: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """What --schema prints, --json follows."""
    published = told(capsys, "--schema")
    jsonschema.Draft202012Validator.check_schema(json.loads(published))
    others = (told(capsys, str(HERE / name), "--json") for name in ("hta_cpu_only.json.gz", "nsysai_mock.sqlite"))
    for document in map(json.loads, (reports["json"], *others)):
        jsonschema.validate(document, json.loads(published))
        assert {"schema", "file", "verdict", "summary", "devices", "findings"} <= set(document)
    assert document["summary"]["dataloader_exposed_pct"] is None


def test_busy_time_is_no_exposed_time(reports: dict[str, str]) -> None:
    """Nothing waits while slow kernels run: what they take is told as such, and in the figures' terms."""
    document = {finding["rule"]: finding for finding in json.loads(reports["json"])["findings"]}
    slow, waits = document["precision.tensor-cores-unused"], document["dataloader.inline"]

    assert slow["cost_pct"] is None
    assert slow["work_pct"] == pytest.approx(0.627 * 55.9, abs=1)
    assert (waits["cost_pct"], waits["work_pct"]) == (pytest.approx(32.9, abs=0.1), None)
    assert "precision.tensor-cores-unused  busy with it" in reports["text"]


@pytest.mark.parametrize("form", OF_AUDIT)
def test_every_format_of_the_audit_shows_the_finding(form: str, reports: dict[str, str]) -> None:
    assert "dataloader.inline" in reports[form]


def test_the_page_needs_nothing_else(reports: dict[str, str]) -> None:
    """No address to load from, a policy that allows the scripts in it, and data that they can read."""
    page = reports["html"]
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)

    assert data is not None
    drawn = json.loads(data[1])
    assert sum(len(row["start"]) for row in drawn["rows"]) > 10_000
    assert all(len(row["start"]) == len(row["color"]) == len(row["name_of"]) for row in drawn["rows"])
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert page.count("<script") == 3


def test_a_finding_leads_to_its_place_on_the_timeline(reports: dict[str, str]) -> None:
    """The loader's finding to the longest gap that waits for the loader; the place is one that is drawn."""
    page = reports["html"]
    finding = page[page.index("<code>dataloader.inline") :].partition("</section>")[0]
    start, end = map(float, re.findall(r'href="#time=([\d.]+)-([\d.]+)"', finding)[0])
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert data is not None
    rows = json.loads(data[1])["rows"]
    exposed = next(row for row in rows if row["name"] == "device 0: exposed time")
    of_loader = [
        (begun, begun + long)
        for begun, long, color in zip(exposed["start"], exposed["duration"], exposed["color"], strict=True)
        if color == 1
    ]

    assert (start * 1e6, end * 1e6) == pytest.approx(max(of_loader, key=lambda span: span[1] - span[0]))
    assert "Optimizer." in page
    assert "#time=" in page[page.index("<code>optimizer.unfused") :].partition("</section>")[0]


def test_the_timeline_is_a_table_too(reports: dict[str, str]) -> None:
    """Each kind of event in each row, with its share, for whoever does not see the picture."""
    page = reports["html"]
    table = page[page.index("The timeline as a table") :].partition("</table>")[0]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in table.split("<tr>")]
    shares = {tuple(row[:2]): row[4] for row in rows if row}

    assert shares["device 0: exposed time", "loader"] == "32.9 %"
    assert shares["device 0: exposed time", "busy"] == "57.1 %"
    assert ("device 0, stream 7", "kernels") in shares


def test_the_annotated_trace_is_the_trace_with_our_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All events as before; the figures of both are the same."""
    trace = steps(Machine(), 6, lambda machine: (machine.load(3_000), [machine.kernel(100) for _ in range(40)], machine.synchronize()))
    source, out = tmp_path / "trace.json.gz", tmp_path / "seen.json.gz"
    source.write_bytes(gzip.compress(json.dumps(trace.trace()).encode()))
    told(capsys, str(source), "--annotate", str(out))
    with gzip.open(source) as file, gzip.open(out) as annotated:
        before, after = json.load(file), json.load(annotated)
    ours = [event for event in after["traceEvents"] if event.get("cat") == "sysperf"]

    assert [event for event in after["traceEvents"] if event.get("pid") != PROCESS] == before["traceEvents"]
    assert "dataloader.inline" in {event["name"] for event in ours}
    loader = sum(event["dur"] for event in ours if event["name"] == "loader")
    facts = account(read(str(out)))
    assert facts.figures == account(read(str(source))).figures
    assert facts.figures.dataloader_exposed_pct
    assert loader == pytest.approx(facts.figures.dataloader_exposed_pct / 100 * (facts.window_ms or 0) * 1e3, rel=1e-3)


@pytest.mark.parametrize("form", ["object", "list"])
@pytest.mark.parametrize("part", [0.3, 0.9, 0.9985, 0.999])
def test_the_annotated_copy_of_a_cut_trace_can_be_opened(tmp_path: Path, form: str, part: float) -> None:
    """It has every whole event of the trace, and no half one."""
    trace = steps(Machine(), 6, lambda machine: (machine.kernel(300), machine.synchronize(), machine.think(200))).trace()
    text = json.dumps(trace["traceEvents"] if form == "list" else {**trace, "otherData": {"a": [[{"id": 1}, {"id": 2}]]}})
    path, target = written(tmp_path, text[: int(len(text) * part)]), tmp_path / "annotated.json"

    assert main(["analyze", path, "--annotate", str(target)]) == 0
    annotated = json.loads(target.read_text())
    events = annotated if form == "list" else annotated["traceEvents"]
    ours = [event for event in events if event["pid"] == PROCESS]
    kept = [event for event in events if event["pid"] != PROCESS]
    assert ours
    assert kept == trace["traceEvents"][: len(kept)]
    assert len(kept) >= int(part * len(trace["traceEvents"])) - 2


def test_a_configuration_changes_rules_about_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those about machines, of which it may speak, too, are none of an analysis's concern; a misspelt one about traces is told."""
    config = tmp_path / "config.toml"
    source = written(tmp_path, steps(Machine(), 6, lambda machine: (machine.load(3_000), machine.kernel(100))).trace())
    options = ("--config", str(config), "--format", "json")
    config.write_text("")
    assert "dataloader.inline" in told(capsys, source, *options)
    config.write_text(
        '[[override]]\nrule = "numa.balancing-on"\nseverity = "hint"\n[[override]]\nrule = "dataloader.inline"\ndisabled = true\n'
    )
    assert "dataloader.inline" not in told(capsys, source, *options)
    config.write_text('[[override]]\nrule = "dataloader.inlyne"\ndisabled = true\n')
    assert main(["analyze", source, *options]) == 2
    assert "dataloader.inline" in capsys.readouterr().err


def test_nothing_but_a_file_is_replaced_by_an_annotated_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No pipe or device, and no file that a link in the same folder leads to."""
    other, target, pipe = tmp_path / "other", tmp_path / "seen.json", tmp_path / "pipe"
    other.write_text("mine")
    (tmp_path / "seen.json.part").symlink_to(other)
    os.mkfifo(pipe)
    source = written(tmp_path, steps(Machine(), 6, lambda machine: machine.kernel(100)).trace())

    assert main(["analyze", source, "--annotate", str(pipe)]) == 2
    assert "is no file" in capsys.readouterr().err
    assert main(["analyze", source, "--annotate", str(tmp_path / "gone/seen.json")]) == 2
    assert "seen.json: No such file or directory\n" in capsys.readouterr().err
    assert main(["analyze", source, "--annotate", str(target)]) == 0
    assert (other.read_text(), pipe.is_fifo()) == ("mine", True)
    assert "sysperf" in target.read_text()


def test_two_traces_of_one_name_are_annotated_apart(tmp_path: Path) -> None:
    """Each output has the findings of its own trace."""
    seen = []
    for name, us in (("slow", 3_000.0), ("fast", 0.0)):

        def step(machine: Machine, us: float = us) -> None:
            machine.load(us)
            for _ in range(10):
                machine.kernel(100)
            machine.synchronize()

        (tmp_path / name).mkdir()
        source = written(tmp_path / name, steps(Machine(), 6, step).trace())
        assert main(["analyze", source, "--annotate", str(tmp_path / f"{name}.json")]) == 0
        seen.append("dataloader.inline" in (tmp_path / f"{name}.json").read_text())

    assert seen == [True, False]


def test_ranks_in_deep_folders_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files of one name below a path that is longer than a subject's name: each finding is of its own rank."""
    deep = tmp_path / ("long" * 30)
    paths = []
    for number in range(2):

        def step(machine: Machine, number: int = number) -> None:
            machine.load(1_000 + 4_000 * number)
            for _ in range(40):
                machine.kernel(100)
            machine.synchronize()

        (deep / f"rank{number}").mkdir(parents=True)
        paths.append(written(deep / f"rank{number}", steps(Machine(), 6, step).trace()))
    assert main(["analyze", *paths, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    exposed = {
        finding["subject"]["name"]: finding["cost_pct"] for finding in document["findings"] if finding["rule"] == "dataloader.inline"
    }

    assert len(exposed) == 2
    assert {name[-16:] for name in exposed} == {"rank0/trace.json", "rank1/trace.json"}
    assert {round(cost) for cost in exposed.values()} == {round(rank["summary"]["dataloader_exposed_pct"]) for rank in document["ranks"]}


@pytest.fixture(name="accounts", scope="module")
def make_accounts() -> dict[str, Accounting]:
    """A program before and after its loader was fixed."""
    return {path: Accounting(read(path)) for path in (BEFORE, AFTER)}


def test_against_tells_what_a_change_did(accounts: dict[str, Accounting]) -> None:
    """The loader was fixed: the step is faster, the loader's time went, the interval does not hold 0."""
    difference = compare(accounts[BEFORE], accounts[AFTER])
    (loader,) = [row for row in difference.times if row.what == "loader"]

    assert difference.verdict == "faster"
    assert difference.difference_ms is not None
    assert difference.difference_ms[1] < 0
    assert loader.before_ms == pytest.approx(58, abs=0.5)
    assert loader.after_ms is not None
    assert loader.after_ms < 1
    assert "Faster: a step takes 126.3 ms instead of 176.5 ms" in trace_difference.render((difference,), color=False, width=100)


def test_a_trace_against_itself_shows_no_difference(accounts: dict[str, Accounting]) -> None:
    difference = compare(accounts[AFTER], accounts[AFTER])

    assert difference.verdict == "no difference"
    assert not difference.kernels


def of_operators(times: dict[str, float]) -> Machine:
    """A program on the CPU whose steps call these operators for so many µs each."""

    def body(machine: Machine) -> None:
        for name, us in times.items():
            machine.event("cpu_op", name, machine.now, us)
            machine.now += us + 1

    return steps(Machine(), 6, body)


def test_an_operator_that_both_programs_call_neither_came_nor_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However many others take longer in one of them."""
    few = {f"aten::op{number}": 100.0 for number in range(5)}
    many = {f"aten::other{number}": 100.0 for number in range(15)}
    new, old = (
        written(tmp_path, of_operators(times).trace(), name)
        for times, name in (({**few, "aten::add": 5.0}, "new.json"), ({**few, **many, "aten::add": 3.0}, "old.json"))
    )
    rows = {row["what"]: row for row in json.loads(told(capsys, new, "--against", old, "--json"))["kernels"]}

    assert rows["aten::add"]["kind"] == "changed"
    assert rows["aten::add"]["after_ms"] == pytest.approx(0.005, rel=0.01)
    assert {row["kind"] for what, row in rows.items() if "other" in what} == {"went"}


def loop(lengths: list[float]) -> Machine:
    """A program whose steps take so long, in µs."""
    machine = Machine()
    for number, length in enumerate(lengths):
        began = machine.now
        machine.kernel(length / 2)
        machine.now = began + length
        machine.range(f"ProfilerStep#{number}", began)
    return machine


def test_two_runs_of_one_program_seldom_differ_also_where_steps_depend_on_each_other(tmp_path: Path) -> None:
    """Of steps with the noise and the dependence of a shared machine, few comparisons find a difference that is none."""
    chance, found = random.Random(7), 0
    for _ in range(60):
        paths = []
        for name in ("before.json", "after.json"):
            lengths, level = [], chance.gauss(0, 1)
            for _ in range(6):
                level = 0.6 * level + 0.8 * chance.gauss(0, 1)
                lengths.append(10_000 * (1 + 0.03 * level))
            paths.append(written(tmp_path, loop(lengths).trace(), name))
        found += compare(*(Accounting(read(path)) for path in paths)).verdict != "no difference"

    assert found <= 9  # the bootstrap of so few steps found more than twice as many


def test_of_three_steps_nobody_knows_how_steps_differ(tmp_path: Path) -> None:
    few, many = (Accounting(read(written(tmp_path, loop([10_000.0] * count).trace()))) for count in (4, 8))

    assert compare(few, many).verdict == "cannot tell"
    assert "fewer than 4 steps" in compare(many, few).why


@pytest.mark.parametrize(
    "arguments",
    [
        "{trace} --output {same}",
        "{trace} --output {same} --json --format text",
        "{other} --against {trace} --output {same} --json",
        "{trace} --annotate {same}",
    ],
)
def test_a_report_does_not_replace_the_trace(tmp_path: Path, arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor by way of a link."""
    trace, other = written(tmp_path, loop([10_000.0] * 8).trace()), written(tmp_path, loop([9_000.0] * 8).trace(), "other.json")
    same = tmp_path / "link"
    same.symlink_to(trace)
    before = Path(trace).read_bytes()

    assert main(["analyze", *arguments.format(trace=trace, other=other, same=same).split()]) == 2
    assert "is the trace itself" in capsys.readouterr().err
    assert Path(trace).read_bytes() == before


def test_several_files_are_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    """Read by several processes; each has its own figures."""
    document = json.loads(told(capsys, BEFORE, AFTER, "--json"))

    assert [rank["verdict"] for rank in document["ranks"]] == ["input-bound", "host-bound"]
    assert {finding["subject"]["name"] for finding in document["findings"] if finding["rule"] == "precision.tensor-cores-unused"} == {
        BEFORE,
        AFTER,
    }


def test_fail_on_sets_the_exit_code(tmp_path: Path) -> None:
    trace = written(tmp_path, steps(Machine(), 6, lambda machine: (machine.load(3_000), machine.kernel(100))).trace())

    assert main(["analyze", trace, "--fail-on", "warning"]) == 1
    assert main(["analyze", trace, "--fail-on", "error"]) == 0


def test_operators_that_take_most_time_on_the_cpu_are_named_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that computes only has no finding: what it computes is where its time goes."""
    machine = Machine()

    def step(machine: Machine) -> None:
        began = machine.now
        for name, ms in (("aten::fill_", 8), *[("aten::mm", 1)] * 9):
            start = machine.now
            machine.think(ms * 1000)
            machine.range(name, start, "cpu_op")
        machine.event("python_function", "train.py(31): <step>", began - 1, machine.now - began + 2)
        machine.think(5)

    path = written(tmp_path, {"traceEvents": steps(machine, 8, step).events})
    text, page = told(capsys, path), told(capsys, path, "--format", "html")

    assert "Compute-bound" in text
    assert "aten::mm 52.9 % (train.py:31 (<step>)) · aten::fill_ 47.0 % (train.py:31 (<step>))" in " ".join(text.split())
    assert "products and convolutions 52.9 % · operators on 1 thread, besides" in text
    assert "<td>aten::fill_</td><td>47.0 %</td><td>7</td><td>train.py:31 (&lt;step&gt;)</td>" in page
