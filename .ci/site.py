"""What `make docs` takes from outside of docs/: the pages at the top, and the records that pages link to.

https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "SECURITY.md": "SECURITY.md", "CHANGELOG.md": "CHANGELOG.md"}
OUTSIDE = re.compile(r"\]\((?:\.\./)?((?:benchmarks|tests|rules|plugins|systemd|sysperf|\.ci)/[^)#]*|LICENSE)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the top folder, and the records of benchmarks."""
    for path, name in PAGES.items():
        files.append(File.generated(config, name, content=inside((ROOT / path).read_text())))
    for record in sorted((ROOT / "benchmarks/results").glob("*.json")):
        files.append(File.generated(config, f"benchmarks/results/{record.name}", abs_src_path=str(record)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links of pages in docs/ that lead out of it lead to what was brought in."""
    return inside(markdown)


def inside(markdown: str) -> str:
    """Return the text with the links of the site: a file of the source that is no page is named only."""
    markdown = re.sub(r"\]\((?:\.\./)?docs/", "](", markdown)
    markdown = re.sub(r"\]\(\.\./(benchmarks/results/|CONTRIBUTING|SECURITY|CHANGELOG)", r"](\1", markdown)
    markdown = re.sub(r"\]\((?:\.\./)?README\.md", "](index.md", markdown)
    return OUTSIDE.sub(lambda link: link[0] if link[1].startswith("benchmarks/results/") else "](index.md)", markdown)
