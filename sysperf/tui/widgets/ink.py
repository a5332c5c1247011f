"""Names of styles as colours of the theme in use."""

from __future__ import annotations

from rich.color import Color, ColorParseError
from rich.style import Style
from textual.app import App

_BY_THEME = {
    # name of a style: variable of the theme, bold, dim
    "error": ("text-error", True, False),
    "warning": ("text-warning", True, False),
    "info": ("text-primary", True, False),
    "hint": ("text-primary", False, False),
    "good": ("text-success", True, False),
    "unknown": ("text-secondary", False, False),
    "command": ("text-success", False, False),
    "title": ("text-secondary", True, False),
    "cool": ("success", False, False),
    "warm": ("warning", False, False),
    "hot": ("error", False, False),
    "mark": ("primary", True, False),
}
_cache: dict[tuple[str, bool], dict[str, Style]] = {}


def styles(app: App[object]) -> dict[str, Style]:
    """The styles of the app's theme."""
    name = (app.theme, bool(app.no_color))
    if name not in _cache:
        _cache.clear()
        _cache[name] = _styles_of(app)
    return _cache[name]


def _styles_of(app: App[object]) -> dict[str, Style]:
    variables = app.theme_variables
    styles = {name: Style(color=_color(variables.get(of, "")), bold=bold, dim=dim) for name, (of, bold, dim) in _BY_THEME.items()}
    styles |= {"strong": Style(bold=True), "dim": Style(color=_color(variables.get("foreground-darken-3", ""))), "plain": Style()}
    background = _color(variables.get("block-cursor-background", ""))
    if app.no_color:
        styles |= {"selected": Style(reverse=True), "selected-dim": Style(underline=True), "dim": Style(dim=True)}
    else:
        styles["selected"] = Style(bgcolor=_color(variables.get("primary-muted", "")) or background, bold=True)
        styles["selected-dim"] = Style(bgcolor=_color(variables.get("surface-lighten-1", "")))
    return styles


def _color(text: str) -> Color | None:
    """A colour of a theme: ``#rrggbb``, or one of the terminal's own."""
    try:
        return Color.parse(text.removeprefix("ansi_")) if text.startswith(("#", "ansi_")) else None
    except ColorParseError:
        return None
