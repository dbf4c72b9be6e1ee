"""What a terminal page is made of: wrapped paragraphs, aligned tables, code that can be copied."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from advisor.report import text as t
from advisor.report.style import Style

STYLES = {
    "title": "bold",
    "dim": "dim",
    "code": "cyan",
    "high": "bold red",
    "medium": "bold yellow",
    "low": "bold cyan",
    "info": "bold",
    "good": "bold green",
}
CODE_INDENT = 8
# A program with options, and their values where these are short; it is a command to paste wherever it stands in a text.
_COMMAND = re.compile(
    r"\b(?:nvidia-smi|nsys \w+|advisor \w+)(?: -{1,2}[\w-]\S*(?: [\w.]+\.(?:xml|csv|txt|json)\b| \d+\b| \w+(?:,\w+)+\b)?)+"
)
_ASCII = str.maketrans({"µ": "u", "…": "...", "→": "->", "–": "-", "×": "x", "·": "."})


class Page:
    """Lines of styled text of one width. Everything put on it is plain text: nothing in it is read as markup."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.width = style.columns
        self._out = io.StringIO()
        self._console = Console(
            file=self._out,
            width=self.width,
            color_system="standard" if style.color else None,
            force_terminal=style.color,
            no_color=not style.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )
        self._blank = True

    def text(self) -> str:
        return self._out.getvalue().rstrip("\n") + "\n"

    def plain(self, text: str) -> str:
        """One line that the output can show: what a terminal would obey or misread is made visible."""
        text = t.clean(text)
        if self.style.unicode:
            return text
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def styled(self, *parts: str | tuple[str, str]) -> Text:
        """Text of several parts; a part with a style is a pair of text and a key of STYLES."""
        line = Text()
        for part in parts:
            text, style = part if isinstance(part, tuple) else (part, "")
            line.append(self.plain(text), STYLES.get(style, style))
        return line

    def blank(self) -> None:
        if not self._blank:
            self._out.write("\n")
        self._blank = True

    def line(self, *parts: str | tuple[str, str], indent: int = 0) -> None:
        """One line, as it is."""
        self._put(self.styled(*parts), indent)

    def paragraph(self, *parts: str | tuple[str, str], indent: int = 0, hang: int | None = None) -> None:
        """Wrapped text; lines after the first are indented by `hang`. Long words and commands stay whole, to be copied."""
        hang = indent if hang is None else hang
        text = self.styled(*parts)
        whole = _COMMAND.sub(lambda command: command[0].replace(" ", "_"), text.plain)
        for i, line in enumerate(text.divide(_breaks(whole, self.width - indent, self.width - hang))):
            line.rstrip()
            self._put(line, hang if i else indent)

    def heading(self, title: str, right: str = "") -> None:
        self.blank()
        rule = "─" if self.style.unicode else "-"
        right = f" {right}" if right else ""
        gap = self.width - cell_len(title) - cell_len(right) - 1
        self.line((f"{title} ", "title"), (rule * max(gap, 1), "dim"), (right, "dim"))

    def code(self, lines: Sequence[str]) -> None:
        """Code with an even indent of blanks and nothing else before it, never wrapped, so that it can be copied."""
        self.blank()
        for line in lines:
            if line:
                self._put(self.styled((line, "code")), CODE_INDENT)
            else:
                self._out.write("\n")
        self.blank()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], indent: int = 0) -> None:
        """Aligned columns. Cells that do not fit lose their middle, or go on in further lines if the style asks for all."""
        columns = [self.plain(column) for column in columns]
        rows = [[self.plain(text) for text in row] for row in rows]
        widths = _fit(columns, rows, right, self.width - indent)
        heads = [_words(column, width) for column, width in zip(columns, widths, strict=True)]
        height = max(map(len, heads), default=0)
        self._row([[""] * (height - len(head)) + head for head in heads], widths, right, indent, "dim")
        for row in rows:
            self._row([self._cell(text, width) for text, width in zip(row, widths, strict=True)], widths, right, indent, "")

    def _cell(self, text: str, width: int) -> list[str]:
        if self.style.full:
            return _fold(text, width)
        return [_shorten_cells(text, width, "…" if self.style.unicode else "...")]

    def _row(self, cells: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool], indent: int, style: str) -> None:
        """Lines of a row; each cell is a list of lines."""
        for i in range(max(map(len, cells), default=0)):
            parts = []
            for lines, width, flush in zip(cells, widths, right, strict=True):
                text = lines[i] if i < len(lines) else ""
                padding = " " * max(width - cell_len(text), 0)
                parts.append(padding + text if flush else text + padding)
            self.line(("  ".join(parts).rstrip(), style), indent=indent)

    def _put(self, text: Text, indent: int) -> None:
        line = Text(" " * indent)
        line.append_text(text)
        self._console.print(line, soft_wrap=True)
        self._blank = False


def _breaks(text: str, first: int, rest: int) -> list[int]:
    """Where lines begin after the first, so that words fill a first line of `first` columns and others of `rest`.

    A word that fits no line stays where it is.
    """
    breaks: list[int] = []
    used = 0
    for word in re.finditer(r"\S+\s*|\s+", text):
        width = cell_len(word[0].rstrip())
        if used and used + width > (rest if breaks else first) and width <= rest:
            breaks.append(word.start())
            used = 0
        used += cell_len(word[0])
    return breaks


def _fit(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], room: int) -> list[int]:
    """Widths of the columns: as wide as their content where that fits. Else headings break at blanks, then text shrinks."""
    room -= 2 * (len(columns) - 1)
    body = [max((cell_len(row[i]) for row in rows), default=0) for i in range(len(columns))]
    words = [max(map(cell_len, column.split()), default=0) for column in columns]
    widths = [max(cell_len(column), width) for column, width in zip(columns, body, strict=True)]
    if sum(widths) > room:
        widths = [min(max(width, word), max(room, 4)) for width, word in zip(body, words, strict=True)]
    for least in (12, 4):
        while sum(widths) > room:
            shrinkable = [i for i, width in enumerate(widths) if width > least and (least < 12 or not right[i])]
            if not shrinkable:
                break
            widest = max(shrinkable, key=lambda i: widths[i])
            widths[widest] -= 1
    return widths


def _words(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken at blanks; longer words are cut."""
    lines: list[str] = []
    for word in text.split() or [""]:
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word if cell_len(word) <= width else set_cell_size(word, width))
    return lines


def _shorten_cells(text: str, width: int, ellipsis: str) -> str:
    if cell_len(text) <= width:
        return text
    if len(text) == cell_len(text):
        return t.shorten(text, width, ellipsis)
    return set_cell_size(text, width)  # wide characters: cut at the end


def _fold(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    lines, line, used = [], "", 0
    for character in text:
        step = cell_len(character)
        if used + step > width and line:
            lines.append(line)
            line, used = "", 0
        line, used = line + character, used + step
    return [*lines, line]
