"""One parser for each format of the kernel and of what lies beside it: text in, record out, no I/O.

A parser never raises on a text that is none, unless its docstring says so: a field that cannot be read is None.
"""
