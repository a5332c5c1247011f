"""The search for a better start: a balanced design, a robust main-effects model in turn with TPE, then a race.

The order of things, and the shares of the budget, were found by simulation: docs/tune.md.
"""
