"""probe_torch: what torch says of itself in the user's own interpreter. Only `--deep` asks; `torch` keeps the answers.

The scripts print one line of JSON and change nothing. They run on any Python from 3.8 on, with whatever torch is
there, so every question may fail on its own. Extensions are imported by a second process: one that crashes takes no
other answer with it.
"""

import msgspec

from sysperf.collect.torch.records import Deep
from sysperf.host import Host
from sysperf.model.record import Json, JsonObject
from sysperf.model.text import neutral

MAX_TEXT = 4_000
MAX_ITEMS = 128
MAX_DEPTH = 4

TORCH_SCRIPT = r"""
import json, re, sys, warnings
warnings.simplefilter("ignore")
out = {}
def ask(name, question):
    try:
        out[name] = question()
    except BaseException:
        pass
try:
    import torch
except BaseException as error:
    out["error"] = "%s: %s" % (type(error).__name__, str(error)[:500])
else:
    gil = getattr(sys, "_is_gil_enabled", None)
    out["gil_enabled"] = gil() if gil else True
    ask("version", lambda: str(torch.__version__))
    ask("cuda", lambda: torch.version.cuda or "")
    ask("threads", torch.get_num_threads)
    ask("interop_threads", torch.get_num_interop_threads)
    ask("cpu_capability", lambda: torch.backends.cpu.get_cpu_capability())
    ask("blas", lambda: re.search(r"BLAS_INFO=(\w+)", torch.__config__.show()).group(1))
    def dotted(number):
        # cuDNN 9 counts 9.20.0 as 92000, cuDNN 8 counts 8.9.2 as 8902
        if not number:
            return ""
        step = 10000 if number >= 90000 else 1000
        return "%d.%d.%d" % (number // step, number % step // 100, number % 100)
    ask("cudnn", lambda: dotted(torch.backends.cudnn.version()) if torch.version.cuda else "")
    ask("nccl", lambda: ".".join(map(str, torch.cuda.nccl.version()[:3])) if torch.version.cuda else "")
    ask("arch_list", lambda: torch._C._cuda_getArchFlags().split() if torch.version.cuda else [])
    ask("cuda_available", torch.cuda.is_available)
    ask("devices", torch.cuda.device_count)
    def cuda_error():
        if not torch.version.cuda or torch.cuda.is_available():
            return ""
        try:
            torch.cuda.init()
        except BaseException as error:
            return str(error)[:500]
        return ""
    ask("cuda_error", cuda_error)
    def numpy_blas():
        try:
            import numpy
        except ImportError:
            return ""
        return numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    ask("numpy_blas", numpy_blas)
print("\n" + json.dumps(out))
"""

EXTENSIONS_SCRIPT = r"""
import importlib, importlib.util, json, warnings
warnings.simplefilter("ignore")
broken = []
for name in ("torchvision", "torchaudio", "torchcodec", "triton", "flash_attn", "flash_attn_2_cuda", "xformers.ops", "apex",
             "transformer_engine.pytorch", "deepspeed", "bitsandbytes", "causal_conv1d", "mamba_ssm", "torch_scatter"):
    try:
        if importlib.util.find_spec(name.split(".")[0]) is None:
            continue
    except BaseException:
        continue
    try:
        importlib.import_module(name)
    except BaseException as error:
        broken.append({"name": name, "error": "%s: %s" % (type(error).__name__, str(error)[:300])})
print("\n" + json.dumps({"broken": broken}))
"""


def ask(host: Host, interpreter: str) -> Deep | None:
    """What the user's interpreter answers. That is another user's text: wrong types and long texts are dropped."""
    answer = host.probe(interpreter, "torch", TORCH_SCRIPT)
    if not isinstance(answer, dict):
        return None
    extensions = host.probe(interpreter, "torch-extensions", EXTENSIONS_SCRIPT)
    if isinstance(extensions, dict):
        answer = {**answer, "broken": extensions.get("broken")}
    kept: JsonObject = {}
    for name in Deep.__struct_fields__:
        if name in answer:
            try:
                kept[name] = getattr(msgspec.convert({name: _bounded(answer[name])}, Deep), name)
            except msgspec.ValidationError as error:
                host.refuse(f"probe:torch:{interpreter}", f"{name}: {error}"[:200])
    return Deep(**kept)


def _bounded(value: Json, depth: int = 0) -> Json:
    if isinstance(value, str):
        return neutral(value, MAX_TEXT)
    if depth < MAX_DEPTH and isinstance(value, list):
        return [_bounded(item, depth + 1) for item in value[:MAX_ITEMS]]
    if depth < MAX_DEPTH and isinstance(value, dict):
        return {neutral(str(name), 80): _bounded(item, depth + 1) for name, item in list(value.items())[:MAX_ITEMS]}
    return value if value is None or isinstance(value, bool | int | float) else None
