"""The documentation as a site, and how long its sentences are: what `make docs` and `make lint` check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import ROOT

pytest.importorskip("mkdocs", reason="needs mkdocs: pip install '.[dev]'")


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(target)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def test_every_page_is_in_the_site_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    """Strictly: a page without a place in the navigation, a dead link and a dead anchor end it."""
    done = build(ROOT / ".ci/mkdocs.yml", tmp_path)

    assert done.returncode == 0, done.stderr
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= {page.stem for page in tmp_path.glob("*.html")}


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """The check can fail."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Start\n\n[nowhere](nowhere.md)\n")
    plain = (ROOT / ".ci/mkdocs.yml").read_text().partition("\nnav:")[0].replace("hooks: [site.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(plain.replace("../docs", "docs").replace("../dist/site", "site"))

    done = build(tmp_path / "mkdocs.yml", tmp_path / "out")

    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


def test_a_long_sentence_is_found(tmp_path: Path) -> None:
    """Of text; not of code, of a table, or of several short sentences."""
    (tmp_path / "page.md").write_text(
        f"# Page\n\n{'word ' * 26}end.\n\n| {'cell ' * 40} |\n\n```sh\n{'code ' * 40}\n```\n\nShort. {'Four more words here. ' * 9}\n"
    )
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci/prose.py"), str(tmp_path / "page.md")], capture_output=True, text=True, check=False
    )

    assert [line.split()[0] for line in done.stdout.splitlines()] == ["27"]
