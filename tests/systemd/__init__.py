"""What only a booted systemd shows: the units, their sandboxes, and programs started by them."""
