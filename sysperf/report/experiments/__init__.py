"""Results of experiments: ceilings, comparisons of runs, ladders, searches; as text, Markdown and pages."""
