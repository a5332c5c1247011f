"""What a finding or a person asks for: one knob with one value."""

from __future__ import annotations

from typing import Annotated

from sysperf.model.record import Record, fact


class Setting(Record):
    """A requested setting: this knob of the allow-list (`sysperf.model.knob`) shall have this value."""

    knob: str
    value: str
    item: Annotated[str, fact("block device, process number or PCI address, for knobs of an item")] = ""
    rule: Annotated[str, fact("the finding that asks for it")] = ""
    start_time: Annotated[int, fact("start of the process that is meant, in clock ticks since boot; 0: whichever has the number now")] = 0
