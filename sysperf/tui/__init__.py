"""The dashboard: what is wrong with this machine next to the meter that shows it."""
