"""GPUs watched live by NVML: which ones, how often, how it looks, and what stays of it for the verdict."""
