"""What an operator sees: metrics as they are written, alarms over them while faults are staged, and the dashboard."""
