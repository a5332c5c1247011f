"""Readers of the formats that profilers write, as streams: from files to a timeline."""
