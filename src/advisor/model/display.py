"""How objects of the model show in a notebook: the model asks here, and whoever knows how registers it.

Notebooks ask an object for `_repr_html_`, so the method must be here, where nothing of ours may be imported; the pages
themselves are made in `report`. `advisor.api` joins the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PAGES: dict[type, Callable[[Any], str]] = {}


def page(thing: object) -> str | None:
    """HTML of an object; None where nobody registered how, which a notebook takes as "print its text instead"."""
    make = PAGES.get(type(thing))
    return make(thing) if make is not None else None
