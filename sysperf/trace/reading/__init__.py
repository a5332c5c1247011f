"""From files to a timeline: the formats that profilers write, as streams."""
