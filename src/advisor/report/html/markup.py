"""HTML that is built, never pasted together: whatever is not `Html` is made printable and escaped on its way in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

from advisor.report import text as t

LIMIT = 2000  # characters of one text; a name in a trace may have a million
VOID = frozenset({"meta", "input", "br"})
_FIGURE = re.compile(r"(\(?[\d.,]+ (?:%|[mµn]?s|min|h)(?!\w)[),.:]*)")


class Html(str):
    """Markup made by this module; nothing else may make it from text that comes out of a recording."""

    __slots__ = ()


def text(value: object, limit: int = LIMIT) -> Html:
    """Any text, on one printable line and escaped. This is the only way from text to `Html`."""
    if isinstance(value, Html):
        return value
    # Cut twice: before, since a name may be long; after, since characters that are made visible get longer.
    return Html(html.escape(t.shorten(t.clean(t.shorten(str(value), limit)), limit)))


def tag(name: str, /, *children: object, **attributes: Any) -> Html:
    """An element. Attributes: `class_` is class, `aria_label` aria-label; True stands alone, None and False are left out.

    Children that are None are left out, lists and other iterables are taken apart, everything else is `text`.
    """
    head = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        head.append(key if value is True else f'{key}="{text(value)}"')
    if name in VOID:
        return Html(f"<{' '.join(head)}>")
    return Html(f"<{' '.join(head)}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Html:
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, str) or not isinstance(child, Iterable):
            parts.append(text(child))
        else:
            parts.append(join(child))
    return Html("".join(parts))


def code_block(snippet: str, limit: int = 20_000) -> Html:
    """Lines of code, escaped, line breaks kept."""
    return Html("\n".join(html.escape(line) for line in t.clean_block(t.shorten(snippet, limit))))


def section(id: str, title: str, *children: object, lead: object = None) -> Html:
    """A landmark with its heading; `id` is what the table of contents links to."""
    return tag(
        "section",
        tag("h2", title, id=f"{id}-title"),
        None if lead is None else tag("p", lead, class_="lead"),
        children,
        id=id,
        aria_labelledby=f"{id}-title",
    )


def table(
    columns: list[str],
    rows: Iterable[Iterable[object]],
    *,
    right: Iterable[int] = (),
    caption: str | None = None,
    head: bool = True,
    hidden_caption: bool = False,
) -> Html:
    """A table in a box that scrolls sideways. right: columns of figures. head: the first cell of a row names the row."""
    flush = set(right)

    def kind(i: int) -> str | None:
        return "n" if i in flush else None

    body = []
    for row in rows:
        cells = list(row)
        body.append(
            tag(
                "tr",
                (
                    tag("th", cell, scope="row", class_=kind(i)) if head and i == 0 else tag("td", cell, class_=kind(i))
                    for i, cell in enumerate(cells)
                ),
            )
        )
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="sr" if hidden_caption else None) if caption else None,
            tag("thead", tag("tr", (tag("th", name, scope="col", class_=kind(i)) for i, name in enumerate(columns)))),
            tag("tbody", body),
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=caption or "Table",
    )


def folded(summary: object, *children: object, open: bool = False, class_: str | None = None) -> Html:
    return tag("details", tag("summary", summary), children, open=open, class_=class_)


def figures_kept(words: str) -> list[Html]:
    """The text, its figures on one line with their units."""
    return [tag("span", part, class_="keep") if i % 2 else text(part) for i, part in enumerate(_FIGURE.split(words))]
