"""Re-execution of recorded steps: what depends on what, and how long a step takes when something of it changes."""
