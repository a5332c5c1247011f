"""What the dashboard draws: functions from records to lines, one file each, and the pane that shows lines."""
