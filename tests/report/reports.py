"""Reports to render: a healthy machine, a sick one, one that says little, and one whose every text is hostile."""

from __future__ import annotations

from typing import Any

from sysperf.model.finding import MACHINE, Evidence, Finding, Gain, Gap, Remedy, Report, Subject, Tally
from sysperf.model.rule import Impact
from sysperf.model.snapshot import Area, Snapshot, Source
from tests.records import area_facts

KERNEL_DOC = "https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing"
BALANCING = "/proc/sys/kernel/numa_balancing"
GPU = "NVIDIA H100 80GB HBM3"
GIB = 1 << 30

FACTS: dict[str, dict[str, Any]] = {
    "kernel": {"release": "6.8.0-45-generic", "arch": "x86_64", "wsl": False, "virtual": False, "hypervisor": ""},
    "cpu": {"model_name": "AMD EPYC 9654 96-Core Processor", "packages": 2, "cores": 192, "online": "0-383", "allowed": "0-383"},
    "numa": {"nodes": [{"id": 0, "cpus": "0-95"}, {"id": 1, "cpus": "96-191"}], "nodes_with_cpus": 2, "balancing": 1},
    "memory": {"total_bytes": 1512 * GIB, "available_bytes": 1432 * GIB, "thp_enabled": "madvise", "swappiness": 60},
    "cgroup": {"version": 2, "cpu_quota": 0.0, "memory_limit_bytes": 0},
    "container": {"inside": False, "kind": ""},
    "pcie": {"nvidia_gpus": 8},
    "driver": {"nvidia_version": "580.65.06", "cuda_driver_version": "13.0"},
    "gpu": {"devices": [{"index": index, "name": GPU, "memory_total_bytes": 80 * GIB} for index in range(8)]},
    "torch": {"installs": [{"prefix": "/opt/conda/envs/train", "version": "2.13.0+cu130", "cuda": "13.0", "hip": ""}]},
}


def snapshot(**changes: Any) -> Snapshot:
    """The machine of these tests; an area given as text could not be read, for that reason."""
    facts = {**FACTS, **changes}
    areas = {
        name: Area(problem=given) if isinstance(given, str) else Area(area_facts(name, given), took_ms=1.25)
        for name, given in facts.items()
    }
    return Snapshot(taken_at="2026-11-21T03:10:12.512345Z", areas=areas)


def balancing(**changes: Any) -> Finding:
    """A finding with everything that a finding can have."""
    parts: dict[str, Any] = {
        "rule": "numa.balancing-on",
        "state": "finding",
        "severity": "warning",
        "scope": "host",
        "title": "Automatic NUMA balancing is on although the job is bound to a node",
        "message": "kernel.numa_balancing=1 on 2 nodes: the kernel moves pages while you train.",
        "why": "Balancing unmaps pages to see who touches them. A process already bound to one\nnode gains nothing from that and pays a page "
        "fault for every sample. It also competes with the\ncopy threads.\n\nThe setting is per machine: ask who shares it.",
        "evidence": (
            Evidence("numa.balancing", 1, BALANCING),
            Evidence("numa.nodes_with_cpus", 2, "/sys/devices/system/node/node[0-9]*/cpulist"),
        ),
        "fixes": (
            Remedy(
                "sysctl",
                "set kernel.numa_balancing to 0",
                "caution",
                command="sudo sysctl -w kernel.numa_balancing=0",
                undo="sudo sysctl -w kernel.numa_balancing=1",
                needs="root",
            ),
        ),
        "impact": Impact("step time", "documented"),
        "refs": (KERNEL_DOC,),
        "fingerprint": "5f0c2d1a9be81234",
    }
    parts |= changes
    return Finding(**{"key": f"{parts['rule']}@{parts.get('subject', MACHINE).text}", **parts})


def narrow_link(index: int) -> Finding:
    """One finding of several with the same rule: a GPU's link with 4 of its 16 lanes."""
    path = f"/sys/bus/pci/devices/0000:{index + 0x60:02x}:00.0"
    return Finding(
        "gpu.link-narrow",
        "finding",
        "error",
        "gpu",
        "The GPU's PCIe link has fewer lanes than it could",
        Subject("gpu", GPU, index),
        message="The link runs with 4 of 16 lanes.",
        why="Every copy between host and GPU takes four times as long as it should.",
        confidence="high",
        evidence=(
            Evidence("gpu.link_width_lanes", 4, f"{path}/current_link_width"),
            Evidence("gpu.max_link_width_lanes", 16, f"{path}/max_link_width"),
            Evidence("gpu.memory_total_bytes", 80 * GIB, f"nvml:DeviceGetMemoryInfo({index})"),
        ),
        fixes=(
            Remedy("advice", "reseat the card and look at the slot", "manual", needs="reboot", note="A riser cable is the usual culprit."),
            Remedy(
                "advice", "see what the bus says of it", "safe", command=f"sudo lspci -vvs 0000:{index + 0x60:02x}:00.0\nnvidia-smi topo -m"
            ),
        ),
        gain=Gain("measured", "+31 % steps per second (95 %: 28 to 34)"),
        key=f"gpu.link-narrow@gpu:{index}",
        fingerprint=f"0000000000000{index:03x}",
    )


def named(text: str) -> Subject:
    """Something of this name; the machine without one."""
    return Subject("item", text) if text else MACHINE


def brief(rule: str, severity: Any, message: str, subject: str = "") -> Finding:
    """A small finding."""
    return Finding(
        rule, "finding", severity, "host", message, named(subject), message, confidence="low", key=f"{rule}@{subject}", fingerprint=rule
    )


def unknown(rule: str, *gaps: Gap, subject: Subject = MACHINE) -> Finding:
    """A check that could not be made."""
    return Finding(
        rule, "unknown", "warning", "host", f"The title of {rule}", subject, unknown=gaps, key=f"{rule}@{subject.text}", fingerprint=rule
    )


ROOT = "run it as root: `sudo sysperf audit`"

UNKNOWNS = (
    unknown(
        "power.rapl-capped",
        Gap("power.rapl_limit_watts", "/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw: Permission denied", ROOT),
    ),
    unknown("memory.slab-grows", Gap("memory.slab_bytes", "/proc/slabinfo: Permission denied", ROOT)),
    unknown("torch.cudnn-old", Gap("torch.cudnn", "only read with --deep", "add `--deep`"), subject=named("/opt/conda/envs/train")),
)

SUPPRESSED = balancing(
    rule="memory.swap-on",
    state="suppressed",
    title="Swap is on",
    subject=MACHINE,
    because="the machine is shared; agreed until 2027",
    fixes=(),
    fingerprint="s1",
)


def report(*outcomes: Finding, passed: int = 61, machine: Snapshot | None = None, **changes: Any) -> Report:
    """A report of these outcomes with a tally that agrees with them."""
    states = [outcome.state for outcome in outcomes]
    tally = Tally(92, passed, states.count("finding"), 18, states.count("unknown"), states.count("suppressed"))
    parts: dict[str, Any] = {"sysperf": "0.1.0", "snapshot": machine or snapshot(), "outcomes": outcomes, "tally": tally, "took_ms": 84.2}
    return Report(**{**parts, **changes})


def healthy() -> Report:
    """All is well on a small machine without a GPU, as most laptops and continuous-integration machines are."""
    machine = snapshot(
        kernel={"release": "6.1.0-28-amd64", "arch": "x86_64", "virtual": True, "hypervisor": "KVM"},
        cpu={"model_name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "packages": 1, "cores": 4, "online": "0-7", "allowed": "0-3"},
        numa={"nodes_with_cpus": 1},
        memory={"total_bytes": 31 * GIB + 300_000_000, "available_bytes": 28 * GIB},
        container={"inside": True, "kind": "docker"},
        cgroup={"cpu_quota": 4.0, "memory_limit_bytes": 16 * GIB},
        pcie={"nvidia_gpus": 0},
        driver={"nvidia_version": ""},
        gpu={"devices": []},
        torch={"installs": [{"prefix": "/opt/venv", "version": "2.13.0+cpu", "cuda": "", "hip": ""}]},
    )
    return report(
        *UNKNOWNS,
        brief("openmp.threads-default", "hint", "OMP_NUM_THREADS is not set; torch takes 4 threads, one for each core."),
        brief("allocator.glibc-malloc", "hint", "No other allocator than glibc's is installed; tcmalloc often helps CPU inference."),
        machine=machine,
    )


def perfect() -> Report:
    """Nothing found, nothing unknown."""
    return report(passed=74)


def sick() -> Report:
    """Something of every kind."""
    return report(
        *(narrow_link(index) for index in (0, 1, 5)),
        balancing(),
        brief(
            "memory.thp-never",
            "info",
            "Transparent huge pages are never used; large embedding tables walk more page-table levels than needed.",
        ),
        brief("process.workers-few", "info", "2 DataLoader workers for 48 CPUs beside the GPU.", "python (pid 4242)"),
        brief("openmp.threads-default", "hint", "OMP_NUM_THREADS is not set."),
        *UNKNOWNS,
        SUPPRESSED,
    )


def silent() -> Report:
    """A machine of which nothing could be read."""
    machine = Snapshot(taken_at="", root="/tmp/node-17.tar.zst", areas={name: Area(problem="not in this capture") for name in FACTS})
    return report(unknown("numa.balancing-on", Gap("numa.balancing", "not in this capture", "")), passed=0, machine=machine)


HOSTILE = (
    "\x1b[31mred\x1b[0m \x9b2J \x07 line one\nline two\r\ttab \x00 [bold]rich[/bold] [link=file:///x]x[/link] <script>alert(1)</script> "
    "<img src=x onerror=alert(1)> ]]> --> &amp; &lt; ::error::owned ##[error]owned %0A::warning::x `tick` ```fence``` a|b|c \\| \" ' { } {0} "
    "[text](https://example.invalid) ![i](x) \udcff \u202egnirts\u2066x\u2069 \u2028 \u200b \ufeff \ufffe 漢字かな 한글 e\u0301 🙂 "
    'title="x" onload=1 # heading\n# heading\n\n---\n* list @someone #1 https://example.invalid $HOME $(id) ;'
)
"""What a process name, a path or a driver's answer could hold."""


def hostile(text: str = HOSTILE, refs: tuple[str, ...] | None = None) -> Report:
    """Every free text of the report is `text`; the references too, unless others are given."""
    finding = Finding(
        text,
        "finding",
        "error",
        "process",
        text,
        named(text),
        message=text,
        why=text,
        because=text,
        evidence=(Evidence(text, text, text), Evidence("a.list", [text, text], f"/proc/{text}"), Evidence("a.map", {text: [text]}, "")),
        unknown=(Gap(text, text, text),),
        fixes=(Remedy(text, text, "caution", command=text, undo=text, needs=text, note=text),),
        gain=Gain("measured", text),
        impact=Impact(text, "documented", text, text),
        refs=(text,) if refs is None else refs,
        fingerprint=text,
    )
    states: tuple[Any, ...] = ("finding", "unknown", "suppressed")
    outcomes = [finding] + [_changed(finding, state=state, severity="hint") for state in states]
    area = Area(problem=text, failures=(Source(text, error=text),))
    odd = {
        "kernel": {"release": text, "arch": text, "hypervisor": text, "virtual": True},
        "gpu": {"devices": [{"name": text}]},
        "torch": {"installs": [{"version": text, "prefix": text}]},
        "cpu": {"model_name": text},
    }
    areas = {text: area, **{name: Area(area_facts(name, given)) for name, given in odd.items()}}
    machine = Snapshot(taken_at=text, root=text, areas=areas)
    return report(*outcomes, machine=machine, sysperf=text)


def _changed(outcome: Finding, **changes: Any) -> Finding:
    return Finding(**{**{name: getattr(outcome, name) for name in outcome.__struct_fields__}, **changes})


MACHINES = {"healthy": healthy, "perfect": perfect, "sick": sick, "silent": silent, "hostile": hostile}
