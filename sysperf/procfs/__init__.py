"""One parser for each format of the kernel: text in, record out, no I/O."""
