"""Facts of settings: variables of the environment, and flags of torch.backends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Setting
from sysperf.script.file import File
from sysperf.script.nodes import last_name

_VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "CUDA_", "PYTORCH_", "TORCH_", "NCCL_")


def settings(file: File) -> Iterator[Setting]:
    """Variables of the environment and flags of torch.backends that the file sets."""
    imports: list[ast.Import | ast.ImportFrom] = [*file.tree.of(ast.Import), *file.tree.of(ast.ImportFrom)]
    torch_line = min((node.lineno for node in imports if _imports_torch(node)), default=1 << 60)
    for statement in file.tree.of(ast.Assign):
        for place in statement.targets:
            if name := _variable(file, place):
                yield _setting(file, statement, name, file.text(statement.value), torch_line)
    for call in file.tree.of(ast.Call):
        if file.names.qualified(call.func) in ("os.environ.setdefault", "os.putenv") and len(call.args) == 2:
            name = file.text(call.args[0])
            if name.startswith(_VARIABLES):
                yield _setting(file, call, name, file.text(call.args[1]), torch_line)


def _setting(file: File, node: ast.expr | ast.stmt, name: str, value: str, torch_line: int) -> Setting:
    given = node.value if isinstance(node, ast.Assign) else None
    tests = [parent.test for parent in file.tree.ancestors(node) if isinstance(parent, ast.If)]
    conditional = not all(_asks_for_a_gpu(test) for test in tests) or isinstance(given, ast.Name | ast.Attribute)
    conditional = conditional or any(word in file.function_name(node).lower() for word in ("determin", "reproduc"))
    return Setting(**file.site(node), variable=name, value=value, after_torch=node.lineno > torch_line, conditional=conditional)


def _asks_for_a_gpu(test: ast.expr) -> bool:
    """``if torch.cuda.is_available()``: no choice of anybody's."""
    return isinstance(test, ast.Call) and last_name(test.func) == "is_available"


def _variable(file: File, place: ast.expr) -> str:
    if isinstance(place, ast.Subscript) and file.names.qualified(place.value) == "os.environ":
        name = file.text(place.slice)
        return name if name.startswith(_VARIABLES) else ""
    name = file.names.qualified(place)
    return name if name.startswith("torch.backends.") else ""


def _imports_torch(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] in ("torch", "torchvision", "lightning", "pytorch_lightning", "timm") for name in names)
