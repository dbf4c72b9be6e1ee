"""What leaves the machine because somebody asked for it: reports posted to a code host. Nothing else opens a connection."""
