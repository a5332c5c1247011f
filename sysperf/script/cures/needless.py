"""Whether training needs what a statement makes, or it only goes to a log, to a print, or nowhere.

It is said of what can be followed completely: names of one function, calls that change nothing, and calls that report.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterable, Iterator, Sequence

from sysperf.script.nodes import last_name, names_in, root_of
from sysperf.script.syntax import Function, Tree, asked_again
from sysperf.startup import lazy

MAX_CHARS = 1 << 17
"""Of a longer file nothing is said: following it takes longer than it is worth."""
MAX_ROUNDS = 12
"""How often a value may be handed on, against the order of the lines."""
_REPORTS = lazy(
    r"(?:print|log\w*|info|debug|warning|write|writelines|writerows?|add_(?:scalars?|histogram|image|text)|set_(?:postfix|description)\w*"
    r"|record\w*|report\w*|track\w*)$"
)
_STORES = lazy(
    r"buffer|memory|replay|rollout|storage|bank|queue|pool|sock|pipe|conn|trial|\btune\.|\bsession\.|^(?:train\.)?report$|transition|experience"
)
"""Names of what keeps what it is given for training, or hands it on: `replay.record()` is no report."""
_KEEPS = frozenset(("append", "extend", "appendleft", "add"))
"""What puts a value into a container, which is followed on."""
_PURE = lazy(
    r"(?:argmax|argmin|tolist|item|detach|cpu|numpy|mean|sum|norm|float|double|int|long|bool|max|min|std|var|abs|square|sqrt|exp|"
    r"softmax|log_softmax|sigmoid|tanh|eq|ne|gt|lt|ge|le|clone|flatten|reshape|view|permute|transpose|squeeze|unsqueeze|expand|"
    r"size|dim|numel|topk|kthvalue|argsort|quantile|histc|median|all|any|unique|bincount|cumsum|prod|split|strip|lower|upper|format|"
    r"join|encode|decode|replace|startswith|endswith|hexdigest|digest|tobytes|copy|items|keys|values|get|count|index|parameters|"
    r"named_parameters|buffers|state_dict|astype|ravel|nonzero|argpartition|isnan|isinf|isfinite|t|diag|diagonal|tril|triu|roll|flip|"
    r"clamp|round|floor|ceil|sign|neg|relu|chunk|unbind|repeat|repeat_interleave|expand_as|view_as|type_as|type|half)$"
)
"""Methods that change nothing."""
_CHANGES = lazy(
    r"(?:^|_)(?:add|append|apply|advance|broadcast|clear|close|dump|fit|init|insert|load|next|optimi[sz]e|pop|push|put|read|recv|reduce|remove"
    r"|reset|save|seed|send|set|shuffle|step|store|sync|train|update|write)(?:_|$)|_$"
)
"""Names of functions that change what they get, or something else."""

_COMPUTES = lazy(
    r"(?:torch|numpy|math|cmath|statistics|hashlib|zlib|collections|itertools|functools|operator|re|string|json|time|copy|scipy|sklearn|skimage"
    r"|torchmetrics|jiwer|editdistance|Levenshtein|rapidfuzz|nltk|sacrebleu|rouge_score|evaluate|cv2|PIL|einops)(?:\.|$)"
)
"""Modules whose functions compute."""
BUILTINS = frozenset(dir(builtins)) - {
    "input",
    "exec",
    "eval",
    "compile",
    "setattr",
    "delattr",
    "next",
    "open",
    "print",
    "breakpoint",
    "__import__",
}

_CONTAINERS = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
_MAKES = lazy(r"(?:list|dict|set|sorted|defaultdict|Counter|deque|bytearray|zeros|ones|empty|full|arange)$")
_Assigned = ast.Assign | ast.AnnAssign | ast.AugAssign


def only_reported(text: str, line: int) -> bool:
    """Whether the statement or the loop at a line gives values to names that only reports use, if anything, and changes nothing else."""
    try:
        return len(text) <= MAX_CHARS and (file := _file(text)) is not None and _ends(file, line)
    except RecursionError:  # functions that call each other, or operators, in a chain deeper than Python's
        return False


class _File:
    """A file that is asked about several of its lines."""

    def __init__(self, tree: Tree) -> None:
        self.module = tree.module
        self.functions = tree.functions
        self.by_name = {node.name: node for node in tree.functions}
        self.modules, self.imported = imports(tree)
        self._followers: dict[ast.AST, _Follower] = {}

    def follower(self, scope: ast.Module | Function) -> _Follower:
        """Return the one that follows the values of a function."""
        if scope not in self._followers:
            self._followers[scope] = _Follower(self, scope)
        return self._followers[scope]


@functools.lru_cache(maxsize=4)
def _file(text: str) -> _File | None:
    tree = asked_again(text)
    return _File(tree) if tree is not None else None


def _ends(file: _File, line: int) -> bool:
    """Whether what a line makes goes nowhere but to reports."""
    scope = max((node for node in file.functions if _covers(node, line)), key=lambda node: node.lineno, default=file.module)
    follower = file.follower(scope)
    statement = next((node for node in _own(scope) if isinstance(node, ast.stmt) and _is_at(node, line)), None)
    made = follower.made(statement) if statement is not None else None
    return follower.ends(made) if made else False


class _Follower:
    """Follows values through one function, or the top level of a file."""

    def __init__(self, file: _File, scope: ast.Module | Function) -> None:
        self._functions = file.by_name
        self._pure: dict[str, bool] = {}
        self._modules, self._imported = file.modules, file.imported
        self._scope = scope
        own = list(_own(scope))
        self._elsewhere = _nested_names(own) | {name for node in own if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        self._fresh = _fresh(own)
        self._statements = [(node, _used(node)) for node in own if isinstance(node, ast.stmt)]

    def made(self, statement: ast.stmt) -> set[str] | None:
        """The names that a statement gives a value and nothing else; None where it does more, or nobody knows."""
        if isinstance(statement, ast.For):
            return self._block(statement.body) if self._changes_nothing(statement.iter) and not statement.orelse else None
        if not isinstance(statement, _Assigned) or statement.value is None or not self._changes_nothing(statement.value):
            return None
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [self._name(target) for target in _flat(targets)]
        return None if None in names else {name for name in names if name is not None}

    def _name(self, target: ast.expr) -> str | None:
        """The name of a target, or of the container of which an element is one."""
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in self._fresh:
            return target.value.id
        return target.id if isinstance(target, ast.Name) else None

    def ends(self, names: set[str]) -> bool:
        """Whether nothing but reports uses these names, nor what is made of them."""
        names, followed = set(names), set[str]()
        for _ in range(MAX_ROUNDS):
            if not names - followed or names & self._elsewhere:
                return not names & self._elsewhere
            followed |= names
            for statement, used in self._statements:
                if used.isdisjoint(followed):
                    continue
                if (more := self._goes_to(statement)) is None:
                    return False
                names |= more
        return False

    def _goes_to(self, statement: ast.stmt) -> set[str] | None:
        """The names to which a statement hands on what it uses; None where that is unknown, or more than a report."""
        if isinstance(statement, ast.Pass):
            return set()
        if isinstance(statement, ast.If):
            return self._block([*statement.body, *statement.orelse]) if self._changes_nothing(statement.test) else None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            return self._reported(statement.value)
        return self.made(statement)

    def _block(self, statements: Sequence[ast.stmt]) -> set[str] | None:
        """The names to which the statements of a loop or a branch hand on what they use."""
        parts = [self._goes_to(part) for part in statements]
        return None if None in parts else set[str]().union(*(part for part in parts if part is not None))

    def _reported(self, call: ast.Call) -> set[str] | None:
        name = last_name(call.func)
        if not all(self._changes_nothing(part) for part in (*call.args, *(word.value for word in call.keywords))):
            return None
        if (
            name in _KEEPS
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id in self._fresh
        ):
            return {call.func.value.id}
        return set() if only_tells(call) else None

    def _changes_nothing(self, value: ast.AST) -> bool:
        """Whether a value is made without a change of anything else."""
        if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in ast.walk(value)):
            return False
        return all(self._is_pure(node, frozenset()) for node in ast.walk(value) if isinstance(node, ast.Call))

    def _is_pure(self, call: ast.Call, local: frozenset[str]) -> bool:
        name = last_name(call.func)
        if isinstance(call.func, ast.Name):
            function = self._functions.get(name)
            if function is not None:
                return self._is_pure_function(function)
            return name in BUILTINS or (name in self._imported and not _CHANGES.search(name))
        if not isinstance(call.func, ast.Attribute):
            return False
        root = root_of(call.func)
        if isinstance(root, ast.Name) and root.id in self._modules:
            return not _CHANGES.search(name)
        return _PURE.match(name) is not None or (isinstance(call.func.value, ast.Name) and call.func.value.id in local)

    def _is_pure_function(self, function: Function) -> bool:
        """Whether a function of the file changes nothing but what it has made itself. Of one that calls itself nobody knows."""
        if function.name not in self._pure:
            self._pure[function.name] = False
            self._pure[function.name] = self._changes_only_its_own(function)
        return self._pure[function.name]

    def _changes_only_its_own(self, function: Function) -> bool:
        nodes = [node for part in function.body for node in ast.walk(part)]
        local = frozenset(_fresh(nodes))
        if any(isinstance(node, ast.Global | ast.Nonlocal | ast.Await | ast.Yield | ast.YieldFrom | ast.Delete) for node in nodes):
            return False
        for node in nodes:
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                root = root_of(node)
                if isinstance(node, ast.Attribute) or not isinstance(root, ast.Name) or root.id not in local:
                    return False
            if isinstance(node, ast.Call) and not self._is_pure(node, local):
                return False
        return True


def imports(tree: Tree) -> tuple[set[str], set[str]]:
    """The names of modules, and of functions of modules, that compute and change nothing of a program."""
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in tree.of(ast.Import)
        for alias in node.names
        if _COMPUTES.match(alias.name)
    }
    functions = {
        alias.asname or alias.name
        for node in tree.of(ast.ImportFrom)
        if node.module and _COMPUTES.match(node.module)
        for alias in node.names
    }
    return modules | functions, functions


def is_pure(method: str) -> bool:
    """Whether a method of this name changes nothing."""
    return _PURE.match(method) is not None


def changes(name: str) -> bool:
    """Whether a function of this name changes what it gets, or something else."""
    return _CHANGES.search(name) is not None


def reports(name: str) -> bool:
    """Whether a call of this name prints or logs."""
    return _REPORTS.match(name) is not None


def only_tells(call: ast.Call) -> bool:
    """Whether a call prints or logs, and does not hand on to training what it is given."""
    return reports(last_name(call.func)) and not _STORES.search(ast.unparse(call.func).lower())


def _own(scope: ast.Module | Function) -> Iterator[ast.AST]:
    """The nodes of a function or of the top level, without those of functions and classes within it."""
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _fresh(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that are only given containers and arrays which are made there: nobody else has what is put into these."""
    nodes = list(nodes)
    stores = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    both = [pair for node in nodes if isinstance(node, ast.Assign) for target in node.targets for pair in pairs(target, node.value)]
    both += [(node.target, node.value) for node in nodes if isinstance(node, ast.AnnAssign) and node.value is not None]
    made = [target.id for target, value in both if isinstance(target, ast.Name) and _makes(value)]
    return {name for name in made if made.count(name) == stores.count(name)}


def pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment with the value of each, where both are written one by one."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _makes(value: ast.expr) -> bool:
    """Whether a value is a new container or array."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Mult) and (_makes(value.left) or _makes(value.right))
    return isinstance(value, _CONTAINERS) or (isinstance(value, ast.Call) and _MAKES.match(last_name(value.func)) is not None)


def _nested_names(own: Iterable[ast.AST]) -> set[str]:
    """The names that functions within a function, or below the top level, use."""
    inner = (node for node in own if isinstance(node, Function | ast.ClassDef | ast.Lambda))
    return names_in(*inner)


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _is_at(node: ast.stmt, line: int) -> bool:
    """Whether a line is one of a simple statement, or the head of a loop."""
    return _covers(node, line) if _is_simple(node) else isinstance(node, ast.For) and node.lineno == line


def _is_simple(node: ast.stmt) -> bool:
    return not hasattr(node, "body")


def _used(statement: ast.stmt) -> set[str]:
    """The names that a statement itself uses, or the head of a compound one."""
    parts: Iterable[ast.AST] = [statement] if _is_simple(statement) else _head(statement)
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _head(statement: ast.stmt) -> list[ast.AST]:
    """What a compound statement has before its blocks."""
    return [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]


def _flat(targets: Sequence[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield from _flat(target.elts)
        else:
            yield target
