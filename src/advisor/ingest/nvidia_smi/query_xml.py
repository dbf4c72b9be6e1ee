"""nvidia-smi -q -x: XML documents, one after another. Nothing outside the file is ever loaded, and entities are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.parsers import expat

from advisor.ingest.nvidia_smi.collect import Collector
from advisor.ingest.nvidia_smi.query_text import Document
from advisor.model import InputError

FORMAT = "nvidia-smi-xml"
_END = "</nvidia_smi_log>"
_DEEPEST = 32
_LONGEST_VALUE = 4096


def opens(line: str) -> bool:
    """True for a line that begins such a document."""
    return line.lstrip().startswith(("<nvidia_smi_log", "<!DOCTYPE nvidia_smi_log", "<?xml"))


class _Parser:
    """One document."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._document: Document | None = None
        self._stack: list[str] = []
        self._text: list[str] = []
        self._size = 0
        self._begun = False
        self.damaged = False
        self._expat = expat.ParserCreate()
        self._expat.buffer_text = True
        self._expat.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._finish
        self._expat.CharacterDataHandler = self._data
        self._expat.EntityDeclHandler = self._refuse
        self._expat.ExternalEntityRefHandler = lambda *names: 1  # taken as empty

    def feed(self, text: str) -> None:
        """Raises expat.ExpatError where the document is damaged, InputError where it declares entities."""
        if not self._begun:
            text = text.lstrip()  # the declaration must come first
            self._begun = bool(text)
        self._expat.Parse(text, False)

    def close(self) -> None:
        if self._document is not None:
            self._document.close()
            self._document = None

    @staticmethod
    def _refuse(*declaration: object) -> None:
        raise InputError("the XML declares entities, which nvidia-smi never does: not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._stack.append(name)
        if len(self._stack) > _DEEPEST:
            raise InputError("the XML is nested deeper than nvidia-smi ever writes: not read")
        self._text, self._size = [], 0
        if len(self._stack) == 1:
            if name != "nvidia_smi_log":
                raise InputError(f"the XML is no log of nvidia-smi: its root is {name[:40]!r}")
            self._document = Document(self._collector)
        elif self._stack[1:] == ["gpu"] and self._document:
            self._document.begin_gpu(attributes.get("id"))
        elif self._document and self._in_processes():
            if len(self._stack) == 3:
                self._document.lists_processes()
            elif name == "process_info":
                self._document.begin_process()
        elif name == "mig_device":
            self._collector.counts["mig-devices"] += 1

    def _in_processes(self) -> bool:
        return self._stack[1:3] == ["gpu", "processes"]

    def _data(self, text: str) -> None:
        if self._size < _LONGEST_VALUE:
            self._text.append(text)
            self._size += len(text)

    def _finish(self, name: str) -> None:
        text = "".join(self._text).strip()
        self._text, self._size = [], 0
        document = self._document
        if document is not None:
            if self._stack[1:2] != ["gpu"]:
                document.head("/".join(self._stack[1:]), text)
            elif len(self._stack) == 2:
                document.end_gpu()
            elif self._in_processes():
                document.put_process(name, text)
            else:
                document.put("/".join(self._stack[2:]), text)
        self._stack.pop()


class XmlSection:
    """Documents of -q -x, one after another."""

    format = FORMAT

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._parser: _Parser | None = None

    def feed(self, lines: Sequence[str], at: int, opens_other: Callable[[str], bool]) -> int:
        """Takes lines from `lines[at:]` up to one that opens something else after a document's end; returns where that is."""
        read: list[str] = []
        for i in range(at, len(lines)):
            line = lines[i]
            if self._parser is not None and line.startswith("<?xml"):  # the document before was cut
                self._parse(read)
                self.close()
            if self._parser is None:
                if not line.strip():
                    continue
                if not opens(line):
                    return i
            *ended, rest = line.split(_END)
            for text in ended:
                self._parse([*read, text + _END])
                read = []
                self.close()
            if rest.strip() and (not ended or opens(rest)):  # anything else behind an end is left out
                self._parser = self._parser or _Parser(self._collector)
                read.append(rest)
        self._parse(read)
        return len(lines)

    def _parse(self, lines: list[str]) -> None:
        """More of the document, which begins here if none is open."""
        if self._parser is None:
            if not lines:
                return
            self._parser = _Parser(self._collector)
        if not self._parser.damaged:
            try:
                self._parser.feed("".join(line + "\n" for line in lines))
            except expat.ExpatError:
                self._parser.damaged = True
                self._collector.counts["xml-damaged"] += 1
        lines.clear()

    def close(self) -> None:
        """Hands on the GPU that was being read."""
        if self._parser is not None:
            self._parser.close()
        self._parser = None
