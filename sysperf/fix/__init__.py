"""Changes to the machine: plan, journal, apply, read back, undo.

Everything that changes a setting goes through here: what is set (`targets`), what would be done (`plan`), what was
announced before it was done (`journal`), doing and undoing it (`transaction`), and who else sets the same (`conflicts`).
"""
