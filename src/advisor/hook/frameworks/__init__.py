"""The hook as a callback of training frameworks. Each module imports its framework; none is imported unless asked for."""
