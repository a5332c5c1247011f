"""sysperf: what makes a PyTorch machine slow, what to do about it, and proof that it helped."""

__version__ = "0.1.0"
