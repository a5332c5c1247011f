"""The dashboard's screens, one file each."""
