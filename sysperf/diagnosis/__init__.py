"""What a running job shows of itself, as evidence: a window of the kernel's accounting, samples of stacks, samples of machine code."""
