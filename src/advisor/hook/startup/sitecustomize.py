"""Runs when Python starts under `advisor record`, which puts this folder at the front of PYTHONPATH.

It waits for the program to import torch, and steps aside: a sitecustomize of the user's own still runs.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))


def _own_sitecustomize() -> None:
    """Run the module of this name that Python would have found without this folder.

    The folder leaves sys.path; processes that this one starts find it in PYTHONPATH again.
    """
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    if os.environ.get("ADVISOR_RECORD"):
        from advisor.hook.recorded import watch_for_torch

        watch_for_torch()
except Exception as error:  # nothing here may keep a program from starting
    print(f"advisor: this Python is not recorded: {type(error).__name__}: {error}", file=sys.stderr)
_own_sitecustomize()
