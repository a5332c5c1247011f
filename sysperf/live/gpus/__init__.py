"""What each GPU does right now: NVIDIA's through NVML, those of AMD and Intel through files of their drivers.

This is the one door to live meters of GPUs. Each vendor is a backend of its own behind it, and is asked only where there is such a GPU.
A driver's call can hang, so these meters are taken in a thread of their own. All is let go when nobody computes: an open handle of NVML
keeps GPUs awake.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sysperf.host import Host
from sysperf.host.live import Live
from sysperf.host.nvml import Arguments, Nvml
from sysperf.live.gpus.meters import Backend, Reasons, Values
from sysperf.live.gpus.nvidia import NvidiaGpus, NvmlSession
from sysperf.model.record import Json

if TYPE_CHECKING:
    from sysperf.collect.gpu.drm import Card


class Gpus:
    """Meters of the GPUs, numbered as `gpu.devices` numbers them. A sample may take seconds; it never raises."""

    def __init__(self, opened: Callable[[], NvmlSession] = Nvml, clock: Callable[[], float] = time.monotonic, root: str = "") -> None:
        self._opened = opened
        self._clock = clock
        self._root = root
        self._turn = threading.Lock()
        self._session: NvmlSession | None = None
        self._backends: tuple[Backend, ...] | None = None
        self.unknown: Reasons = {}
        """Why meters are unknown, by the names of their series, as of the last sample."""

    @property
    def problem(self) -> str:
        """Why there are no meters of GPUs that are there."""
        return "; ".join(backend.problem for backend in self._backends or () if backend.problem)

    def ask(self, name: str, args: Arguments) -> Json:
        """One NVML call, for the collectors: they and the meters share one open NVML. Raises OSError."""
        with self._turn:
            session = self._nvml()
        (answer,) = session.ask_all([(name, args)])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        """Let go of the GPUs. Files are closed when nobody reads them any more, which may be in another thread right now."""
        with self._turn:
            self._backends, self.unknown = None, {}
            if self._session is not None:
                self._session.close()
                self._session = None

    def sample(self) -> Values:
        """The meters of all GPUs, and of the processes on them."""
        out: Values = {}
        unknown: Reasons = {}
        for backend in self._open():
            backend.sample(out)
            unknown |= backend.unknown()
        self.unknown = unknown
        return out

    # ------------------------------------------------------------------ inside

    def _nvml(self) -> NvmlSession:
        if self._session is None:
            self._session = self._opened()
        return self._session

    def _open(self) -> tuple[Backend, ...]:
        with self._turn:
            if self._backends is None:
                self._backends = tuple(self._found())
            return self._backends

    def _found(self) -> list[Backend]:
        """The backends of the GPUs that are there. NVML is not opened for GPUs of others alone."""
        from sysperf.collect.driver import hints_at_nvidia  # noqa: PLC0415 - collectors, where somebody computes on a GPU
        from sysperf.collect.gpu import drm, nvidia_functions  # noqa: PLC0415 - as above

        host = Host(tree=Live(self._root))
        cards = drm.cards(host) or []
        backends: list[Backend] = []
        first = 0
        if not cards or hints_at_nvidia(host):
            nvidia = NvidiaGpus(self._nvml(), self._clock)
            backends.append(nvidia)
            first = nvidia.count if nvidia.count is not None else len(nvidia_functions(host) or ()) if cards else 0
        return [*backends, *self._of_files(host, cards, first)] if cards else backends

    def _of_files(self, host: Host, cards: list[Card], first: int) -> list[Backend]:
        from sysperf.live.gpus.amd import AmdGpus  # noqa: PLC0415 - only where there is such a GPU
        from sysperf.live.gpus.intel import IntelGpus  # noqa: PLC0415 - as above

        amd = AmdGpus(host, cards, first, self._clock, self._root)
        intel = IntelGpus(host, cards, first + amd.count, self._clock, self._root)
        return [backend for backend in (amd, intel) if backend.count]
