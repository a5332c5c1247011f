"""Which conditions hold seldom: every Nth step, the first one, for a log, when an episode ends, when a loss is no number."""

from __future__ import annotations

import ast

from sysperf.script.nodes import dotted, item_key, last_name
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.values import Values
from sysperf.script.syntax import within
from sysperf.startup import lazy

_SELDOM = lazy(
    r"(?i)\w*(log|print|debug|anomal|verbose|every|interval|freq|period|display|save|report|track|profil|should|plot|vis)\w*"
    r"|(is_|at_|on_)?(last|first|final|done|dones|end|terminated|truncated|terminal|dry_run|nan|inf|overflow)(_\w+)?"
    r"|(\w+_)?write(_\w+)?|(\w+_)?(free|empty|clear)_(mem(ory)?|cache)|\w*_(due|done|finished|ended)|(is_)?(new_|the_)?best|\w*improved|isnan|isinf|smoke_test|fast_dev_run"
    r"|_*(when|(is_)?time_to)_\w+"
)
_READY = lazy(r"_*(is_|was_|has_been_)?(initi?t?ed|initiali[sz]ed|built|ready|calibrated|setup_done)_*")
"""What is so from the first round on."""
_COUNTER = lazy(
    r"(?i)_*(?!\w*optim)(\w*_)?(steps?|iters?|iterations?|it|i|j|k|n|idx|index|batch|batch_i\w*|epochs?|ep|count|counter|n_iter|t|num_\w+|nb)(_\w+)?_*"
)
_ROUNDS = lazy(r"_*(\w+_)?(steps?|iters?|iterations?|batch(es)?|epochs?|count|counter)_*")
"""Counters that a dictionary keeps."""
_VERBOSITY = lazy(r"(?i)\w*(verbos|debug|log_?level)\w*")
_BEST = lazy(r"(?i)(\w+_)?best(_\w+)?")
"""What is better than all before it, is so less and less often."""
_EARLY = lazy(r"(?i)\w*(warm_?up|few|debug|first|early)\w*")
_TIMES = lazy(r"(?i)\w*(time|elapsed|now|tic|clock)\w*")
_MICRO = lazy(
    r"(?i)(?!\w*(target|policy|actor|critic|weight))"
    r"\w*(accum|micro|virtual_batch|update_freq|grad_step|iter_size|iters_to_acc|sub_?div)\w*"
)
"""Numbers of backward passes for a step; networks that are copied every so often are none."""
_PROGRESS = lazy(r"(?i)\w*(progress|tqdm|pbar)\w*|_*show_\w+")
"""Options for a bar or a value that is shown."""
_OF_RANKS = lazy(r"RANK|WORLD|SLURM|NODE|CUDA|DEVICE|DDP")
"""Variables that launchers set."""
_OFF = ("", "0", "false", "no", "off", "none")
_INFINITE = ("isfinite",)
"""What nearly always holds; so does `self.training` in a step."""
FEW = 100
"""Of so many rounds at the beginning, a run has more."""


class Conditions:
    """The conditions of a file, by how often they hold."""

    def __init__(self, names: Names, values: Values) -> None:
        self._names = names
        self._values = values
        self._known: dict[tuple[ast.expr, bool], bool] = {}

    def seldom(self, test: ast.expr, negated: bool = False) -> bool:
        """Whether a condition holds seldom; `negated`: whether it fails seldom."""
        key = (test, negated)
        if key not in self._known:
            self._known[key] = self._seldom(test, negated)
        return self._known[key]

    def _seldom(self, test: ast.expr, negated: bool) -> bool:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.seldom(test.operand, not negated)
        if isinstance(test, ast.BoolOp):  # a condition that somebody joined with a seldom one is of the same kind
            return any(self.seldom(part, negated) for part in test.values)
        return (not negated and self._is_switched_on(test)) or self._holds_seldom(test, negated)

    def _holds_seldom(self, test: ast.expr, negated: bool) -> bool:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._comparison(test.left, test.ops[0], test.comparators[0], negated)
        if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod | ast.BitAnd):  # `if step % 100`: nearly always
            return negated and self._is_every_nth(test)
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return self._word(test, negated)
        return not negated and (any(_is_remainder(part) for part in within(test)) or self._is_window(test))

    def _is_switched_on(self, test: ast.expr) -> bool:
        """``os.environ.get("DEBUG")``, ``os.getenv("CHECK", "0") == "1"``: what only a variable of the environment turns on."""
        if isinstance(test, ast.Compare) and not (isinstance(test.ops[0], ast.Eq) and _is_on(test.comparators[0])):
            return False
        named = [binding.value for part in within(test) if isinstance(part, ast.Name) for binding in self._names.lookup(part, part.id)]
        parts = [part for node in (test, *named) if node is not None for part in within(node) if isinstance(part, ast.Call)]
        asked = [part for part in parts if self._names.qualified(part.func) in ("os.environ.get", "os.getenv") and part.args]
        keys = [part.args[0].value for part in asked if isinstance(part.args[0], ast.Constant)]
        if not asked or len(keys) < len(asked) or any(_OF_RANKS.search(str(key)) for key in keys):
            return False
        defaults = [part.args[1] for part in asked if len(part.args) > 1]
        return all(isinstance(each, ast.Constant) and str(each.value).lower() in _OFF for each in defaults)

    def _is_window(self, test: ast.expr) -> bool:
        """``first <= step < last``: some rounds in the middle."""
        if not isinstance(test, ast.Compare) or len(test.ops) == 1 or not self._is_counter(test.comparators[0]):
            return False
        return not any(isinstance(bound, ast.Constant) for bound in (test.left, test.comparators[-1]))

    def _word(self, test: ast.Name | ast.Attribute | ast.Call | ast.Subscript, negated: bool) -> bool:
        if isinstance(test, ast.Subscript):
            return not negated and any(_SELDOM.fullmatch(word) for word in (item_key(test), last_name(test.value)) if word)
        name = last_name(test.func if isinstance(test, ast.Call) else test)
        if name in _INFINITE or _READY.fullmatch(name) or (name == "training" and isinstance(test, ast.Attribute)):
            return negated
        if isinstance(test, ast.Name) and (said := self._bound(test)) is not None:
            return self.seldom(said, negated)
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and name in ("any", "all", "item"):
            return self.seldom(test.func.value, negated) if isinstance(test.func.value, ast.Call) else False
        chosen = self._names.option(test)
        if (_PROGRESS.fullmatch(name) and chosen is False) or (_VERBOSITY.fullmatch(name) and chosen):
            return negated == bool(chosen)
        words = within(test) if isinstance(test, ast.Call) else (test,)
        return not negated and any(_SELDOM.fullmatch(last_name(word)) for word in words)

    def _bound(self, test: ast.Name) -> ast.expr | None:
        """The condition that a name stands for: ``update = step % 10 == 0``."""
        bindings = self._names.lookup(test, test.id)
        value = bindings[0].value if len(bindings) == 1 and not bindings[0].path and not bindings[0].element else None
        return value if isinstance(value, ast.Compare | ast.BoolOp | ast.BinOp) else None

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr, negated: bool) -> bool:
        if isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot):
            same = {ast.NotEq: ast.Eq(), ast.NotIn: ast.In(), ast.IsNot: ast.Is()}[type(op)]
            return self._comparison(left, same, right, not negated)
        if negated:
            return self._is_before_end(left, op, right)
        if any(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mod | ast.BitAnd) for side in (left, right)):
            return any(self._is_every_nth(side) for side in (left, right) if isinstance(side, ast.BinOp))
        if isinstance(op, ast.Eq):
            return any(self._is_counter(side) for side in (left, right)) and not any(_is_text(side) for side in (left, right))
        if isinstance(op, ast.In):
            return self._is_counter(left) or (_is_text(left) and any("info" in last_name(part) for part in within(right)))
        return isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and self._order(left, op, right)

    def _is_before_end(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
        """``i < len(loader) - 1``, which fails in the last round."""
        if isinstance(op, ast.Gt | ast.GtE):
            left, right = right, left
        counts = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and self._is_counter(left)
        return counts and any(isinstance(part, ast.Call) and last_name(part.func) == "len" for part in within(right))

    def _order(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
        """``i < 3``, ``step < warmup_steps``, ``loss < best``, ``time.time() - last > 60``, ``random() < 0.01``."""
        if any(_BEST.fullmatch(last_name(side)) for side in (left, right)):
            return True
        if isinstance(op, ast.Gt | ast.GtE):
            left, right = right, left
        if any(_VERBOSITY.fullmatch(last_name(side)) for side in (left, right)):
            return not self._is_exceeded(left, right)
        if any(_TIMES.fullmatch(last_name(part)) for part in within(right) if isinstance(part, ast.Name | ast.Attribute)):
            return True
        if isinstance(left, ast.Call) and last_name(left.func) in ("random", "rand", "uniform"):
            return True
        limit = self._names.constant(right)
        few = isinstance(limit, int | float) and limit <= FEW
        return self._is_counter(left) and (few or bool(_EARLY.fullmatch(last_name(right))))

    def _is_exceeded(self, limit: ast.expr, verbosity: ast.expr) -> bool:
        """Whether by default a program says more than a limit: ``if verbose > 0:`` where a function has ``verbose=1``."""
        least, chosen = self._names.constant(limit), self._names.option(verbosity)
        return isinstance(least, int) and isinstance(chosen, int) and least < chosen

    def _is_counter(self, node: ast.expr) -> bool:
        """A number of the round: by what it is, or by its name."""
        if isinstance(node, ast.BinOp):
            return self._is_counter(node.left) or self._is_counter(node.right)
        if isinstance(node, ast.Name) and any(binding.element for binding in self._names.lookup(node, node.id)):
            return self._values.is_a(node, "number")
        if isinstance(node, ast.Subscript):
            return self._is_kept_counter(node)
        return isinstance(node, ast.Name | ast.Attribute) and bool(_COUNTER.fullmatch(last_name(node)))

    def _is_kept_counter(self, node: ast.Subscript) -> bool:
        """``state["step"]``, or ``calls[0]`` where ``calls = [0]``, which a function counts up."""
        if key := item_key(node):
            return bool(_ROUNDS.fullmatch(key))
        kept = [binding.value for binding in self._names.lookup(node, dotted(node.value))] if dotted(node.value) else []
        return bool(kept) and all(isinstance(each, ast.List) and [*map(type, each.elts)] == [ast.Constant] for each in kept)

    def _is_every_nth(self, node: ast.expr) -> bool:
        """Whether a remainder is seldom a certain one: not with a divisor of 1, and not where gradients are summed up."""
        divisors = [part.right for part in within(node) if _is_remainder(part) and isinstance(part, ast.BinOp)]
        return any(
            self._names.constant(divisor) != 1
            and not any(_MICRO.fullmatch(last_name(part)) for part in within(divisor) if isinstance(part, ast.Name | ast.Attribute))
            for divisor in divisors
        )


def _is_on(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).lower() not in _OFF


def _is_remainder(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.BitAnd)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bool | None.__class__)


def absent(test: ast.expr) -> str:
    """The container that a condition says something is not in yet: ``if key not in made:``, ``if not made:``, ``if len(made) == 0:``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return dotted(_counted(test.operand))
    if not isinstance(test, ast.Compare):
        return ""
    if isinstance(test.ops[0], ast.NotIn):
        return dotted(test.comparators[0])
    counted, none = _counted(test.left), test.comparators[0]
    is_none = isinstance(test.ops[0], ast.Eq) and isinstance(none, ast.Constant) and none.value == 0
    return dotted(counted) if is_none and counted is not test.left else ""


def _counted(node: ast.expr) -> ast.expr:
    """What `len` counts, or an expression itself."""
    return node.args[0] if isinstance(node, ast.Call) and last_name(node.func) == "len" and node.args else node


def puts(statement: ast.stmt, container: str) -> bool:
    """Whether a statement puts something into a container: ``made[key] = …``, ``one = made[key] = …``."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(target, ast.Subscript) and dotted(target.value) == container for target in targets)


def missing(test: ast.expr) -> str:
    """The name that a condition says is not there yet, or is not what it has to be: ``if type(self.rate) is float:``."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        of_type = test.left.args if isinstance(test.left, ast.Call) and last_name(test.left.func) == "type" else ()
        return dotted(of_type[0] if of_type else test.left)
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if isinstance(asked, ast.Call) and last_name(asked.func) == "isinstance" and asked.args:
        return dotted(asked.args[0])  # it is converted, and then is what it has to be
    return dotted(asked) if asked is not None else ""
