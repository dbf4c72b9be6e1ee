"""The JSON Schema of the configuration file, for editors: made of the table of keys and the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.config.keys import BUDGETS, KEYS, LEVELS, REGRESSIONS, Entry, Key
from advisor.gates.amounts import SCHEMAS
from advisor.rules.rule import Rule, Threshold

_TEXTS = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 1000},
    ]
}
_LINE = {"type": "string", "minLength": 1}
_LEVEL = {"$ref": "#/$defs/level"}
# A threshold of this quantity: as text with a unit, or a bare number in the unit that its description tells.
_THRESHOLDS = {
    "share": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, SCHEMAS["share"]]},
    "duration": {"anyOf": [{"type": "number", "minimum": 0}, SCHEMAS["duration"]]},
    "bytes": {"anyOf": [{"type": "number", "minimum": 0}, SCHEMAS["bytes"]]},
}
_DEFS: dict[str, Any] = {
    "level": {"enum": list(LEVELS)},
    "texts": _TEXTS,
    **{str(name): one for name, one in SCHEMAS.items()},
    **{f"{name}-threshold": one for name, one in _THRESHOLDS.items()},
}
_KINDS: dict[str, dict[str, Any]] = {
    "names": {"$ref": "#/$defs/texts"},
    "paths": {"$ref": "#/$defs/texts"},
    "flag": {"type": "boolean"},
    "number": {"type": "number", "exclusiveMinimum": 0},
    "share": {"$ref": "#/$defs/share"},
}


def schema(rules: Sequence[Rule]) -> dict[str, Any]:
    """Of advisor.toml, which is the table [tool.advisor] of pyproject.toml (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:gpu-advisor:config:1",
        "title": "advisor",
        "description": "Settings of gpu-advisor: advisor.toml, or [tool.advisor] of pyproject.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: {**_key(key, rules), "description": key.meaning} for key in KEYS},
        "$defs": _DEFS,
    }


def _key(key: Key, rules: Sequence[Rule]) -> dict[str, Any]:
    tables: dict[str, Any] = {"budgets": BUDGETS, "regressions": REGRESSIONS}
    if key.name in tables:
        return _table(tables[key.name])
    if key.name == "rules":
        return _rules(rules)
    if key.kind == "choice":
        return {"enum": list(key.choices)}
    return _KINDS.get(key.kind, _LINE)


def _table(entries: Mapping[str, Entry]) -> dict[str, Any]:
    properties = {name: {"$ref": f"#/$defs/{entry.quantity}", "description": entry.meaning} for name, entry in entries.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _rules(rules: Sequence[Rule]) -> dict[str, Any]:
    """Rules of the user's own folders are not known here: their names pass, their thresholds too."""
    families: dict[str, dict[str, Threshold]] = {}
    for rule in rules:
        families.setdefault(rule.family, {}).update(rule.thresholds)
    properties = {rule.id: {**_rule(rule.thresholds), "description": rule.title} for rule in rules}
    properties |= {name: {**_rule(found), "description": f"All rules of the family {name}"} for name, found in families.items()}
    return {"type": "object", "properties": dict(sorted(properties.items())), "additionalProperties": _rule(None)}


def _rule(thresholds: Mapping[str, Threshold] | None) -> dict[str, Any]:
    own: dict[str, Any] = {"type": "object"}
    if thresholds is not None:
        own["properties"] = {name: _threshold(one) for name, one in sorted(thresholds.items())}
        own["additionalProperties"] = False
    table = {"type": "object", "properties": {"level": _LEVEL, "thresholds": own}, "additionalProperties": False}
    return {"anyOf": [_LEVEL, table]}


def _threshold(one: Threshold) -> dict[str, Any]:
    described = {"description": f"{one.unit}; {one.value:g} unless set. {one.reason}"}
    if one.quantity:
        return {"$ref": f"#/$defs/{one.quantity}-threshold", **described}
    most = {"maximum": one.most} if one.most < float("inf") else {}
    return {"type": "number", "minimum": 0, **most, **described}
