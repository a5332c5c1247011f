"""The verb `service`: units that start this sysperf, what systemd says of them, and what they leave behind."""
