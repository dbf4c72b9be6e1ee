"""The record of promises and what became of them: one entry a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HISTORY_SCHEMA = "advisor.promise/1"


@dataclass(frozen=True)
class HistoryEntry:
    """One comparison in the record of promises. Triples are low, expected, high, as shares of the base step.

    when: UTC, to the second; rules: of the findings that are gone; the rest as in `Promises` and `StepChange`.
    """

    when: str
    advisor_version: str
    gpu: str | None
    rules: list[str]
    step_ns: int
    promised: tuple[float | None, float | None, float | None]
    promised_by: str
    basis: str
    obtained: tuple[float | None, float | None, float | None]
    kept: str
    verdict: str
    method: str

    def to_dict(self) -> dict[str, Any]:
        return {"schema": HISTORY_SCHEMA, **vars(self), "promised": list(self.promised), "obtained": list(self.obtained)}

    @classmethod
    def from_dict(cls, plain: Any) -> HistoryEntry:
        """ValueError, TypeError or KeyError for anything that `to_dict` did not give."""
        if not isinstance(plain, dict) or plain.get("schema") != HISTORY_SCHEMA:
            raise ValueError(f"no entry of schema {HISTORY_SCHEMA}")
        text = {
            key: _is(plain[key], str) for key in ("when", "advisor_version", "promised_by", "basis", "kept", "verdict", "method")
        }
        return cls(
            **text,
            gpu=None if plain["gpu"] is None else _is(plain["gpu"], str),
            rules=[_is(rule, str) for rule in _is(plain["rules"], list)],
            step_ns=_is(plain["step_ns"], int),
            promised=_triple(plain["promised"]),
            obtained=_triple(plain["obtained"]),
        )


def _is(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def _triple(values: Any) -> tuple[float | None, float | None, float | None]:
    low, expected, high = (None if one is None else float(_is(one, int, float)) for one in _is(values, list))
    return low, expected, high
