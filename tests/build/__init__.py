"""Small inputs and reports that tests build."""
