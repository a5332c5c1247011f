"""A training script as facts: what its source says of loaders, loops, transfers and settings. Nothing of it is imported or run."""
