"""Conditions on a report: what may be asked (`measures`, `expression`), and whether it holds (`judge`, `baseline`)."""
