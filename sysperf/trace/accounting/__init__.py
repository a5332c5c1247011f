"""From a timeline to facts: where the time of the steps goes."""
