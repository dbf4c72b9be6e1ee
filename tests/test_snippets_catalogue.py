"""Every fix that claims the same numerics has a test that runs its snippet beside what it replaces."""

from __future__ import annotations

import re
from pathlib import Path

from snippets.harness import rules

TESTS = Path(__file__).parent
CLAIM = "same-numerics"
# Only their names and keywords are checked: what they do needs the hardware or a whole training run.
NAMES_ONLY = {
    "gloo-backend/lightning": "needs NCCL",
    "checkpoint-stall/lightning-async": "its knob is built in test_snippets_frameworks; the file it writes is Lightning's affair",
}


def covered() -> set[str]:
    """Fixes named in `@covers(...)` above the tests beside this one."""
    found: set[str] = set()
    for path in TESTS.glob("test_snippets_*.py"):
        for call in re.findall(r"^@covers\((.*?)^(?:\)|@|def)", path.read_text(), re.M | re.S):
            found.update(re.findall(r'"([a-z0-9-]+/[a-z0-9-]+)"', call))
    return found


def test_every_promise_of_equal_results_is_kept() -> None:
    promised = {
        f"{rule.id}/{fix.id}"
        for rule in rules().values()
        for fix in rule.fixes
        if fix.language == "python" and fix.safety == CLAIM
    }
    assert len(promised) > 60
    assert promised - covered() - NAMES_ONLY.keys() == set()
    assert NAMES_ONLY.keys() <= promised and not NAMES_ONLY.keys() & covered()
