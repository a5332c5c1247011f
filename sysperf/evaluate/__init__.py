"""Rules on facts: load them, check them against the facts there are, judge a machine by them."""
