"""A diagnosis as a page: the verdict, then each cause with its share as a bar, its fix, its proof and its signals."""

from __future__ import annotations

from collections.abc import Iterator

from sysperf.diagnosis.verdict import Verdict
from sysperf.model.finding import Finding
from sysperf.report import frame
from sysperf.report.diagnosis.causes import STATES, explained, gain, signal_text, title
from sysperf.report.frame import text


def page(verdict: Verdict) -> str:
    """One self-contained page that loads nothing."""
    about = f'<p class="about"><code>{text(verdict.command)}</code></p>' if verdict.command else ""
    head = f"<header><h1>{text(verdict.sentence)}</h1>{about}</header><main>"
    return frame.framed(verdict.sentence, (head, *_sections(verdict), "</main>"))


def _sections(verdict: Verdict) -> Iterator[str]:
    yield from frame.paragraphs(verdict.changed)
    for cause in verdict.causes:
        yield f'<section class="cause {STATES[cause.state]}"><h2>{text(cause.title)} <span>{cause.state}</span></h2>'
        yield from _share(cause)
        yield f"<p>{text(cause.message)}</p>"
        for fix in cause.fixes:
            yield f"<h3>Fix</h3><p>{text(title(fix))}</p>{frame.command(fix.command)}"
        yield f"<h3>Keep the source before you change it</h3>{frame.command(cause.keep)}" if cause.keep else ""
        yield f"<h3>Prove it</h3>{frame.command(cause.verify)}" if cause.verify else ""
        yield from (f"<p><code>{text(place.text)}</code></p>" for place in cause.places)
        yield f"<h3>Signals</h3><ul>{''.join(f'<li>{text(signal_text(signal))}</li>' for signal in cause.signals)}</ul>"
        yield from frame.paragraphs(*(f"It explains: {other.title}. {other.message}" for other in explained(verdict, cause)))
        yield f"{frame.explained(cause.rule)}</section>"
    yield "".join(f"<p><small>Not {text(cause.rule)}: {text(cause.because)}</small></p>" for cause in verdict.dropped if cause.because)
    yield "".join(f"<p><small>Not seen: {text(note)}</small></p>" for note in verdict.notes)


def _share(cause: Finding) -> Iterator[str]:
    """What acting would save, as a bar and in words."""
    if (said := gain(cause).strip()) and cause.gain.middle is not None:
        share = min(100.0, cause.gain.middle)
        yield from frame.bar((("tinted", share), ("rest", 100 - share)))
        yield f"<p><b>{text(said[:1].upper() + said[1:])}</b></p>"
