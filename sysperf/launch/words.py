"""The words of a command, taken from the front: which options of which tool have a value in the next word."""

from collections.abc import Sequence

OPTIONS_WITH_VALUE = {
    "env": ("-u", "--unset", "-C", "--chdir"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "-n", "--class", "--classdata"),
    "stdbuf": ("-i", "-o", "-e"),
    "timeout": ("-k", "-s", "--kill-after", "--signal"),
    "time": ("-f", "-o", "--format", "--output"),
    "chrt": ("-T", "-P", "-D"),
    "numactl": (
        "-C", "-N", "-m", "-i", "-p", "-P", "-w", "--physcpubind", "--cpunodebind", "--membind", "--interleave", "--preferred",
        "--preferred-many", "--weighted-interleave",
    ),
    "conda": ("-n", "--name", "-p", "--prefix", "--cwd"),
    "mamba": ("-n", "--name", "-p", "--prefix", "--cwd"),
    "micromamba": ("-n", "--name", "-p", "--prefix", "-r", "--root-prefix", "--cwd", "-a", "--attach", "-e", "--env", "--rc-file"),
    "pixi": ("-e", "--environment", "-m", "--manifest-path", "-w", "--workspace", "--color"),
    "uv": (
        "--extra", "--no-extra", "--group", "--no-group", "--only-group", "--no-editable-package", "--env-file", "-w", "--with",
        "--with-editable", "--with-requirements", "--package", "--python-platform", "--index", "--default-index", "-i", "--index-url",
        "--extra-index-url", "-f", "--find-links", "--index-strategy", "--keyring-provider", "-P", "--upgrade-package", "--upgrade-group",
        "--resolution", "--prerelease", "--prerelease-package", "--fork-strategy", "--exclude-newer", "--exclude-newer-package",
        "--no-sources-package", "--reinstall-package", "--link-mode", "-C", "--config-setting", "--config-settings-package",
        "--no-build-isolation-package", "--no-build-package", "--no-binary-package", "--cache-dir", "--refresh-package", "-p", "--python",
        "--color", "--allow-insecure-host", "--directory", "--project", "--config-file",
    ),
    "poetry": ("-C", "--directory", "-P", "--project"),
    "pdm": ("-c", "--config", "-p", "--project", "-k", "--skip", "--venv", "--env", "--env-file", "--working-dir"),
    "hatch": (
        "-e", "--env", "-p", "--project", "--data-dir", "--cache-dir", "--config", "-i", "--include", "-x", "--exclude", "-f", "--filter",
    ),
    "pipenv": ("--python", "--pypi-mirror"),
    "torchrun": (
        "--nnodes", "--nproc-per-node", "--nproc_per_node", "--rdzv-backend", "--rdzv_backend", "--rdzv-endpoint", "--rdzv_endpoint",
        "--rdzv-id", "--rdzv_id", "--rdzv-conf", "--rdzv_conf", "--max-restarts", "--max_restarts", "--monitor-interval", "--start-method",
        "--role", "--log-dir", "--log_dir", "-r", "--redirects", "-t", "--tee", "--node-rank", "--node_rank", "--master-addr",
        "--master_addr", "--master-port", "--master_port", "--local-addr", "--local_addr", "--numa-binding", "--numa_binding",
        "--local-ranks-filter",
    ),
}  # fmt: skip
"""Options of a tool whose value is the next word."""


class Words:
    """The words of a command, taken from the front."""

    def __init__(self, words: Sequence[str]) -> None:
        self.rest = list(words)

    def options(self, tool: str) -> list[tuple[str, str]]:
        """The options in front, each with its value: ``--x=1`` and ``--x 1`` alike."""
        valued = OPTIONS_WITH_VALUE.get(tool, ())
        options = []
        while self.rest and self.rest[0].startswith("-") and self.rest[0] != "-":
            word = self.rest.pop(0)
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if not equals and name in valued and self.rest:
                value = self.rest.pop(0)
            elif not equals and not name.startswith("--") and name[:2] in valued and name[2:]:
                name, value = name[:2], name[2:]
            options.append((name, value))
        return options
