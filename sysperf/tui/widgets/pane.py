"""A pane of lines: draws only those that changed, scrolls, and lets one that has a key be selected."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sysperf.tui.widgets.ink import cursor, styles
from sysperf.tui.widgets.line import BLANK, Line, Lines, line, span, width_of

Draw = Callable[[int, int], Lines]
"""Makes the lines for a width and a height."""
SPARE_STRIPS = 20
"""So many lines may be kept ready that are out of sight or as they were before."""


class Pane(ScrollView, can_focus=True):
    """Lines that a function draws. `redraw` draws them again, and the terminal gets those that differ."""

    DEFAULT_CSS = """
    Pane { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; scrollbar-gutter: stable; }
    Pane.fixed { height: auto; scrollbar-size-vertical: 0; scrollbar-gutter: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", "open", show=False),
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", "page down", show=False),
        Binding("home,g", "end(-1)", "first", show=False),
        Binding("end,G", "end(1)", "last", show=False),
    ]

    class Moved(Message):
        """Another line was selected."""

        def __init__(self, pane: Pane, key: Hashable) -> None:
            super().__init__()
            self.pane, self.key = pane, key

        @property
        def control(self) -> Pane:
            return self.pane

    class Picked(Moved):
        """Enter, or a click on a line: then `x` is the column of the click."""

        def __init__(self, pane: Pane, key: Hashable, x: int = -1) -> None:
            super().__init__(pane, key)
            self.x = x

    class Pressed(Message):
        """A click on a line that cannot be selected, such as the names of columns."""

        def __init__(self, pane: Pane, row: int, x: int) -> None:
            super().__init__()
            self.pane, self.row, self.x = pane, row, x

        @property
        def control(self) -> Pane:
            return self.pane

    def __init__(self, draw: Draw, *, id: str | None = None, classes: str = "", partial: bool = False) -> None:  # noqa: A002 - Textual's name
        """`partial`: it draws only the lines in sight, and is asked again when others come into sight."""
        super().__init__(id=id, classes=classes)
        self.draw, self._partial = draw, partial
        self._lines: Lines = []
        self._strips: dict[Line, Strip] = {}
        self._made_of: tuple[object, ...] = ()
        self._inks: dict[str, Style] = {}
        self._selected: dict[str, Style] = {}
        self._top = self._width = 0
        self._cursor = -1
        self._wanted: Hashable = None
        self.failure = ""
        """What the last drawing that failed said."""
        self.drawn = 0
        """Lines that were drawn anew, for those who measure."""

    # ------------------------------------------------------------------ content

    @property
    def lines(self) -> Lines:
        return self._lines

    @property
    def key(self) -> Hashable:
        """The key of the selected line; None without one."""
        return self._lines[self._cursor].key if 0 <= self._cursor < len(self._lines) else None

    def redraw(self) -> None:
        """Draw again; only lines that changed go to the terminal."""
        width = self.scrollable_content_region.width or self.size.width
        if width <= 0:
            return
        before, key = self._lines, self.key
        self._lines = self._content(width, self.size.height)
        self._follow(key)
        if len(self._lines) != self.virtual_size.height:  # measuring a dialog has drawn its lines already
            self.virtual_size = Size(width, len(self._lines))
            if self.styles.height is not None and self.styles.height.is_auto:
                self.refresh(layout=True)
        self._forget_strips()
        self._refresh_changed(before)
        if self._wanted is not None and self._lines:
            wanted, self._wanted = self._wanted, None
            self.select(wanted)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - as Textual asks
        if not self._lines:
            self._lines = self._content(width, viewport.height)
        return len(self._lines)

    def _content(self, width: int, height: int) -> Lines:
        """The lines. Facts of a shape that nobody expected, as another version's agent may send, must not end the dashboard."""
        try:
            return self.draw(width, height)
        except Exception as error:  # noqa: BLE001 - see above
            self.failure = f"{type(error).__name__}: {error}"
            return [line(span(f"This cannot be shown: {self.failure}", "error"))]

    def select(self, key: Hashable) -> None:
        """Select the line with this key; where there are no lines yet, as soon as there are."""
        place = next((index for index, line in enumerate(self._lines) if line.key == key), None)
        if place is not None:
            self._go(place)
        elif not self._lines:
            self._wanted = key

    def _follow(self, key: Hashable) -> None:
        """The selection stays with its key; when that is gone, with the place."""
        place = next((index for index, line in enumerate(self._lines) if line.key == key), None) if key is not None else None
        if place is None:
            keyed = self._keyed()
            place = min(keyed, key=lambda index: (abs(index - self._cursor), index), default=-1)
        if place != self._cursor:
            self._cursor = place
            self._refresh_all()
        if self.key != key:
            self.post_message(self.Moved(self, self.key))

    def _refresh_changed(self, before: Lines) -> None:
        """Neighbours that changed are one region: each region costs as much as drawing a line."""
        changed = [row for row in self.in_sight if self._at(before, row) != self._at(self._lines, row)]
        for first, last in _runs(changed):
            self.refresh_lines(first, last - first + 1)

    def _refresh_all(self) -> None:
        self._strips.clear()
        self.refresh()

    def _forget_strips(self) -> None:
        """Keep those in sight: Textual keeps two or three of its own beside each, 4 kB together."""
        if len(self._strips) > self.size.height + SPARE_STRIPS:
            seen = {line for row in self.in_sight if (line := self._at(self._lines, row)) is not None}
            self._strips = {line: strip for line, strip in self._strips.items() if line in seen}

    @property
    def in_sight(self) -> range:
        """The rows that the terminal shows."""
        top = self.scroll_offset.y
        return range(top, top + self.size.height)

    @staticmethod
    def _at(lines: Lines, index: int) -> Line | None:
        return lines[index] if index < len(lines) else None

    # ------------------------------------------------------------------ drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        self._prepare()
        if self.styles.gutter or self.opacity != 1.0:
            return super().render_lines(crop)
        # Without border and padding nothing is to be added to a line, and asking for each line costs as much as drawing it.
        strips = [self.render_line(y) for y in crop.line_range]
        first, last = crop.column_span
        return strips if (first, last) == (0, self.size.width) else [strip.crop(first, last) for strip in strips]

    def _prepare(self) -> None:
        """What all lines share: Textual works it out anew each time that it is asked."""
        self._top, self._width = self.scroll_offset.y, self.size.width
        made_of = (
            self.rich_style,
            self.app.theme_variables,
            self.app.no_color,
            self.background_colors[1],
            self.has_focus,
            *self.get_line_filters(),
        )
        if made_of != self._made_of:
            self._made_of = made_of
            self._strips.clear()
            under = self.rich_style
            selected = under + cursor(self.app, under.bgcolor, focused=self.has_focus)
            self._inks, self._selected = self._filtered(under), self._filtered(selected)

    def _filtered(self, under: Style) -> dict[str, Style]:
        """Each style as the terminal gets it, such as without colours: to filter these few is cheaper than to filter each line."""
        background = self.background_colors[1]
        out: dict[str, Style] = {}
        inks = styles(self.app, under.bgcolor)
        for name, style in {"": inks["plain"], **inks}.items():
            parts = [Segment("x", under + style)]
            for each in self.get_line_filters():
                parts = each.apply(parts, background)
            out[name] = parts[0].style or Style.null()
        return out

    def render_line(self, y: int) -> Strip:
        index = y + self._top
        line = self._lines[index] if index < len(self._lines) else BLANK
        if index == self._cursor:
            return self._drawn(line, selected=True)
        strip = self._strips.get(line)
        if strip is None:
            strip = self._strips[line] = self._drawn(line, selected=False)
        return strip

    def _drawn(self, line: Line, *, selected: bool) -> Strip:
        self.drawn += 1
        width, inks = self._width, self._selected if selected else self._inks
        under = inks[""]
        segments = [Segment(part.text, inks.get(part.style, under)) for part in line.spans if part.text]
        used = width_of(line.spans)
        if used > width:
            return Strip(segments, used).crop(0, width)
        return Strip([*segments, Segment(" " * (width - used), under)] if used < width else segments, width)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._partial and round(old_value) != round(new_value):
            self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    def on_resize(self, _: events.Resize) -> None:
        self._strips.clear()
        self.redraw()
        self.refresh()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # ------------------------------------------------------------------ moving

    def _keyed(self) -> list[int]:
        return [index for index, line in enumerate(self._lines) if line.key is not None]

    def _go(self, index: int) -> None:
        before, self._cursor = self._cursor, index
        for row in (before, index):
            if row >= 0:
                self.refresh_lines(row, 1)
        top, height = self.scroll_offset.y, self.size.height
        if index < top:
            first = self._keyed()[:1] == [index]
            self.scroll_to(y=0 if first else index, animate=False, immediate=True)
        elif index >= top + height:
            self.scroll_to(y=index - height + 1, animate=False, immediate=True)
        if before != index:
            self.post_message(self.Moved(self, self.key))

    def action_move(self, step: int) -> None:
        """Move to the next line that can be selected; without one, scroll."""
        keyed = self._keyed()
        ahead = [index for index in keyed if (index - self._cursor) * step > 0]
        if ahead:
            self._go(min(ahead) if step > 0 else max(ahead))
        else:
            self.scroll_relative(y=step, animate=False, immediate=True)

    def action_page(self, step: int) -> None:
        height = max(1, self.size.height - 1)
        keyed = self._keyed()
        if not keyed:
            self.scroll_relative(y=step * height, animate=False, immediate=True)
            return
        wanted = self._cursor + step * height
        self._go(min(keyed, key=lambda index: abs(index - wanted)))

    def action_end(self, step: int) -> None:
        keyed = self._keyed()
        if keyed:
            self._go(keyed[-1] if step > 0 else keyed[0])
        self.scroll_to(y=self.virtual_size.height if step > 0 else 0, animate=False, immediate=True)

    def action_pick(self) -> None:
        if self.key is None:
            raise SkipAction  # whoever is behind it may know what Enter means: a dialog closes
        self.post_message(self.Picked(self, self.key))

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if 0 <= index < len(self._lines) and self._lines[index].key is not None:
            self._go(index)
            self.post_message(self.Picked(self, self.key, event.x))
        elif 0 <= index < len(self._lines):
            self.post_message(self.Pressed(self, index, event.x))


def _runs(rows: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of those that follow each other."""
    out: list[tuple[int, int]] = []
    for row in rows:
        if out and out[-1][1] == row - 1:
            out[-1] = (out[-1][0], row)
        else:
            out.append((row, row))
    return out
