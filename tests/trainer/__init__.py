"""The reference trainer: its ladder, its runs, and what they survive."""
