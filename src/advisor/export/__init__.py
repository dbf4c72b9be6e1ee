"""Writes what was read in other formats: Trace Event JSON for viewers, Parquet for data frames."""
