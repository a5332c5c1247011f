"""Facts out of a timeline: where the time of the steps goes."""
