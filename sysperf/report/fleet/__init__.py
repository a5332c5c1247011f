"""Many machines and one of them: what nodes say, which is slow, who is marked, what a scheduler is told."""
