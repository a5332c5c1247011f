"""Names of styles as colours of the theme in use, each made readable on what lies under it.

Two scales: text says with a colour of its own how bad something is; alarms are drawn in reverse, so that eyes that see no red, and
terminals without colours, get a shape. Contrast as WCAG 2.2 defines it: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.color import Color, ColorParseError, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.style import Style
from textual.app import App
from textual.theme import Theme

CONTRAST = 4.5
"""The least that people with moderately low vision read."""
_TEXT = {
    # name of a style: variable of the theme, bold
    "plain": ("foreground", False),
    "strong": ("foreground", True),
    "dim": ("foreground-darken-3", False),
    "error": ("text-error", True),
    "warning": ("text-warning", True),
    "info": ("text-primary", True),
    "hint": ("text-primary", False),
    "good": ("text-success", True),
    "unknown": ("text-secondary", False),
    "command": ("text-success", False),
    "title": ("text-secondary", True),
    "key": ("accent", True),
    "mark": ("text-primary", True),
    "frame": ("border", False),
    # what bars and curves are filled with
    "cool": ("success", False),
    "calm": ("text-primary", False),
    "warm": ("warning", False),
    "hot": ("error", False),
}
_REVERSED = {"alarm": "error", "caution": "warning"}
_VARIABLES = tuple({variable: None for variable, _ in _TEXT.values()})
_SYSTEMS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT}
_BLACK, _WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)
AnyApp = App[Any]  # any: what an app returns at its end is nothing to colours
_cache: dict[tuple[object, ...], dict[str, Style]] = {}

COLOUR_BLIND = Theme(
    # blue and orange differ for every kind of colour blindness: Okabe and Ito, https://jfly.uni-koeln.de/color/
    "sysperf-cb", primary="#56b4e9", secondary="#cc79a7", warning="#f0e442", error="#ff8c1a", success="#56b4e9", accent="#f0e442",
    foreground="#e6e6e6", background="#10131a", surface="#181c25", panel="#222836", dark=True,
)  # fmt: skip


def styles(app: AnyApp, under: Color | None) -> dict[str, Style]:
    """The styles of the app's theme, readable on the colour `under` them. Without colours, the worse is bold, and alarms are reversed."""
    system, variables = app.console.color_system, app.theme_variables
    name = (bool(app.no_color), system, under, *map(variables.get, _VARIABLES))
    if name not in _cache:
        if len(_cache) > 32:
            _cache.clear()
        _cache[name] = _styles_of(variables, under, system, colours=not app.no_color)
    return _cache[name]


def cursor(app: AnyApp, under: Color | None, *, focused: bool) -> Style:
    """What lies under the selected line: reversed where there are too few colours for a shade."""
    wanted, system = _color(app.theme_variables.get("primary-muted" if focused else "surface-lighten-1", "")), app.console.color_system
    seen = wanted is not None and under is not None and shown(wanted, system) != shown(under, system)
    return Style(bgcolor=wanted) if seen and not app.no_color else Style(reverse=focused, underline=not focused)


def sheet(app: AnyApp, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for style sheets: what Textual draws itself is as readable as our own lines."""
    system = app.console.color_system
    background, surface, panel = (_color(variables.get(name, "")) for name in ("background", "surface", "panel"))
    if any(under is None or under.triplet is None for under in (background, surface, panel)):
        return {"frame": variables.get("border", "ansi_blue")}

    def on(name: str, *unders: Color | None) -> str:
        color = _color(variables.get("foreground" if app.no_color else name, "")) or Color.from_triplet(_WHITE)
        for under in unders:
            color = readable(color, under, system) if under is not None else color
        return color.get_truecolor().hex

    frame = on("border", background, surface)
    return {
        "frame": frame, "scrollbar": frame, "scrollbar-hover": frame, "scrollbar-active": frame,
        "scrollbar-background": variables["background"], "footer-background": variables["panel"],
        "footer-foreground": on("foreground", panel), "footer-key-foreground": on("accent", panel),
        "text-disabled": on("foreground-darken-3", background, surface),
    }  # fmt: skip


def contrast(first: ColorTriplet, second: ColorTriplet) -> float:
    """Contrast ratio, from 1, the same, to 21, black and white."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(color: ColorTriplet) -> float:
    parts = ((part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4) for part in color.normalized)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def readable(color: Color, under: Color, system: str | None) -> Color:
    """The colour, moved towards black or white until it can be read, also where the terminal shows the nearest of few colours."""
    below = shown(under, system)
    goal = max((_BLACK, _WHITE), key=lambda end: contrast(end, below))
    start = color.get_truecolor()
    for step in range(21):
        mixed = Color.from_triplet(ColorTriplet(*(round(part + (end - part) * step / 20) for part, end in zip(start, goal, strict=True))))
        if contrast(shown(mixed, system), below) >= CONTRAST:
            return mixed
    return Color.from_triplet(goal)


def shown(color: Color, system: str | None) -> ColorTriplet:
    """The colour as a terminal shows it: the nearest of those that it has."""
    return (color.downgrade(_SYSTEMS[system]) if system in _SYSTEMS else color).get_truecolor()


def _styles_of(variables: Mapping[str, str], under: Color | None, system: str | None, *, colours: bool) -> dict[str, Style]:
    out: dict[str, Style] = {}
    for name, (variable, bold) in _TEXT.items():
        out[name] = Style(color=_on(variables, variable if colours or name == "dim" else "foreground", under, system), bold=bold)
    for name, variable in _REVERSED.items():
        fill = _on(variables, variable if colours else "foreground", under, system)
        ink = under if under is not None and under.triplet is not None else None
        out[name] = Style(color=ink, bgcolor=fill, bold=True) if ink is not None and fill is not None else Style(reverse=True, bold=True)
    return out


def _on(variables: Mapping[str, str], name: str, under: Color | None, system: str | None) -> Color | None:
    """A colour of the theme; one of the terminal's own is left as it is, since nobody knows how that looks."""
    color = _color(variables.get(name, ""))
    if color is None or color.triplet is None or under is None or under.triplet is None:
        return color
    return readable(color, under, system)


def _color(text: str) -> Color | None:
    """A colour of a theme: ``#rrggbb``, or one of the terminal's own."""
    try:
        return Color.parse(text.removeprefix("ansi_")) if text.startswith(("#", "ansi_")) else None
    except ColorParseError:
        return None
