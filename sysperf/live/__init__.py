"""What agent and dashboard share: samples of the machine, its programs and GPUs, and the audit kept fresh."""
