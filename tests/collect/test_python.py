"""python: which environments are found, and which one the shell means."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysperf.collect.python import MAX_ENVIRONMENTS, collect, environment_at, shell_of
from sysperf.host import Host
from sysperf.model.errors import Missing
from tests.collect.environments import Files, conda_at, python_at, site_of
from tests.conftest import MakeMachine, captured

HOME = {"home": "/home/ada"}
DEBIAN: Files = {
    "/usr/bin/python3.11": "",
    "/usr/lib/python3.11/os.py": "",
    "/usr/lib/python3/dist-packages/apt/__init__.py": "",
}
DEBIAN_LINKS = {"/usr/bin/python3": "python3.11"}


def test_the_venv_of_the_shell_comes_first(machine: MakeMachine) -> None:
    """VIRTUAL_ENV names the environment that `python` means, ahead of what the PATH would find."""
    host = machine(
        {**DEBIAN, **python_at("/home/ada/p/.venv"), "/proc/self/environ": "VIRTUAL_ENV=/home/ada/p/.venv\0LANG=C\0"},
        DEBIAN_LINKS,
        {**HOME, "PATH": {"python3": ["/usr/bin/python3", "/usr/bin/python3.11"], "g++": ["/usr/bin/g++", "/usr/bin/g++-12"]}},
    )

    facts = collect(host)

    assert [(environment.prefix, environment.manager, environment.active) for environment in facts.environments] == [
        ("/home/ada/p/.venv", "venv", True),
        ("/usr", "system", False),
    ]
    assert facts.environments[0].python_version == "3.11.7"
    assert facts.environments[0].site_packages == ("/home/ada/p/.venv/lib/python3.11/site-packages",)
    assert facts.active == "/home/ada/p/.venv"


def test_a_python_on_the_path_is_followed_to_where_it_is(machine: MakeMachine) -> None:
    """A link such as ~/.local/bin/python3.12 belongs to the interpreter that it leads to."""
    uv = "/home/ada/.local/share/uv/python/cpython-3.12.4-linux-x86_64-gnu"
    host = machine(
        {f"{uv}/bin/python3.12": "", f"{uv}/lib/python3.12/site-packages/pip/__init__.py": ""},
        {f"{uv}/bin/python3": "python3.12"},
        {**HOME, "PATH": {"python3": ["/home/ada/.local/bin/python3", f"{uv}/bin/python3.12"]}},
    )

    (only,) = collect(host).environments

    assert (only.prefix, only.manager, only.python_version, only.active) == (uv, "uv", "3.12", True)


def test_a_shim_of_pyenv_leads_to_the_chosen_version(machine: MakeMachine) -> None:
    """The program on the PATH is a script; pyenv's own file says which Python it starts."""
    root = "/home/ada/.pyenv"
    host = machine(
        {f"{root}/version": "3.11.7\n", **_pyenv(root, "3.10.13"), **_pyenv(root, "3.11.7")},
        calls={**HOME, "PATH": {"python3": [f"{root}/shims/python3", f"{root}/shims/python3"]}},
    )

    facts = collect(host).environments

    assert [
        (environment.prefix.rpartition("/")[2], environment.manager, environment.python_version, environment.active)
        for environment in facts
    ] == [
        ("3.11.7", "pyenv", "3.11.7", True),
        ("3.10.13", "pyenv", "3.10.13", False),
    ]


def _pyenv(root: str, version: str) -> Files:
    minor = version.rpartition(".")[0]
    return {f"{root}/versions/{version}/lib/python{minor}/site-packages/pip/__init__.py": ""}


def test_conda_lists_its_environments(machine: MakeMachine) -> None:
    """~/.conda/environments.txt names them all, wherever they are; one that was deleted is passed over."""
    base, base_links = conda_at("/opt/conda")
    work, work_links = conda_at("/data/envs/work", python="3.12.3")
    host = machine(
        {**base, **work, "/home/ada/.conda/environments.txt": "/opt/conda\n/data/envs/work\n/gone\n\n#comment\n"},
        base_links | work_links,
        HOME,
    )

    facts = collect(host).environments

    assert [(environment.prefix, environment.manager, environment.library) for environment in facts] == [
        ("/opt/conda", "conda", "python3.11"),
        ("/data/envs/work", "conda", "python3.12"),
    ]


def test_conda_is_found_where_its_installer_puts_it(machine: MakeMachine) -> None:
    """Without that list, the usual folders and the environments in them are looked at."""
    base, base_links = conda_at("/home/ada/miniforge3")
    work, work_links = conda_at("/home/ada/miniforge3/envs/work")

    facts = collect(machine({**base, **work}, base_links | work_links, HOME)).environments

    assert [environment.prefix for environment in facts] == ["/home/ada/miniforge3", "/home/ada/miniforge3/envs/work"]


def test_the_users_folder_comes_before_the_systems(machine: MakeMachine) -> None:
    """An interpreter of the system also imports from ~/.local, and from there first."""
    user = "/home/ada/.local/lib/python3.11/site-packages"
    files = {**DEBIAN, f"{user}/torch/version.py": ""}

    (system,) = collect(machine(files, DEBIAN_LINKS, HOME)).environments
    (alone,) = collect(machine({**files, "/proc/self/environ": "PYTHONNOUSERSITE=1\0"}, DEBIAN_LINKS, HOME)).environments

    assert system.site_packages == (user, "/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages")
    assert user not in alone.site_packages


def test_a_venv_that_shares_the_systems_packages_says_so(machine: MakeMachine) -> None:
    """include-system-site-packages makes a venv import what its interpreter would."""
    files = {**DEBIAN, **python_at("/srv/v")}
    files["/srv/v/pyvenv.cfg"] = "home = /usr/bin\ninclude-system-site-packages = true\nversion_info = 3.11.2.final.0\n"
    host = machine(files, DEBIAN_LINKS, HOME)

    environment = environment_at(host, site_of("/srv/v") + "/torch/lib/libtorch_cpu.so", shell_of(host))

    assert environment is not None
    assert environment.prefix == "/srv/v"
    assert environment.python_version == "3.11.2"
    assert environment.site_packages[-1] == "/usr/lib/python3/dist-packages"


def test_a_free_threaded_interpreter_is_told_by_its_folder(machine: MakeMachine) -> None:
    """python3.13t is the build without the GIL."""
    files = {**python_at("/v", "3.13.0"), "/v/lib/python3.13t/site-packages/x.py": ""}
    del files["/v/lib/python3.13/site-packages/pip/__init__.py"]
    host = machine(files, calls=HOME)

    environment = environment_at(host, "/v", shell_of(host))

    assert environment is not None
    assert (environment.library, environment.free_threaded) == ("python3.13t", True)


def test_no_more_than_a_bounded_number_is_looked_at(machine: MakeMachine) -> None:
    """A cluster's shared conda may list hundreds; how many were left out is said."""
    prefixes = [f"/shared/e{number}" for number in range(MAX_ENVIRONMENTS + 5)]
    files = {name: text for prefix in prefixes for name, text in python_at(prefix).items()}
    host = machine({**files, "/home/ada/.conda/environments.txt": "\n".join(prefixes)}, calls=HOME)

    facts = collect(host)

    assert len(facts.environments) == MAX_ENVIRONMENTS
    assert facts.left_out >= 5
    assert any("were not examined" in (source.error or "") for source in host.sources)


def test_a_machine_without_python_has_none(machine: MakeMachine) -> None:
    """A complete machine without any interpreter has an empty list, which is not an unknown."""
    assert collect(machine({"/etc/hostname": "x"})).environments == ()


def test_a_capture_without_python_is_unknown() -> None:
    """The captured trees hold /proc and /sys only: nobody can say which Pythons were there."""
    with pytest.raises(Missing, match="captured"):
        collect(captured("hwloc", "8em64t-4c2t"))


def test_this_machine_has_the_python_that_runs_the_tests() -> None:
    """Live, the interpreter that runs sysperf is among the environments, whatever else is there."""
    import sys

    assert sys.prefix in [environment.prefix for environment in collect(Host()).environments]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=300),
    listed=st.text(max_size=200),
    which=st.dictionaries(st.text(max_size=8), st.lists(st.text(max_size=30), max_size=3)),
)
def test_no_content_of_these_files_breaks_it(machine: MakeMachine, text: str, listed: str, which: dict[str, list[str]]) -> None:
    """pyvenv.cfg, conda's list and the PATH may hold anything."""
    host = machine(
        {"/v/pyvenv.cfg": text, "/proc/self/environ": f"VIRTUAL_ENV=/v\0{text}", "/home/ada/.conda/environments.txt": f"/v\n{listed}"},
        calls={**HOME, "PATH": which},
    )

    assert len(collect(host).environments) <= MAX_ENVIRONMENTS
