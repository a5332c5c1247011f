"""What files tell each other: each name is followed to its definition, and each definition hears what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

import msgspec

from sysperf.script.gatherers.waiting import FORWARD, RELAY, WORD
from sysperf.script.semantics.kinds import TENSORS
from sysperf.script.semantics.links import MAX_CALLS, OF_METRICS, Called, Class, Kinds, Known, Links, News, Result, Surroundings, Use
from sysperf.script.semantics.modules import Ref
from sysperf.script.semantics.outside import key

Said = TypeVar("Said", Use, Surroundings)
MAX_DEPTH = 6
MAX_ABOVE = 100
"""Classes that one inherits from."""
MAX_HEIRS = 200
"""Methods of heirs that are followed where the one of their base is called."""
_GIVE = frozenset(("reset", "compute", "result", "value", "average", "summarize", "get_metric", "get_value"))
"""Methods by which a metric gives back what it has measured, or begins anew."""
_ORDER = ("step", "evaluation", "forward", "sample", "epoch", "")


class Program:
    """The files of one call by what they tell."""

    def __init__(self, files: Mapping[str, Links], heard: Mapping[str, News] = MappingProxyType({})) -> None:
        self._files = dict(sorted(files.items()))  # what is told does not depend on the order in which files were named
        self._heard = heard
        """What files heard before: what they tell since then follows from that, and what was done with their loaders stays so."""
        self._found: dict[Ref, Ref | None] = {}
        self._above: dict[Ref, tuple[Ref, ...]] = {}
        self._heirs: dict[Ref, list[Ref]] = {}
        self._overriding: dict[Ref, tuple[Ref, ...]] = {}
        for path, links in self._files.items():
            for name, node in links.classes.items():
                for base in node.bases:
                    if (found := self.definition(base)) is not None:
                        self._heirs.setdefault(found, []).append((path, name))

    def definition(self, ref: Ref, depth: int = MAX_DEPTH) -> Ref | None:
        """Find where a name is defined, through what packages import and classes inherit; None where it is not found."""
        if ref not in self._found:
            self._found[ref] = None  # while it is looked for, a cycle finds nothing
            self._found[ref] = self._definition(*ref, depth)
        return self._found[ref]

    def _definition(self, file: str, name: str, depth: int) -> Ref | None:
        links = self._files.get(file)
        first, _, rest = name.partition(".")
        if links is None or not depth or not name:
            return None
        if first in links.classes:
            return (file, first) if not rest else self._method((file, first), rest)
        if first in links.defines:
            return None if rest else (file, first)
        if (other := links.imports.get(first)) is not None:
            return self.definition((other[0], ".".join(filter(None, (other[1], rest)))), depth - 1)
        found = (self.definition((star, name), depth - 1) for star in links.stars)
        return next((each for each in found if each is not None), None)

    def _method(self, owner: Ref, name: str) -> Ref | None:
        return next(((file, f"{each}.{name}") for file, each in self._line(owner) if name in self._files[file].classes[each].methods), None)

    def _line(self, owner: Ref) -> tuple[Ref, ...]:
        """A class and those that it inherits from, each once, as Python nearly orders them."""
        if owner not in self._above:
            self._above[owner] = _each_once([owner], lambda ref: self._bases(self._files[ref[0]].classes[ref[1]]), MAX_ABOVE)
        return self._above[owner]

    def _bases(self, node: Class) -> Iterator[Ref]:
        """The classes that one inherits from, where they are defined."""
        for base in node.bases:
            found = self.definition(base)
            if found is not None and found[1] in self._files[found[0]].classes:
                yield found

    def _overrides(self, ref: Ref) -> tuple[Ref, ...]:
        """The methods of heirs that are called instead of one: of ``(file, "Base.m")``."""
        if ref not in self._overriding:
            owner, _, method = ref[1].rpartition(".")
            own = ((file, name) for file, name in self._below((ref[0], owner)) if method in self._files[file].classes[name].methods)
            self._overriding[ref] = tuple((file, f"{name}.{method}") for file, name in own)
        return self._overriding[ref]

    def _below(self, owner: Ref) -> tuple[Ref, ...]:
        """The classes that inherit from one, by however many others."""
        return _each_once(self._heirs.get(owner, ()), lambda heir: self._heirs.get(heir, ()), MAX_HEIRS)

    def _targets(self, called: Called) -> list[Ref]:
        """The functions that a call may call; of a metric whose class is not known, that of each class that is one."""
        if not called.file:
            return self._metrics.get(called.name, [])
        found = self.definition((called.file, called.name))
        targets = [] if found is None else [found]
        if found is not None and "." not in found[1] and found[1] in self._files[found[0]].classes:
            init = self._method(found, "__init__")
            return [] if init is None else [init]
        start = found or (called.file, called.name)
        return [*targets, *(self._overrides(start) if "." in start[1] else ())]

    @cached_property
    def _metrics(self) -> dict[str, list[Ref]]:
        """The methods that take a batch, of classes that give back what they have measured, by their names."""
        found: dict[str, list[Ref]] = {}
        for path, links in self._files.items():
            for name, node in links.classes.items():
                for method in OF_METRICS.intersection(node.methods) if _GIVE.intersection(node.methods) else ():
                    found.setdefault(method, []).append((path, f"{name}.{method}"))
        return found

    def news(self) -> dict[str, News]:
        """What each file hears; files that hear nothing are left out."""
        called: dict[str, dict[str, dict[str, Called]]] = {}
        around = {path: news.around for path, news in self._heard.items()}
        for path, links in self._files.items():
            for call in links.called:
                bare = msgspec.structs.replace(call, file="", name="")
                text = repr(bare)  # of those that give the same, one is enough
                for file, name in self._targets(call):
                    if file != path:
                        called.setdefault(file, {}).setdefault(name, {})[text] = bare
                        if call.often in ("step", "evaluation", "epoch"):
                            around[file] = _either(around.get(file, Surroundings()), links.around)
            for file in self._without_device(path, links):
                around[file] = _either(around.get(file, Surroundings()), links.around)
        uses = self._uses(around)
        found = {}
        for path, links in self._files.items():
            news = self._of_file(path, links, self._mattering(path, links, called.get(path, {})), uses.get(path, {}))
            if news != News() or (self._lacks_device(path) and around.get(path, Surroundings()).device):
                found[path] = msgspec.structs.replace(news, around=around.get(path, Surroundings()))
        return found

    def _uses(self, around: dict[str, Surroundings]) -> dict[str, dict[str, Use]]:
        """What is done with the loaders of each file; who does so is around it."""
        uses = {path: dict(news.uses) for path, news in self._heard.items()}
        for links in self._files.values():
            for place, use in links.uses.items():
                file = place.rsplit(":", 2)[0]
                known = uses.setdefault(file, {})
                known[place] = _either(known.get(place, Use()), use)
                around[file] = _either(around.get(file, Surroundings()), links.around)
        return uses

    def _mattering(self, path: str, links: Links, called: Mapping[str, Mapping[str, Called]]) -> dict[str, tuple[Called, ...]]:
        """The calls of functions of a file of which something may be said."""
        heard = {name: _told(calls.values()) for name, calls in called.items()}
        return {name: calls for name, calls in heard.items() if path in self._heard or self._matters(links, name, calls)}

    def _without_device(self, path: str, links: Links) -> set[str]:
        """The other files of which one calls something, that train and name no device."""
        found = [each for ref in links.asked if (each := self.definition(ref)) is not None] if links.around.device else []
        return {file for file, _ in found if file != path and self._lacks_device(file)}

    def _lacks_device(self, path: str) -> bool:
        """Whether a file trains, and names no device: who calls it may."""
        return self._files[path].steps and not self._files[path].around.device

    def _of_file(self, path: str, links: Links, called: dict[str, tuple[Called, ...]], uses: dict[str, Use]) -> News:
        """What a file hears, as far as anything may follow from it."""
        results = dict(self._results(path, links))
        classes = dict(self._classes(links, results))
        matters = path in self._heard or called or uses or any(result.advances or _is_loader(result) for result in results.values())
        matters = matters or any(result.makes is not None and self._waits(result.makes) for result in results.values())
        matters = matters or any(node.kind in ("lightning", "memory-dataset") or node.attributes for node in classes.values())
        if not matters and not any(self._becomes_known(node) for node in links.classes.values()):
            return News()
        return News(called=called, results=results, classes=classes, uses=uses)

    def _matters(self, links: Links, name: str, calls: tuple[Called, ...]) -> bool:
        """Whether something may be said of a function that is called so often, or of what it is given."""
        return any(links.waits.get(name, 0) >= self._enough(call, links) for call in calls)

    def _enough(self, call: Called, links: Links) -> int:
        """What must stand in a function so that a call of it says something new."""
        given = [known for kinds in (*call.given, *call.named.values()) for known in kinds]
        if any((known.loader and known.kind in ("loader", "loaders")) or self._does_more(known) for known in given):
            return 0
        if call.often == "forward" or (links.outlined and call.often not in ("step", "evaluation")):
            return FORWARD
        return WORD if any(known.kind in (*TENSORS, "parameters") for known in given) else RELAY

    def _does_more(self, known: Known) -> bool:
        """Whether something would be said of a method of an object that is given, or of a function."""
        return known.made is not None and self._waits(known.made, WORD)

    def _waits(self, ref: Ref, least: int = RELAY) -> bool:
        """Whether something would be said of a function, or of a method of a class or its heirs, were it called often."""
        found = self.definition(ref)
        return found is not None and any(
            what >= least
            for file, owner in (found, *self._below(found))
            for name, what in self._files[file].waits.items()
            if f"{name}.".startswith(f"{owner}.")
        )

    def _becomes_known(self, node: Class) -> bool:
        """Whether a class is a model or the like by what it inherits from another file, and that matters for what it does."""
        return bool(not node.kind and node.waits and any(self._kind(base) for base in self._bases(node)))

    def _results(self, path: str, links: Links) -> Iterator[tuple[str, Result]]:
        """What functions of other files give, and methods of heirs that are called instead of a file's own."""
        for ref in links.asked:
            found = self.definition(ref)
            result = self._result(found) if found is not None and found[0] != path else Result()
            if links.steps and path not in self._heard:
                result = msgspec.structs.replace(result, advances=False)
            start = found or ref
            heirs = [self._result(each) for each in self._overrides(start) if each[0] != path] if "." in start[1] else []
            if heirs:
                whole = result.whole or tuple(dict.fromkeys(known for heir in heirs for known in heir.whole))
                advances = result.advances or any(heir.advances for heir in heirs)
                result = msgspec.structs.replace(result, whole=whole, advances=advances)
            if result != Result():
                yield key(ref), result

    def _result(self, ref: Ref) -> Result:
        return self._files[ref[0]].functions.get(ref[1], Result())

    def _classes(self, links: Links, results: Mapping[str, Result]) -> Iterator[tuple[str, Class]]:
        """The classes that a file names; of those that are no base of its own, what is a model is known by its name."""
        made = [result.makes for result in results.values() if result.makes is not None]
        bases = {base for node in links.classes.values() if node.waits for base in node.bases}
        for ref in dict.fromkeys((*links.imports.values(), *links.asked, *bases, *made)):
            found = self.definition(ref)
            if found is not None and found[1] in self._files[found[0]].classes:
                kind = self._kind(found)
                whole = Class(kind=kind if kind != "model" or ref in bases else "", attributes=self._attributes(found))
                if whole != Class():
                    yield key(ref), whole

    def _kind(self, ref: Ref) -> str:
        """What the objects of a class are; an heir that gives its own samples may do more than take rows."""
        own_samples = False
        for file, name in self._line(ref):
            node = self._files[file].classes[name]
            if node.kind:
                return "dataset" if node.kind == "memory-dataset" and own_samples else node.kind
            own_samples = own_samples or "__getitem__" in node.methods
        return ""

    def _attributes(self, ref: Ref) -> dict[str, Kinds]:
        found: dict[str, Kinds] = {}
        for file, name in reversed(self._line(ref)):
            found |= self._files[file].classes[name].attributes
        return found


def _each_once(start: Iterable[Ref], beyond: Callable[[Ref], Iterable[Ref]], most: int) -> tuple[Ref, ...]:
    """What is reached from some classes, each once: a class may be led to on any number of ways."""
    found: dict[Ref, None] = {}
    waiting = [*start][::-1]
    while waiting and len(found) < most:
        if (each := waiting.pop()) not in found:
            found[each] = None
            waiting += [*beyond(each)][::-1]
    return tuple(found)


def _is_loader(result: Result) -> bool:
    """Whether a loader is given back, or a data set that tells what one needs."""
    return any(
        known.kind in ("loader", "loaders", "memory-dataset", "iterable-dataset")
        for kinds in (result.whole, *result.parts)
        for known in kinds
    )


def _told(calls: Iterable[Called]) -> tuple[Called, ...]:
    """The most frequent calls first."""
    return tuple(sorted(calls, key=lambda call: (_ORDER.index(call.often), call.guarded))[:MAX_CALLS])


def _either(first: Said, second: Said) -> Said:
    """What one of two says, or the other."""
    return msgspec.structs.replace(
        first, **{name: said for name, said in msgspec.structs.asdict(second).items() if not getattr(first, name)}
    )
