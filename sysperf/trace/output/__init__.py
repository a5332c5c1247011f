"""From facts to what people read: records, rows that are drawn, and the difference of two traces."""
