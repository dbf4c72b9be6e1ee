"""Gathers what the pictures of a report show, out of the facts of `derive` and the changes of `replay`."""
