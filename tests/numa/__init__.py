"""Tests on a machine with two memory nodes, booted in QEMU: what fake files and this one-node box cannot show."""
