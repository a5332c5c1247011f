"""What gives names their values in one file: imports, assignments, functions with their calls."""

from __future__ import annotations

import ast

from sysperf.script.nodes import dotted, item_name, last_name
from sysperf.script.semantics.binding import Binding, whole
from sysperf.script.semantics.called import chosen, function_of, is_of_a_part, is_of_self, may_call, method_of, written_text
from sysperf.script.semantics.through import called_through, completed
from sysperf.script.syntax import Function, Tree, is_bound

MAX_BINDINGS = 12
MAX_CALLS = 8
MAX_SEEN = 100
"""Expressions that are followed to find which function one stands for."""
_MODULE_NAMES = {"F": "torch.nn.functional", "nn": "torch.nn"}
"""What these names mean everywhere, should the import be a star's."""

_CLASS_NAMES = {"DataLoader": "torch.utils.data.DataLoader"}
"""The same of names, in a file that imports a star of which is not known what it has."""

Passed = tuple[ast.expr | None, bool]
"""An expression that is followed, and whether only an element of it is."""


class Bindings:
    """What gives the names of a file their values, and who calls its functions."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.imports: dict[str, str] = {}
        self.bindings: dict[tuple[ast.AST, str], list[Binding]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.classes = {node.name: node for node in tree.of(ast.ClassDef)}
        self.calls: dict[str, list[ast.Call]] = {}
        self._handed_over: dict[Function, list[ast.Call]] = {}
        self._arguments: dict[Function, dict[int, list[ast.expr]]] = {}
        self._stood: dict[Passed, tuple[list[Passed], list[Function]]] = {}
        self._items: dict[str, list[tuple[str, ast.expr]]] = {}
        self._updates: dict[str, list[ast.Call]] = {}
        self.held: dict[tuple[ast.AST, str], list[ast.expr]] = {}
        """What is put into a list or a dictionary after it was made."""
        self.holding: set[str] = set()
        self.augmented = {dotted(statement.target) for statement in tree.of(ast.AugAssign)}
        self.differentiated: set[str] = set()
        """Names of what a backward pass begins at."""
        self.parameterized: set[str] = set()
        """Names of what has parameters that somebody asks for: models."""
        self.read: set[tuple[ast.AST, str]] = set()
        """Names of which `item` is called, in their scope: tensors, at least there."""
        self._read_imports()
        self._read_functions()
        self._read_assignments()
        self._read_calls()
        self._read_handed_over()

    def _read_imports(self) -> None:
        for statement in self._tree.of(ast.Import):
            for alias in statement.names:
                self.imports[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        for source in self._tree.of(ast.ImportFrom):
            for alias in source.names:
                self.imports[alias.asname or alias.name] = f"{source.module or ''}.{alias.name}".lstrip(".")
        if "*" in self.imports:
            self.imports |= {name: meant for name, meant in _CLASS_NAMES.items() if name not in self.imports and name not in self.classes}

    def _read_functions(self) -> None:
        for function in self._tree.functions:
            self.functions.setdefault(function.name, []).append(function)
            arguments = [*function.args.posonlyargs, *function.args.args]
            for index, given in enumerate(arguments):
                self._bind(function, given.arg, Binding(None, parameter=(function, index), annotation=given.annotation))
            for given in function.args.kwonlyargs:
                self._bind(function, given.arg, Binding(None, parameter=(function, -1), annotation=given.annotation))
            if (rest := function.args.kwarg) is not None:
                self._bind(function, rest.arg, Binding(None, parameter=(function, -1)))

    def _read_assignments(self) -> None:
        for statement in self._tree.of(ast.Assign):
            for target in statement.targets:
                self._assign(target, Binding(statement.value))
        for annotated in self._tree.of(ast.AnnAssign):
            if annotated.value is not None:
                self._assign(annotated.target, Binding(annotated.value, annotation=annotated.annotation))
        for walrus in self._tree.of(ast.NamedExpr):
            self._assign(walrus.target, Binding(walrus.value))
        self._read_loops()

    def _read_loops(self) -> None:
        """What loops and `with` give names to."""
        for loop in self._tree.loops:
            if not isinstance(loop, ast.While):
                self._assign(loop.target, Binding(loop.iter, element=True))
        for comprehension in self._tree.of(ast.comprehension):
            self._assign(comprehension.target, Binding(comprehension.iter, element=True))
        for item in self._tree.of(ast.withitem):
            if item.optional_vars is not None:
                self._assign(item.optional_vars, Binding(item.context_expr))

    def _assign(self, target: ast.expr, binding: Binding) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._assign(part, binding._replace(path=(*binding.path, index)))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, binding)
        elif isinstance(target, ast.Subscript):
            if binding.value is not None and not binding.path and not binding.element:
                self._put(target, dotted(target.value), binding.value)
        elif name := dotted(target):
            self._bind(self.scope(target, name), name, binding)

    def _put(self, target: ast.Subscript, name: str, value: ast.expr) -> None:
        """``named["train"] = …``, ``loaders[i] = …``."""
        if isinstance(key := target.slice, ast.Constant) and isinstance(key.value, str):
            self._items.setdefault(name, []).append((key.value, value))
        self._hold(target, name, value)

    def _hold(self, node: ast.AST, name: str, value: ast.expr) -> None:
        known = self.held.setdefault((self.scope(node, name), name), []) if name else []
        self.holding.add(name)
        if len(known) < MAX_BINDINGS:
            known.append(value)

    def _bind(self, scope: ast.AST, name: str, binding: Binding) -> None:
        known = self.bindings.setdefault((scope, name), [])
        if len(known) < MAX_BINDINGS:
            known.append(binding)

    def _read_calls(self) -> None:
        keeps = any(last_name(call.func) == "partial" for call in self._tree.of(ast.Call))
        for call in self._tree.of(ast.Call):
            name = last_name(call.func)
            for called in (name, *self._aliases(call.func)):
                self._called(called, call)
            for run in (called_through(self._tree, call), *(self._completed(call) if keeps else ())):
                if run is not None:
                    self._called(last_name(run.func), run)
            if isinstance(call.func, ast.Attribute):
                self._read_method(call, call.func)

    def _read_method(self, call: ast.Call, method: ast.Attribute) -> None:
        """What the call of a method says of what it is called on."""
        owner = dotted(method.value)
        if method.attr in ("backward", "manual_backward"):
            self._read_backward(call, method)
        elif method.attr == "register_buffer" and (buffer := written_text(call.args)) and owner == "self":
            self._bind(self.scope(call, "self."), f"self.{buffer}", Binding(call))
        elif owner and method.attr in ("parameters", "named_parameters"):
            self.parameterized.add(owner)
        elif owner and method.attr == "item":
            self.read.add((self.scope(call, owner), owner))
        elif method.attr == "append" and len(call.args) == 1:
            self._hold(call, owner, call.args[0])
        elif owner and method.attr in ("update", "setdefault"):
            self._updates.setdefault(owner, []).append(call)

    def _aliases(self, called: ast.expr) -> list[str]:
        """The functions that a name stands for: ``step = first if warm else second``."""
        name = dotted(called)
        bindings = self.lookup(called, name) if name and last_name(called) not in self.functions else []
        values = [binding.value for binding in bindings if not binding.path and not binding.element]
        return [name for value in values for part in chosen(value) if (name := function_of(part) or method_of(part))]

    def _completed(self, call: ast.Call) -> list[ast.Call | None]:
        """The calls that complete what ``partial`` keeps under the name that is called."""
        name = dotted(call.func)
        bindings = self.lookup(call, name) if name and last_name(call.func) not in self.functions else []
        return [completed(self._tree, call, binding.value) for binding in bindings if not binding.path and not binding.element]

    def _called(self, name: str, call: ast.Call) -> None:
        if (name in self.functions or name in self.classes) and len(known := self.calls.setdefault(name, [])) < MAX_CALLS:
            known.append(call)

    def _read_handed_over(self) -> None:
        """Calls of what was handed over as a value: ``callback(loss)``, ``self.on_step(loss)``, ``for hook in hooks: hook(loss)``."""
        for call in self._tree.of(ast.Call):
            name = dotted(call.func)
            if name and last_name(call.func) not in self.functions and self._is_handed_over(call.func):
                for function in dict.fromkeys(self.functions_of(call.func)):
                    if not function.name.startswith("test_") and len(known := self._handed_over.setdefault(function, [])) < MAX_CALLS:
                        known.append(call)
                        self._arguments.pop(function, None)

    def _is_handed_over(self, called: ast.expr) -> bool:
        """Whether a name is given by a caller, or by a loop, itself or through an attribute."""
        bindings = self.lookup(called, dotted(called))
        kept = [each for binding in bindings if (value := whole(binding)) is not None for each in self.lookup(value, dotted(value))]
        return any(binding.parameter is not None or binding.element for binding in (*bindings, *kept))

    def functions_of(self, node: ast.expr | None) -> list[Function]:
        """The functions of the file that an expression may stand for, by its name or that of a parameter that callers give."""
        found: list[Function] = []
        waiting, seen = [(node, False)], {(node, False)}
        while waiting:
            node, element = waiting.pop()  # of an element, the functions that a list has
            if (node, element) not in self._stood:
                self._stood[node, element] = self._stands_for(node, element=element)
            parts, functions = self._stood[node, element]
            found += functions
            new = [part for part in parts if part not in seen] if len(seen) < MAX_SEEN else []
            seen.update(new)
            waiting += new
        return found

    def _stands_for(self, node: ast.expr | None, *, element: bool) -> tuple[list[Passed], list[Function]]:
        """What an expression passes on, and the function that it names itself."""
        if element and isinstance(node, ast.List | ast.Tuple):
            return [(part, False) for part in node.elts[:MAX_BINDINGS]], []
        name = dotted(node) if isinstance(node, ast.Name | ast.Attribute) else function_of(node)
        bindings = self.lookup(node, name) if node is not None and name else []
        parts = [
            (given, element or binding.element)
            for binding in bindings
            for given in (self.arguments(binding.parameter) if binding.parameter is not None else (whole(binding),))
        ]
        functions = self.functions.get(name.removeprefix("self."), []) if name and not bindings and not element else []
        return parts, [each for each in functions if len(functions) == 1 and self._is_method(each) == name.startswith("self.")]

    def _read_backward(self, call: ast.Call, method: ast.Attribute) -> None:
        """``loss.backward()``, ``scaler.scale(loss).backward()``, ``accelerator.backward(loss)``."""
        start = call.args[0] if call.args else method.value
        if isinstance(start, ast.Call) and isinstance(start.func, ast.Attribute):
            start = start.args[0] if start.args else start.func.value
        if name := dotted(start) or item_name(start):
            self.differentiated.add(name)

    def scope(self, node: ast.AST, name: str) -> ast.AST:
        """Return where a name lives: `self.x` in the class, everything else in the function or module."""
        if name.startswith("self."):
            return self._tree.class_of(node) or self._tree.module
        return self._tree.function_of(node) or self._tree.module

    def held_in(self, node: ast.AST, name: str) -> list[ast.expr]:
        """What is put into a list or a dictionary by its name, in its function or, of one of the module, anywhere."""
        return self.held.get((self.scope(node, name), name)) or self.held.get((self._tree.module, name), [])

    def lookup(self, node: ast.AST, name: str) -> list[Binding]:
        """All that a name can stand for where `node` is."""
        if name.startswith("self."):
            return self.bindings.get((self.scope(node, name), name), [])
        function = self._tree.function_of(node)
        while function is not None:
            if bindings := self.bindings.get((function, name)):
                return bindings
            function = self._tree.function_of(function)
        return self.bindings.get((self._tree.module, name), [])

    def qualified(self, node: ast.AST) -> str:
        """The dotted name of an expression with what it was imported from: ``torch.utils.data.DataLoader``; empty for what has none."""
        name = dotted(node)
        first, dot, rest = name.partition(".")
        if first in self.imports and not (isinstance(node, ast.Name) and self._is_local(node)):
            return self.imports[first] + dot + rest
        return f"{_MODULE_NAMES[first]}.{rest}" if first in _MODULE_NAMES and dot else name

    def _is_local(self, node: ast.Name) -> bool:
        function = self._tree.function_of(node)
        return function is not None and (function, node.id) in self.bindings

    def call_sites(self, function: Function) -> list[ast.Call]:
        """The calls of a function in this file; none where another has the same name, and they cannot be told apart.

        A method is called on `self`, or on something else by a name that is not also one of every model (`model.train()`), and `__init__`
        by its class. What was handed over as a value is called by the name that it has there.
        """
        return [*self._calls_by_name(function), *self._handed_over.get(function, ())]

    def _calls_by_name(self, function: Function) -> list[ast.Call]:
        owner = self._tree.parents.get(function)
        is_method = isinstance(owner, ast.ClassDef)
        if isinstance(owner, ast.ClassDef) and function.name == "__init__":
            return [call for call in self.calls.get(owner.name, []) if isinstance(call.func, ast.Name)]
        known = self.calls.get(function.name, [])
        made = {call for call in known if self._is_made_of(call.func, owner)} if isinstance(owner, ast.ClassDef) else set()
        sites = [call for call in known if call in made or may_call(call.func, is_method)]
        if isinstance(owner, ast.ClassDef):  # an agent that acts lets its networks act
            sites = [site for site in sites if not (is_of_a_part(site.func) and self._tree.class_of(site) is owner)]
        if len(self.functions[function.name]) == 1:
            return sites
        if not isinstance(owner, ast.ClassDef) or not all(self._is_method(other) for other in self.functions[function.name]):
            return [*made]
        family = all(self._is_of_family(other, owner) for other in self.functions[function.name])
        return [call for call in sites if call in made or (self._related(call, owner) if is_of_self(call) else family)]

    def _is_of_family(self, function: Function, owner: ast.ClassDef) -> bool:
        """Whether a method is one of a class, or of a base or an heir of it."""
        other = self._tree.class_of(function)
        return other is not None and (other is owner or other.name in self._bases(owner) or owner.name in self._bases(other))

    def _is_made_of(self, called: ast.expr, owner: ast.ClassDef) -> bool:
        """Whether a method is called on what a call of its class made: ``tracker = Tracker(); tracker.update(x)``."""
        name = dotted(called.value) if isinstance(called, ast.Attribute) else ""
        bindings = self.lookup(called, name) if name and name != "self" else []
        made = (binding.value for binding in bindings if not binding.path and not binding.element)
        return any(isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == owner.name for value in made)

    def arguments(self, parameter: tuple[Function, int]) -> list[ast.expr]:
        """What the calls in this file give to a parameter, worked out once for the calls that are known."""
        known = self._arguments.setdefault(parameter[0], {})
        if parameter[1] not in known:
            known[parameter[1]] = self._given(*parameter)
        return known[parameter[1]]

    def _given(self, function: Function, index: int) -> list[ast.expr]:
        name = [*function.args.posonlyargs, *function.args.args][index].arg if index >= 0 else ""
        given = []
        for call in self.call_sites(function):
            place = index - is_bound(function)  # also where its class is called, or it was handed over
            if 0 <= place < len(call.args) and not any(isinstance(argument, ast.Starred) for argument in call.args[: place + 1]):
                given.append(call.args[place])
            given += [keyword.value for keyword in call.keywords if keyword.arg == name and name]
        return given

    def _is_method(self, function: Function) -> bool:
        return isinstance(self._tree.parents.get(function), ast.ClassDef)

    def _related(self, call: ast.Call, owner: ast.ClassDef) -> bool:
        """Whether `self` in a call may be of a class: it is called there, or in a class that one inherits from."""
        caller = self._tree.class_of(call)
        if caller is None or caller is owner:
            return caller is not None
        own = any(isinstance(part, Function) and part.name == last_name(call.func) for part in caller.body)
        return caller.name in self._bases(owner) or (owner.name in self._bases(caller) and not own)

    def _bases(self, node: ast.ClassDef, depth: int = 4) -> set[str]:
        names = {last_name(base) for base in node.bases}
        inner = [self.classes[name] for name in names if name in self.classes] if depth else []
        return names.union(*(self._bases(base, depth - 1) for base in inner))
