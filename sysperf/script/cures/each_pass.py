"""Whether what a line of a data set makes of a sample is the same in each pass: made of what is stored, with no chance in it."""

from __future__ import annotations

import ast

from sysperf.script.cures import needless
from sysperf.script.cures.apart import MAKERS, is_hidden
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import RANDOM, Depends, TooTangled
from sysperf.script.cures.keys import functions_by_name
from sysperf.script.nodes import last_name, names_in, root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

MAX_ASKED = 3_000
_OF_TIMES = frozenset(
    ("strptime", "strftime", "timetuple", "timestamp", "fromtimestamp", "total_seconds", "weekday", "isoformat", "fromisoformat")
)
"""Methods of dates that read no clock."""
_OF_TEXTS = lazy(
    r"^(?:find(?:all|iter)?|(?:full)?match|search|subn?|groups?|is(?:upper|lower|digit|alpha|alnum|numeric|space)|title|casefold|zfill|[lr]just"
    r"|r?partition|translate|r?split(?:lines)?|[lr]strip|remove(?:prefix|suffix)|append|extend)$"
)
"""Methods of texts, patterns and lists: what is put into a list of the data set itself is seen where the list is read."""
_READS = lazy(r"^(?:open|load|load_\w+|read\w*|recv|input|urlopen|stat|exists|fromfile|memmap|imread)$")
"""What reads files: how large all of it is nobody sees."""
_OF_PROCESS = lazy(r"^(?:id|hash|object|next|iter|getattr|globals|locals|vars|monotonic|token_\w+|randbelow|get_worker_info)$|seed")
"""What is another one in each process, or each time."""
_ENLARGES = lazy(
    r"^(?:zeros|ones|full|empty|eye|outer|meshgrid|pad|tile|repeat\w*|expand\w*|broadcast_to|one_hot|arange|linspace|product|combinations)"
)
"""What makes more of a sample than is stored of it: all samples of it may be more than memory holds."""
_PREPARES = lazy(r"^(?:zoom|resize|rescale|resample\w*|(?:sos)?filtfilt|lfilter|medfilt\w*|melspectrogram|mfcc|(?:inverse_)?transform)$")
"""What brings a sample to the size, the rate or the scale that all have: it is about as large as what is stored."""
_DATES = frozenset(("datetime", "date", "timedelta", "calendar", "dateutil"))


def is_the_same(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement of a data set gives, for a sample, the same each time, by calls of functions that only compute."""
    function = source.tree.function_of(statement)
    if function is None or "__getitem__" not in source.functions or is_hidden(source):
        return False
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return) and statement.value is not None:
        return any(_is_work_of_python(source, node) for node in ast.walk(statement.value)) and _Same(source).of(statement.value)
    return False


def _is_work_of_python(source: Depends, node: ast.AST) -> bool:
    """Whether Python goes through something, or a text is read; what a tensor becomes by operators may be larger than what is stored."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp)
    root = root_of(node.func)
    name = called(node)
    return (
        name in source.functions
        or name in _OF_TIMES
        or _PREPARES.match(name) is not None
        or (isinstance(root, ast.Name) and root.id in ("json", "re", "math", "datetime"))
    )


def is_fitted(source: Depends, call: ast.Call) -> bool:
    """Whether a call is a method of scikit-learn's that only uses what the data set's constructor has fitted."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) and _PREPARES.match(call.func.attr) else None
    if not isinstance(owner, ast.Attribute) or last_name(owner.value) != "self":
        return False
    stores = [node for node in source.tree.of(ast.Attribute) if node.attr == owner.attr and isinstance(node.ctx, ast.Store)]
    made = [source.tree.statement_of(node) for node in stores]
    return bool(made) and all(
        isinstance(one, ast.Assign) and getattr(source.tree.function_of(one), "name", "") in MAKERS and _is_of_sklearn(source, one.value)
        for one in made
    )


def _is_of_sklearn(source: Depends, value: ast.expr) -> bool:
    """Whether a value is an object of scikit-learn's that is made in it: ``StandardScaler().fit(rows)``."""
    names = {last_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    given = {
        alias.asname or alias.name
        for node in source.tree.of(ast.ImportFrom)
        if (node.module or "").partition(".")[0] == "sklearn"
        for alias in node.names
    }
    return bool(names & given) and names <= given | {"fit"}


class _Same:
    def __init__(self, source: Depends) -> None:
        self.source = source
        self._named = functions_by_name(source.tree)
        self._seen: set[ast.AST] = set()

    def of(self, part: ast.AST) -> bool:
        """Whether all that a part reads and calls is the same for one sample. Raises TooTangled."""
        for node in ast.walk(part):
            if node in self._seen:
                continue
            self._seen.add(node)
            if len(self._seen) > MAX_ASKED:
                raise TooTangled
            if not self._is(node):
                return False
        return True

    def _is(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._call(node)
        if _is_product(node):
            return False
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Name):
            return not isinstance(node.ctx, ast.Load) or self._name(node)
        return not isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal)

    def _call(self, call: ast.Call) -> bool:
        name, root = called(call), root_of(call.func)
        if _OF_PROCESS.search(name) or _ENLARGES.match(name):
            return False
        if name in self._named:
            return all(map(self._is_same_function, self._named[name]))
        if (RANDOM.search(name) and name not in _OF_TIMES) or _READS.match(name):
            return False
        if isinstance(call.func, ast.Name):
            return name in needless.BUILTINS or name in self.source.imported
        is_known = is_fitted(self.source, call) or needless.is_pure(name) or name in _OF_TIMES or _OF_TEXTS.match(name) is not None
        if isinstance(root, ast.Name) and not self.source.definitions(root):
            return root.id in self.source.modules or (root.id in _DATES and is_known)
        return is_known

    def _is_same_function(self, function: Function) -> bool:
        """Whether a function computes the same each time; one whose parameter is a list by default may keep something there."""
        keeps = any(isinstance(one, ast.List | ast.Dict | ast.Set | ast.Call) for one in function.args.defaults)
        return not keeps and all(self.of(part) for part in function.body)

    def _attribute(self, part: ast.Attribute) -> bool:
        """An attribute of the data set that only its constructor gives a value."""
        if isinstance(part.ctx, ast.Store):
            return False
        is_own = isinstance(part.value, ast.Name) and part.value.id == "self"
        if is_own and not (self.source.changed(f".{part.attr}") or part.attr in self._named or part.attr in self.source.names):
            return False  # it is given its value by another file
        makers = [self.source.tree.function_of(node) for node in self._changes(f".{part.attr}")]
        return all(maker is not None and maker.name in MAKERS for maker in makers)

    def _changes(self, key: str) -> list[ast.AST]:
        """Find where something of this name may be changed; a pattern that is looked for is not."""
        return [node for node in self.source.changed(key) if not (isinstance(node, ast.Call) and self._only_reads(node))]

    def _only_reads(self, call: ast.Call) -> bool:
        name = called(call)
        return (_OF_TEXTS.match(name) is not None and name not in ("append", "extend")) or is_fitted(self.source, call)

    def _name(self, name: ast.Name) -> bool:
        definitions = self.source.definitions(name)
        if any(isinstance(one.node, ast.AugAssign) for one in definitions):
            return False
        at_top = [one for one in definitions if self.source.scope_of(one.node) is self.source.tree.module]
        if at_top:
            return not any(self.source.tree.function_of(node) for node in self._changes(name.id))
        return all(
            self._argument(one.node) if isinstance(one.node, ast.arg) else one.value is None or self.of(one.value) for one in definitions
        )

    def _argument(self, argument: ast.arg) -> bool:
        """What a function is given by the calls in this file: all of their arguments are looked at."""
        function = self.source.tree.function_of(argument)
        if not isinstance(function, Function) or function.name in ("__getitem__", "__len__") or argument.arg == "self":
            return True
        calls = self.source.calls.get(function.name, ())
        return bool(calls) and all(self.of(part) for call in calls for part in (*call.args, *(word.value for word in call.keywords)))


def _is_product(node: ast.AST) -> bool:
    """Whether each of several is put together with each, or a list is repeated: it may be far more than what is stored."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult) and any(isinstance(side, ast.List | ast.ListComp) for side in (node.left, node.right))
    if not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return False
    given = names_in(*(part.target for part in node.generators))
    element = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inner = [part.iter for one in element for made in ast.walk(one) for part in getattr(made, "generators", ())]
    inner += [part.iter for part in node.generators[1:]]
    return any(given.isdisjoint(one.id for one in ast.walk(part) if isinstance(one, ast.Name)) for part in inner)
