"""Rule files are decoded strictly, checked against the facts, merged in order, and never trusted further than that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf import paths
from sysperf.engine import judging
from sysperf.evaluate import rule_cache
from sysperf.evaluate.rule_files import read_file, site_files
from sysperf.evaluate.ruleset import Ruleset, load
from sysperf.evaluate.selftest import run_tests
from sysperf.model.errors import RuleError
from sysperf.model.rule import Override, RuleFile
from tests.fuzzing import fuzz

from .conftest import SCHEMA
from .test_judge import rule

RULE = """
schema = 1
[table.limits]
low = 10
[[rule]]
id = "box.swaps"
title = "It swaps"
scope = "host"
severity = "warning"
params = { limit = 10 }
when = "box.swappiness > p.limit"
message = "swappiness {box.swappiness}"
explain = "Swapping is slow."
fix = [{ kind = "sysctl", key = "vm.swappiness", value = 10, was = "{box.swappiness}", safety = "caution" }]
"""


def write(folder: Path, text: str, name: str = "box.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def checked(folder: Path, text: str) -> Ruleset:
    """These rules as a site's, so that they are checked completely."""
    return load([], SCHEMA, site=[write(folder, text)])


def test_a_right_file_loads(tmp_path: Path) -> None:
    """The example is accepted, knows its file, and keeps its table."""
    ruleset = checked(tmp_path, RULE)

    assert [rule.id for rule in ruleset.rules] == ["box.swaps"]
    assert ruleset.rules[0].file == "box.toml"
    assert ruleset.tables == {"limits": {"low": 10}}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("box.swappiness > p.limit", "box.swapiness > p.limit", "did you mean `box.swappiness`"),
        ("box.swappiness > p.limit", "box.swappiness > p.limt", "did you mean `p.limit`"),
        ("{box.swappiness}", "{box.nothing}", "box.swaps.message"),
        ("swappiness {box", "swappiness } {box", "single `}`"),
        ('severity = "warning"', 'severity = "bad"', "rule `box.swaps`"),
        ("title =", "titel =", "titel"),
        ('title = "It swaps"', "", "title"),
        ("schema = 1", "schema = 2", "schema"),
        ('id = "box.swaps"', 'id = "Box Swaps"', "no rule id"),
        ('key = "vm.swappiness"', 'key = "kernel.core_pattern"', "no sysctl that sysperf may change"),
        ("value = 10", "value = 4000", "no value that"),
        ('kind = "sysctl"', 'kind = "shell"', "shell"),
        ('key = "vm.swappiness"', 'key = "vm.swappiness", path = "/etc/passwd"', "path"),
        ("[[rule]]", "[[rule", "not TOML"),
        ('scope = "host"', 'scope = "host"\nfor_each = "d of box.disks"', "name in list"),
        ('scope = "host"', 'scope = "host"\nfor_each = "d in box.swappines"', "did you mean"),
        ('scope = "host"', 'scope = "host"\nunless = [{ when = "box.bsy", because = "x" }]', "unless[0].when"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, says: str) -> None:
    """Every mistake is an error that names the file and what is wrong, never a rule that silently says nothing."""
    assert old in RULE
    with pytest.raises(RuleError) as caught:
        checked(tmp_path, RULE.replace(old, new, 1))

    assert says in str(caught.value)
    assert "box.toml" in str(caught.value)


def test_a_rules_own_tests_say_what_stops_it(tmp_path: Path) -> None:
    """Its id alone helps no author."""
    text = (
        RULE.replace("box.swappiness > p.limit", "matches(box.name, '^(a+)+$')") + 'test = [{ name = "it", expect = "fire", given = {} }]\n'
    )
    path = write(tmp_path, text)
    _, failures = run_tests(load([path], SCHEMA), SCHEMA, list(read_file(path).rule))

    assert "could take too long" in failures[0].problem


def test_two_rules_of_one_id_are_refused(tmp_path: Path) -> None:
    """An id is defined once a file."""
    with pytest.raises(RuleError, match="defined twice"):
        checked(tmp_path, RULE + RULE[RULE.index("[[rule]]") :])


def test_an_override_reaches_a_rule_that_was_compiled_before(tmp_path: Path) -> None:
    """Those of a site are, when their file is checked."""
    ruleset = load([write(tmp_path, RULE)], SCHEMA)
    before = ruleset.compiled("box.swaps").severity
    ruleset.override(Override("box.swaps", severity="error"))

    assert (before, ruleset.compiled("box.swaps").severity) == ("warning", "error")


def test_a_later_file_overrides(tmp_path: Path) -> None:
    """Severity and thresholds change by id; a rule can be disabled; an unknown id or parameter is an error."""
    ours = write(tmp_path, RULE)
    site = write(tmp_path, '[[override]]\nrule = "box.swaps"\nseverity = "error"\nparams = { limit = 99 }\n', "site.toml")

    ruleset = load([ours], SCHEMA, site=[site])

    assert ruleset.compiled("box.swaps").severity == "error"
    ruleset.override(Override("box.swaps", disabled=True))
    with pytest.raises(RuleError, match=r"did you mean `box\.swaps`"):
        ruleset.override(Override("box.swap"))
    with pytest.raises(RuleError, match="no parameter `limt`"):
        ruleset.override(Override("box.swaps", params={"limt": 1}))


LET = """
[let]
much  = "box.swappiness > 100"
worse = "let.much and box.mode == 'never'"
"""


def test_an_expression_with_a_name_is_written_out(tmp_path: Path) -> None:
    """In a condition, in a blank of a text, and in a later name; it stays one operand."""
    text = RULE.replace("[[rule]]", f"{LET}\n[[rule]]", 1).replace('when = "', 'when = "not let.worse or ', 1)
    (rule,) = read_file(write(tmp_path, text)).rule

    assert rule.when.startswith("not ((box.swappiness > 100) and box.mode == 'never') or ")


def test_a_condition_may_be_written_on_several_lines(tmp_path: Path) -> None:
    lines = '"""\n  box.swappiness > p.limit\n  or (box.swappiness == 0\n    and p.limit == 10)"""'
    (rule,) = read_file(write(tmp_path, RULE.replace('"box.swappiness > p.limit"', lines))).rule

    assert rule.when == "box.swappiness > p.limit or (box.swappiness == 0 and p.limit == 10)"


@pytest.mark.parametrize(
    ("let", "told"),
    [
        ('[let]\na = "let.b"\nb = "1"', "no such name above it"),
        ('let = "1"', "a table of names"),
        ("[let]\na = 1", "a table of names"),
        ('[let]\n"a b" = "1"', "a table of names"),
        ("[let]\na = '1'\n[table]\nb = " + "[" * 400 + "]" * 400, "Expected|recursion"),
        ("[let]\nx0 = '1'\n" + "".join(f"x{n} = 'let.x{n - 1} + let.x{n - 1}'\n" for n in range(1, 60)), "larger than 2 MiB"),
    ],
)
def test_a_table_of_names_that_is_wrong_is_told(tmp_path: Path, let: str, told: str) -> None:
    with pytest.raises(RuleError, match=told):
        read_file(write(tmp_path, let))


def test_a_file_of_10_mb_is_refused_at_once(tmp_path: Path) -> None:
    """Size is checked before anything is parsed."""
    path = write(tmp_path, "# " + "x" * 10_000_000)
    start = time.process_time()

    with pytest.raises(RuleError, match="larger than 2 MiB"):
        read_file(path)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"a = " + b"[" * 50_000, b"\0" * 100, b"", b"schema = 'one'"])
def test_garbage_is_an_error_not_a_traceback(tmp_path: Path, content: bytes) -> None:
    """Binary, deeply nested and empty files end in a message; an empty file is an empty rule file."""
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    if not content:
        assert read_file(path).rule == ()
        return
    with pytest.raises(RuleError, match=r"x\.toml"):
        read_file(path)


@fuzz
@given(st.text(max_size=200))
def test_any_text_is_a_file_or_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """No content makes the reader fail in another way."""
    path = tmp_path_factory.mktemp("rules") / "x.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        read_file(path)
    except RuleError:
        return


def test_folders_missing_files_and_directories(tmp_path: Path) -> None:
    """A file that is not there is an error with its name."""
    with pytest.raises(RuleError, match="No such file"):
        read_file(tmp_path / "none.toml")
    with pytest.raises(RuleError, match="directory"):
        read_file(tmp_path)


@pytest.mark.root(users=True)
def test_root_refuses_rules_of_others(tmp_path: Path) -> None:
    """A rule file that another user owns or may write is not believed by root."""
    path = write(tmp_path, RULE)
    path.chmod(0o666)
    with pytest.raises(RuleError, match="others may write it"):
        read_file(path)
    path.chmod(0o644)
    os.chown(path, 12345, 0)
    with pytest.raises(RuleError, match="owned by uid 12345"):
        read_file(path)


@pytest.mark.root(users=True)
def test_root_believes_the_rules_beside_the_code_that_it_runs(tmp_path: Path) -> None:
    """A user's checkout under sudo: its rules are as much that user's as its code, and no more than that."""
    package = Path(judging.__file__).parents[1]
    shutil.copytree(package, tmp_path / "sysperf", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(judging.rule_files()[0]).parent, tmp_path / "rules")
    for path in tmp_path.rglob("*"):
        os.chown(path, 12345, 12345)
    loose = tmp_path / "rules/memory.toml"

    assert _listed(tmp_path).returncode == 0
    loose.chmod(0o666)
    assert f"{loose}: owned by uid 12345" in _listed(tmp_path).stderr
    loose.chmod(0o644)
    os.chown(loose, 54321, 0)
    refused = _listed(tmp_path)
    assert f"{loose}: owned by uid 54321" in refused.stderr
    assert f"chown root {tmp_path}/rules/*.toml" in refused.stderr


def _listed(checkout: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "sysperf", "rules", "list"]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)


def test_the_cache_is_used_renewed_and_not_trusted(tmp_path: Path) -> None:
    """Decoded rules are kept; a changed file renews them; a cache that others may write is ignored."""
    ours, cache = write(tmp_path, RULE), tmp_path / "cache/rules.json"
    load([ours], SCHEMA, cache=cache)
    assert cache.stat().st_mode & 0o777 == 0o600

    cache.write_bytes(cache.read_bytes().replace(b"It swaps", b"It sways"))
    assert load([ours], SCHEMA, cache=cache).rules[0].title == "It sways"

    cache.chmod(0o666)
    assert load([ours], SCHEMA, cache=cache).rules[0].title == "It swaps"

    cache.chmod(0o600)
    write(tmp_path, RULE.replace("It swaps", "It swaps much"))
    assert load([ours], SCHEMA, cache=cache).rules[0].title == "It swaps much"

    cache.write_bytes(b"{ torn")
    assert load([ours], SCHEMA, cache=cache).rules[0].title == "It swaps much"


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Service users have HOME=/nonexistent; root could make it. A home without .cache gets one."""
    load([write(tmp_path, RULE)], SCHEMA, cache=tmp_path / "nonexistent/.cache/sysperf/rules.json")
    load([write(tmp_path, RULE)], SCHEMA, cache=tmp_path / ".cache/sysperf/rules.json")

    assert not (tmp_path / "nonexistent").exists()
    assert (tmp_path / ".cache/sysperf/rules.json").exists()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    """A read-only home is no error."""
    blocked = tmp_path / "file"
    blocked.write_text("")

    assert load([write(tmp_path, RULE)], SCHEMA, cache=blocked / "rules.json").rules


def test_selection_by_id_area_and_pattern(tmp_path: Path) -> None:
    """`--select box` takes the area, `box.*` a pattern; nothing that matches is an error with a suggestion."""
    ruleset = checked(tmp_path, RULE)
    ruleset.select(["box"], [])
    assert ruleset.rules
    with pytest.raises(RuleError, match="no rule matches `bx`"):
        ruleset.select(["bx"], [])
    ruleset.select([], ["box.*"])
    assert not ruleset.rules


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    """A site's rules that are there and unreadable are said; a folder that is not there has none."""
    assert site_files((str(tmp_path / "absent"),)) == []
    circle = tmp_path / "circle"
    circle.symlink_to(circle)  # unreadable for root, too
    with pytest.raises(RuleError, match="circle"):
        site_files((str(circle),))


def test_without_its_rules_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken installation says so: with no rules at all every machine would look healthy."""
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "sysperf/paths.py"))
    with pytest.raises(RuleError, match="not there"):
        judging.load_rules()


@pytest.mark.parametrize(
    ("fields", "areas"),
    [
        ({"when": "box.busy"}, {"box"}),
        ({"when": "any(crate.busy for crate in box.disks)"}, {"box"}),
        ({"for_each": "d in box.disks", "when": "d.rotational"}, {"box"}),
        ({"when": "default(1 > 2, False)", "applies": "known(box.busy)"}, {"box"}),
        ({"when": "1 > 2", "unless": [{"when": "box.busy", "because": "it is"}]}, {"box"}),
        ({"when": "1 > 2 or 'box.busy' == 'box'"}, set()),
    ],
)
def test_the_areas_of_a_rule_are_those_that_its_conditions_name(fields: dict[str, object], areas: set[str]) -> None:
    """Neither the words of a text nor the names that a comprehension binds."""
    fields = {**fields, "when": str(fields["when"]).replace("crate.busy", "crate.rotational")}
    assert Ruleset([RuleFile(rule=(rule(**fields),))], SCHEMA).compiled("box.swaps").areas == areas


def test_the_areas_of_a_message_do_not_count() -> None:
    """What only a text shows does not decide when a rule is judged."""
    assert Ruleset([RuleFile(rule=(rule(when="1 > 2", message="{box.mode}"),))], SCHEMA).compiled("box.swaps").areas == set()


@pytest.mark.parametrize("number", ["9" * 4_400, "0x" + "f" * 40])
def test_a_number_without_end_is_a_mistake_of_the_file(tmp_path: Path, number: str) -> None:
    """Python refuses to read more than 4,300 digits: the file is named, and nothing breaks."""
    path = tmp_path / "long.toml"
    path.write_text(
        '[[rule]]\nid="box.long"\ntitle="t"\nscope="host"\nseverity="info"\nmessage="m"\nexplain="e"\n'
        f'when="box.swappiness > p.limit"\nparams={{ limit = {number} }}\n'
    )
    with pytest.raises(RuleError, match=r"long\.toml"):
        load([], SCHEMA, site=[path])


@pytest.mark.parametrize("kind", ["rules", "wrap"])
def test_each_installation_has_a_cache_of_its_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkouts, or two versions of one, do not evict each other's rules."""
    here, there = rule_cache.cache_path(kind, "/opt/a/rules/cpu.toml"), rule_cache.cache_path(kind, "/opt/b/rules/cpu.toml")
    deep = rule_cache.cache_path(kind, f"/opt/{'deep/' * 300}rules/cpu.toml")
    monkeypatch.setattr(rule_cache, "__version__", "0.0.0")

    assert len({here, there, rule_cache.cache_path(kind, "/opt/a/rules/cpu.toml")}) == 3
    assert os.path.basename(here).startswith(f"{kind}-")
    assert len(os.path.basename(deep)) < 255


def test_caches_of_removed_installations_go(tmp_path: Path) -> None:
    """The newest of a kind stay when one is written; files of another kind, or of somebody else, are not ours to remove."""
    caches = tmp_path / ".cache/sysperf"
    caches.mkdir(parents=True)
    old = [caches / "rules.json", *(caches / f"rules-0.{number}.json" for number in range(20))]
    others = [caches / "wrap.json", caches / "rulesets.json", caches / "rules-note.txt"]
    for age, path in enumerate(reversed([*old, *others])):
        path.write_text("{}")
        os.utime(path, (1e9 - age, 1e9 - age))
    load([write(tmp_path, RULE)], SCHEMA, cache=caches / "rules-1.json")

    kept = {path.name for path in caches.iterdir()}
    assert kept == {"rules-1.json", *(f"rules-0.{number}.json" for number in range(13, 20)), *(path.name for path in others)}


def test_wrap_s_cache_is_its_own(tmp_path: Path) -> None:
    """`wrap` of two checkouts beside each other decodes its rules once each."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "sysperf", "wrap", "-q", "--", "true"], env=env, check=True, timeout=300)

    (cache,) = (tmp_path / "sysperf").iterdir()
    assert cache.name.startswith("wrap-")
    assert cache.name != "wrap.json"


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("chdisk {box.mode}", ""),
        ("awk '{{print}}' {box.mode}", ""),
        ("chdisk 'it'\"'\"'s' {box.mode}", ""),
        ("chdisk '{box.mode}'", "inside of quotes"),
        ('chdisk "a {box.mode}"', "inside of quotes"),
    ],
)
def test_a_blank_stands_outside_of_quotes(tmp_path: Path, command: str, wrong: str) -> None:
    """Its value is quoted where it is filled in: quotes around it would end with the value's own."""
    fix = f'fix = [{{ kind = "advice", by = "command", safety = "manual", title = "x", command = {json.dumps(command)} }}]\n'
    path = write(tmp_path, RULE.partition("fix = ")[0] + fix)
    if not wrong:
        assert load([], SCHEMA, site=[path]).rules
        return
    with pytest.raises(RuleError, match=wrong):
        load([], SCHEMA, site=[path])
