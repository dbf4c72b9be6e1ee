"""Paths of source files as a report may show them: enough to find the file, nothing of who works where."""

from __future__ import annotations

import re

_PACKAGES = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")
_HOMES = re.compile(
    r"^(?:.*?[\\/])?(?:homes?|users|documents and settings)[\\/]+[^\\/]+[\\/]|^[\\/]root[\\/]|^~[^\\/]*[\\/]", re.I
)
_KEPT = 3  # last components of an absolute path that are shown


def short_path(path: str) -> str:
    """A source path without the folders in front of a package, and without the user's home.

    >>> short_path("/home/ann/llm/src/train.py"), short_path("/opt/py/site-packages/torch/nn/functional.py")
    ('llm/src/train.py', 'torch/nn/functional.py')
    """
    rest = _PACKAGES.sub("", path)
    if rest != path:
        return rest.replace("\\", "/")
    inner = path
    while (shorter := _HOMES.sub("", inner)) != inner:  # a home may lie below another, as on network drives
        inner = shorter
    absolute = inner != path or re.match(r"[A-Za-z]:|[\\/]", inner) is not None
    parts = [part for part in re.split(r"[\\/]", inner) if part not in ("", ".")]
    # Outside a known home the first folders may name a person or a project too: two components say where to look.
    return "/".join(parts[-(_KEPT if inner != path else _KEPT - 1) :] if absolute else parts)
