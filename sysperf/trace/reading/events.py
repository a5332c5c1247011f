"""What is used of a Chrome trace's event, and what its category says that it is."""

from __future__ import annotations

import msgspec

from sysperf.model.record import Json
from sysperf.trace.timeline import ANNOTATION, COPY, KERNEL, OPERATOR, PYTHON, SET

_GPU = {"kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": SET, "memset": SET}
_CALL = frozenset(
    ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "privateuse1_runtime")
)
OLD_RANGE = "operator"
"""The category of operators, and of all that PyTorch or the program marked, before it was `cpu_op` and `user_annotation`."""
_RANGE = {
    "cpu_op": OPERATOR,
    OLD_RANGE: OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "fwd_bwd": OPERATOR,
}
_ACCELERATOR = frozenset(("mtia_ccp_events", "mtia_insight", "hpu_op", "xla_op", "privateuse1"))


class Args(msgspec.Struct, gc=False):
    """The arguments that are used; the names are those of Kineto's writer. `Json`: each version and vendor has its own types."""

    correlation: Json = None
    stream: Json = None
    device: Json = None
    bytes: Json = None
    graph_node: Json = msgspec.field(default=None, name="graph node id")
    blocks_per_sm: Json = msgspec.field(default=None, name="blocks per SM")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    values: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Concrete Inputs")
    stack: Json = msgspec.field(default=None, name="Call stack")
    memory_device: Json = msgspec.field(default=None, name="Device Id")
    memory_type: Json = msgspec.field(default=None, name="Device Type")
    allocated: Json = msgspec.field(default=None, name="Total Allocated")
    reserved: Json = msgspec.field(default=None, name="Total Reserved")
    collective: Json = msgspec.field(default=None, name="Collective name")
    elements: Json = msgspec.field(default=None, name="In msg nelems")
    dtype: Json = None
    group: Json = msgspec.field(default=None, name="Process Group Name")
    group_size: Json = msgspec.field(default=None, name="Group size")
    sequence: Json = msgspec.field(default=None, name="Seq")
    label: Json = msgspec.field(default=None, name="name")


class Event(msgspec.Struct, gc=False):
    """One event of any kind."""

    ph: str = ""
    cat: str | None = ""
    name: str | None = ""
    pid: Json = None
    tid: Json = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


OPERATION, CALL, RANGE, ACCELERATOR_EVENT, OVERHEAD = range(1, 6)
"""What an event becomes."""


def kind_of_process(pid: Json) -> tuple[int, int]:
    """The same of events without a category, which PyTorch wrote before 1.8.1."""
    return (RANGE, OPERATOR) if pid == "CPU functions" else (OPERATION, KERNEL) if pid == "CUDA functions" else (0, 0)


def kind_of(cat: str) -> tuple[int, int]:
    """(what to do with events of this category, its kind); 0: nothing."""
    name = cat.lower()
    if name in _GPU:
        return OPERATION, _GPU[name]
    if name in _CALL:
        return CALL, 0
    if name in _RANGE:
        return RANGE, _RANGE[name]
    if name in _ACCELERATOR:
        return ACCELERATOR_EVENT, 0
    return (OVERHEAD, 0) if name == "overhead" else (0, 0)


def number(value: Json, bits: int, *, default: int) -> int:
    """A whole number that fits, also out of text such as ``7``, ``0x0`` or ``stream 7``."""
    if type(value) is int and -(1 << 31) <= value < 1 << 31:  # nearly all
        return value
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, float):
        value = int(value) if abs(value) < 9e15 else None
    if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        return default
    return int(value)


def _from_text(text: str) -> int | None:
    last = text[:40].rpartition(" ")[2]
    try:
        return int(last, 0) if last.startswith(("0x", "0X")) else int(last)
    except ValueError:
        return None
