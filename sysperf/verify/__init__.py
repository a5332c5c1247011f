"""What changes gain on this machine: results of measurements. This version reads them, and has no command that measures."""
