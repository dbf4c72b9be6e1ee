"""Column names from the text of a CREATE TABLE statement, without running it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)"""  # comments
    r"""|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|'(?:[^']|'')*'|\[[^\]]*\])"""
    r"""|(?P<mark>[(),])|(?P<word>[^\s"'`\[(),]+)""",
    re.DOTALL,
)
_CONSTRAINTS = {"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"}


@dataclass(frozen=True)
class Layout:
    """Names of a table's columns in the order of its records. `row_id`: the column that is the row id, if there is one."""

    columns: list[str]
    row_id: str | None = None


def layout(statement: str) -> Layout | None:
    """The layout of an ordinary table; None for one whose rows are stored in another way (WITHOUT ROWID, generated columns)."""
    items, tail = _items(statement)
    if "WITHOUT" in tail or not items:
        return None
    columns: list[str] = []
    types: dict[str, str] = {}
    row_id = None
    for item in items:
        words = [word.upper() for word in item]
        if words[0] in _CONSTRAINTS:
            if words[:3] == ["PRIMARY", "KEY", "("] and len(words) == 5 and types.get(_name(item[3])) == "INTEGER":
                row_id = _name(item[3])
            continue
        if "GENERATED" in words or ("AS" in words and words[words.index("AS") + 1 :][:1] == ["("]):
            return None
        name = _name(item[0])
        columns.append(name)
        types[name] = words[1] if len(words) > 1 else ""
        if types[name] == "INTEGER" and "PRIMARY" in words and "DESC" not in words:
            row_id = name
    return Layout(columns, row_id)


def _items(statement: str) -> tuple[list[list[str]], list[str]]:
    """Tokens of each comma-separated item between the outer parentheses, and the words behind these."""
    items: list[list[str]] = [[]]
    tail: list[str] = []
    depth = opened = 0
    for match in _TOKEN.finditer(statement):
        if match.lastgroup is None:
            continue
        token = match[0]
        depth -= token == ")"
        if depth > 1 or (depth == 1 and token not in (",", "(") and not (token == ")" and depth == 0)):
            items[-1].append(token)
        elif depth == 1 and token == ",":
            items.append([])
        elif depth == 1 and token == "(":
            items[-1].append(token)
        elif opened:
            tail.append(token.upper())
        if token == "(":
            depth += 1
            opened = 1
    return [item for item in items if item], tail


def _name(token: str) -> str:
    """The identifier that a token spells."""
    if len(token) > 1 and token[0] in "\"`'":
        return token[1:-1].replace(token[0] * 2, token[0])
    return token[1:-1] if token.startswith("[") else token
