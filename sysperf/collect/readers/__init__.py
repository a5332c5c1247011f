"""Files that several areas read, each handed to its parser and read once a machine."""
