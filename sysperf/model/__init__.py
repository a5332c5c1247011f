"""The nouns: values and records shared by every stage. Nothing here does I/O."""
