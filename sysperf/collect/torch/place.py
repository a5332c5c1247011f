"""The copies of PyTorch: where they lie, and which interpreter imports which.

Reads   */site-packages/{__editable__*,torch.egg-link}  */site-packages/torch/version.py
"""

from sysperf.collect.python import Environment, Shell
from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAX_SOURCE = 1 << 16
_EDITABLE = lazy(r"__editable__\.torch-[^/]{1,200}\.pth|__editable___torch_[^/]{1,200}_finder\.py|torch\.egg-link")
_EDITABLE_SOURCE = lazy(r"['\"]torch['\"]: ?['\"](/[^'\"]{1,1000})['\"]")


class Place:
    """The place of one torch: the interpreter that imports it, and the other copies that it could import."""

    def __init__(self, environment: Environment, site: str, copies: list[str], shell: Shell) -> None:
        self.environment, self.site, self.copies = environment, site, copies
        self.users = f"{shell.home}/.local" if shell.home else ""
        self.is_users = bool(self.users) and site.startswith(f"{self.users}/")
        self.prefix = self.users if self.is_users else environment.prefix
        self.wins = site == copies[0]


def copies_in(host: Host, environment: Environment) -> list[str]:
    """The folders from which this interpreter can import torch; the first wins."""
    sites = environment.site_packages
    return [
        site
        for site in sites
        if host.exists(f"{site}/torch/version.py") or (environment.active and editable_source(host, site, host.names(site)))
    ]


def editable_source(host: Host, site: str, names: tuple[str, ...] | None) -> str:
    """The source folder of a torch that is installed from one; empty when there is none."""
    for name in names or ():
        if _EDITABLE.fullmatch(name):
            text = host.text(f"{site}/{name}", MAX_SOURCE) or ""
            match = _EDITABLE_SOURCE.search(text)
            source = neutral(match[1].rpartition("/")[0] if match else text.partition("\n")[0].strip(), 4096)
            if source.startswith("/") and host.exists(f"{source}/torch/version.py"):
                return source
    return ""
