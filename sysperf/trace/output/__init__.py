"""Records, rows that are drawn, and the difference of two traces: facts as people read them."""
