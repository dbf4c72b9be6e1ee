"""Text of the pictures: one list of strings, long names shortened."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from advisor.model import Run

LONGEST = 160  # characters; templates of kernels run to thousands
SHORT = 40  # characters of a name once there is much text
MUCH = 200_000  # characters in JSON


def shortened(text: str, most: int = LONGEST) -> str:
    """`text` with its middle left out where it is longer: the ends of kernel names tell most."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


class Names:
    """Codes of the pictures' strings. `clean` makes text of a recording fit to be shown (no home folders, one line)."""

    def __init__(self, run: Run, clean: Callable[[str], str]) -> None:
        self.values: list[str] = []
        self._clean = clean
        self._run = run
        self._codes: dict[str, int] = {}
        self._known: dict[int, int] = {}
        self._size = [0]  # characters in JSON, shared by all runs

    def of_run(self, run: Run) -> Names:
        """The same list of strings for the codes of another run."""
        other = Names(run, self._clean)
        other.values, other._codes, other._size = self.values, self._codes, self._size
        return other

    def of_text(self, text: str) -> int:
        """Code of a text that is ours, not a recording's."""
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.values)
            self.values.append(text)
            self._size[0] += len(json.dumps(text))
        return code

    def of(self, code: int) -> int:
        """Code of a text of the run by its code there."""
        known = self._known.get(code)
        if known is None:
            most = LONGEST if self._size[0] < MUCH else SHORT
            known = self._known[code] = self.of_text(shortened(self.cleaned(code), most) or "(no name)")
        return known

    def cleaned(self, code: int) -> str:
        """Text of the run as people get to see it, at full length."""
        return self._clean(self._run.strings[code]) if code >= 0 else ""

    def codes(self, codes: npt.NDArray[np.int64]) -> list[int]:
        """Codes of many texts of the run."""
        return [self.of(code) for code in codes.tolist()]
