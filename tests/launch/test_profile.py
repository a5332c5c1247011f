"""Launch profiles: read strictly, and wrong ones say where."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sysperf.launch.profile import Profile, read, text
from sysperf.model.errors import ConfigError


def test_a_whole_profile(tmp_path: Path) -> None:
    """All that a profile may say."""
    path = tmp_path / "p.toml"
    path.write_text(
        'threads = 8\ncpus = "0-7"\nallocator = "jemalloc"\nskip = ["launch.memory-far"]\n[set]\nA = "1"\n[params."launch.x"]\nlimit = 2\n'
    )

    profile = read(str(path))
    assert (profile.threads, profile.cpus, profile.allocator, profile.skip) == (8, "0-7", "jemalloc", ("launch.memory-far",))
    assert (profile.set, profile.params) == ({"A": "1"}, {"launch.x": {"limit": 2}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("threads = 'many'", "threads"),
        ("nodes = 1", "nodes"),
        ("threads = ", "not TOML"),
        ("[set]\n'A B' = '1'", "no name of a variable"),
        ("schema = 9", "schema 9"),
        ("cpus = 'all'", "cpus"),
        ("threads = -1", "threads: -1 is not between"),
        ("threads = 0", "threads: 0 is not between"),
        ("threads = 99999999999", "is not between"),
        ("allocator = 'tcmaloc'", "`tcmaloc` is none of glibc, tcmalloc_minimal"),
        ('[set]\nA = "x\\u0000y"', "A has a NUL character"),
        ("\0", "not TOML"),
    ],
)
def test_wrong_profiles(tmp_path: Path, text: str, says: str) -> None:
    """The file, and what is wrong in it."""
    path = tmp_path / "p.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=says) as error:
        read(str(path))
    assert "p.toml" in str(error.value)


def test_a_profile_that_is_not_there() -> None:
    """The system's own words."""
    with pytest.raises(ConfigError, match="No such file"):
        read("/nowhere/p.toml")


def test_a_profile_is_written_as_it_is_read(tmp_path: Path) -> None:
    """Text of ours gives the same profile again, hostile strings too; its note is a comment."""
    path = tmp_path / "p.toml"
    profile = Profile(
        threads=4, memory_policy="interleave", instances=2, interop_threads=1, loader_workers=3, loader_prefetch=8, only=("launch.x",),
        set={"A": 'quote " back \\ new\nline \x7f'}, params={"launch.x": {"limit": 0.5, "on": True}}, note="why\nand how",
    )  # fmt: skip
    path.write_text(text(profile))

    assert read(str(path)) == msgspec.structs.replace(profile, note="")
    assert path.read_text().startswith("# why\n# and how\n")
