"""/proc/cpuinfo, which every architecture writes in its own words.

Kernel  https://docs.kernel.org/filesystems/proc.html
        https://docs.kernel.org/arch/arm64/elf_hwcaps.html
"""

from __future__ import annotations

import re
from typing import Annotated

from sysperf.model.cpuset import MAX_CPU, CpuSet
from sysperf.model.record import Record, fact
from sysperf.startup import lazy

CPUINFO = "/proc/cpuinfo"
MAX_BYTES = 32 << 20
"""Two thousand CPUs times the 4 KiB that a CPU with all flags takes, four times over."""

ARM_VENDORS = {
    "0x41": "ARM", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x50": "APM", "0x51": "Qualcomm",
    "0x61": "Apple", "0x6d": "Microsoft", "0x70": "Phytium", "0xc0": "Ampere",
}  # fmt: skip
ARM_CORES = {
    "0x41 0xd03": "Cortex-A53", "0x41 0xd05": "Cortex-A55", "0x41 0xd07": "Cortex-A57", "0x41 0xd08": "Cortex-A72",
    "0x41 0xd0b": "Cortex-A76", "0x41 0xd0c": "Neoverse-N1", "0x41 0xd40": "Neoverse-V1", "0x41 0xd41": "Cortex-A78",
    "0x41 0xd42": "Cortex-A78AE", "0x41 0xd44": "Cortex-X1", "0x41 0xd46": "Cortex-A510", "0x41 0xd47": "Cortex-A710",
    "0x41 0xd48": "Cortex-X2", "0x41 0xd49": "Neoverse-N2", "0x41 0xd4d": "Cortex-A715", "0x41 0xd4e": "Cortex-X3",
    "0x41 0xd4f": "Neoverse-V2", "0x41 0xd80": "Cortex-A520", "0x41 0xd81": "Cortex-A720", "0x41 0xd82": "Cortex-X4",
    "0x41 0xd83": "Neoverse-V3AE", "0x41 0xd84": "Neoverse-V3", "0x41 0xd85": "Cortex-X925", "0x41 0xd87": "Cortex-A725",
    "0x41 0xd8e": "Neoverse-N3", "0x46 0x001": "A64FX", "0x48 0xd01": "TaiShan-v110", "0x4e 0x004": "Carmel",
    "0xc0 0xac3": "Ampere-1", "0xc0 0xac4": "Ampere-1a",
}  # fmt: skip
"""ARM's own list is in https://github.com/util-linux/util-linux/blob/master/sys-utils/lscpu-arm.c."""

_PROCESSOR = lazy(r"^processor[ \t]*:?[ \t]*([0-9]{1,5})[ \t]*(?::|$)", re.MULTILINE)
_RVV = lazy(r"rv(?:32|64)[a-uw-z]*v")
_FEATURES = ("flags", "Features", "features", "isa", "cpucaps")
_DESIGN = ("CPU implementer", "CPU part", "mvendorid", "marchid", "uarch")
_AVX512 = frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
_NAMED = {
    # our name: the kernel's
    "fma": "fma", "avx2": "avx2", "avx_vnni": "avx_vnni", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16", "amx": "amx_tile", "amx_bf16": "amx_bf16", "amx_int8": "amx_int8", "amx_fp16": "amx_fp16",
    "neon": "asimd", "sve": "sve", "sve2": "sve2", "sme": "sme", "i8mm": "i8mm", "vxe": "vxe", "lasx": "lasx",
}  # fmt: skip


class Isa(Record):
    """Instructions that decide which kernels PyTorch's libraries choose; false on another architecture."""

    avx2: Annotated[bool, fact("x86: 256-bit integer vectors", CPUINFO)] = False
    fma: Annotated[bool, fact("x86: fused multiply-add", CPUINFO)] = False
    avx512: Annotated[bool, fact("x86: AVX-512 F, BW, CD, DQ and VL, the set that oneDNN and MKL ask for", CPUINFO)] = False
    avx512_vnni: Annotated[bool, fact("x86: AVX-512 with 8-bit dot products", CPUINFO)] = False
    avx512_bf16: Annotated[bool, fact("x86: AVX-512 with bfloat16 dot products", CPUINFO)] = False
    avx512_fp16: Annotated[bool, fact("x86: AVX-512 with half precision", CPUINFO)] = False
    avx_vnni: Annotated[bool, fact("x86: 256-bit vectors with 8-bit dot products", CPUINFO)] = False
    amx: Annotated[bool, fact("x86: tiles for matrix multiplication (AMX)", CPUINFO)] = False
    amx_bf16: Annotated[bool, fact("x86: AMX on bfloat16", CPUINFO)] = False
    amx_int8: Annotated[bool, fact("x86: AMX on 8-bit integers", CPUINFO)] = False
    amx_fp16: Annotated[bool, fact("x86: AMX on half precision", CPUINFO)] = False
    neon: Annotated[bool, fact("ARM: 128-bit vectors (Advanced SIMD)", CPUINFO)] = False
    sve: Annotated[bool, fact("ARM: scalable vectors", CPUINFO)] = False
    sve2: Annotated[bool, fact("ARM: scalable vectors, version 2", CPUINFO)] = False
    sme: Annotated[bool, fact("ARM: scalable matrix extension", CPUINFO)] = False
    i8mm: Annotated[bool, fact("ARM: 8-bit matrix multiplication", CPUINFO)] = False
    rvv: Annotated[bool, fact("RISC-V: vectors", CPUINFO)] = False
    vxe: Annotated[bool, fact("s390: vector enhancements", CPUINFO)] = False
    lasx: Annotated[bool, fact("LoongArch: 256-bit vectors", CPUINFO)] = False
    bf16: Annotated[bool, fact("bfloat16 arithmetic in hardware, by AVX-512, AMX or ARM's BF16", CPUINFO)] = False


class Cpuinfo:
    """What the file says of the machine (its first CPU) and of the design of each CPU's core."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.first = _fields(text.lstrip("\n").split("\n\n", 2)[:2])

    def get(self, *names: str) -> str | None:
        """The first CPU's value under the first of these names that is there."""
        return next((self.first[name] for name in names if self.first.get(name)), None)

    def number(self, name: str) -> int | None:
        """The first CPU's value as a whole number."""
        value = self.first.get(name, "")
        return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else None

    def mhz(self) -> float | None:
        """The first CPU's speed when the file was read."""
        match = re.match(r"[0-9]{1,6}(\.[0-9]{1,9})?", self.get("cpu MHz", "CPU MHz", "clock", "cpu MHz dynamic") or "")
        return float(match[0]) if match else None

    def vendor(self) -> str | None:
        """The maker, as the CPU says it."""
        code = self.get("CPU implementer")
        if code:
            return ARM_VENDORS.get(code, code)
        power = (self.get("cpu") or "").startswith(("POWER", "PPC"))
        return "IBM" if power else self.get("vendor_id", "vendor")

    def model_name(self) -> str | None:
        """The model, for people: of each design where there are several."""
        if self.get("CPU part"):
            designs = self.designs().values() or (f"{self.get('CPU implementer')} {self.get('CPU part')}",)
            return " + ".join(ARM_CORES.get(design.strip(), design.split()[-1]) for design in dict.fromkeys(designs) if design.strip())
        return self.get("model name", "Model Name", "cpu model", "uarch", "cpu", "CPU part")

    def flags(self) -> frozenset[str] | None:
        """The features of the first CPU as the kernel names them; None where the file lists none."""
        listed = self.get(*_FEATURES)
        return frozenset(re.split(r"[\s,]+", listed)) if listed else None

    def isa(self) -> Isa | None:
        """The instructions that matter; None where the file lists no features."""
        flags = self.flags()
        if flags is None:
            return None
        features = {ours: name in flags for ours, name in _NAMED.items()}
        bf16 = not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))
        rvv = any(flag.startswith("rv") and _RVV.match(flag) for flag in flags)  # elsewhere the pattern is not compiled
        return Isa(avx512=flags >= _AVX512, rvv=rvv, bf16=bf16, **features)

    def processors(self) -> CpuSet | None:
        """The numbers of the CPUs that the file lists, which are those online; None when it lists none."""
        numbers = (int(number) for number in _PROCESSOR.findall(self.text))
        return CpuSet(cpu for cpu in numbers if cpu <= MAX_CPU) or None

    def designs(self) -> dict[int, str]:
        """The design of each CPU's core, where the file tells designs apart (ARM, RISC-V)."""
        if "CPU part" not in self.text and "marchid" not in self.text:
            return {}
        designs = {}
        for block in self.text.split("\n\n"):
            fields = _fields([block])
            number = fields.get("processor", "")
            if re.fullmatch(r"[0-9]{1,5}", number) and any(name in fields for name in _DESIGN[1:]):
                designs[int(number)] = " ".join(fields.get(name, "") for name in _DESIGN)
        return designs


def _fields(blocks: list[str]) -> dict[str, str]:
    """``name : value`` lines; what comes first wins."""
    fields: dict[str, str] = {}
    for block in blocks:
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
    return fields
