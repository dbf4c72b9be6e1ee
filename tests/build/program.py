"""The program as a function, for tests of the command line."""

from __future__ import annotations

from collections.abc import Callable

# advisor(arguments...) -> (exit status, standard output, standard error)
Run = Callable[..., tuple[int, str, str]]
