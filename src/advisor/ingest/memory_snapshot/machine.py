"""Reads a pickle of plain data without the power to do anything else.

A pickle is a program: the standard library runs it, and calls what it names. This machine knows the instructions that build
dicts, lists, tuples, text and numbers, and no other: it has no instruction that imports, calls or asks for anything, so a
file that wants to is refused by the name of what it wants. It reads a stream in parts, bounds every size before it
allocates, and hands the history of a memory snapshot on in batches instead of keeping it (`Events`).

Call stacks make up most of a snapshot. They are lists of references to frames that came before; a list with the same bytes
is the same stack, so that a regular expression reads it in one go and equal ones are one object.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from advisor.ingest.memory_snapshot import instructions as ops
from advisor.ingest.source import UnknownKind
from advisor.model import InputError

_PART = 1 << 20  # bytes read at once
_NEEDED = 1 << 12  # bytes that are there when an instruction begins, unless the file ends
_LONGEST_TEXT = 1 << 20
_MOST_VALUES = 8_000_000  # kept at once outside the history: a hostile file costs 64 bytes each at most
_MOST_REFERENCES = 60_000_000  # slots of the memo; a history of five million events has ten million
_DEEPEST = 200

HISTORY = "device_traces"


class _Ended(Exception):
    """The stream is over in the middle."""


class Events(list[Any]):
    """The history of one device while it is read: what is added goes to `take` and is not kept."""

    def __init__(self, device: int, take: Callable[[int, Iterable[Any]], None]) -> None:
        super().__init__()
        self.device, self._take = device, take

    def extend(self, values: Iterable[Any]) -> None:
        self._take(self.device, values)

    def append(self, value: Any) -> None:
        self._take(self.device, (value,))


class _Histories(list[Any]):
    """The value of `device_traces`: one history a device."""


class _Gone:
    """Stands in the memo for an event that was handed on."""


_GONE = _Gone()


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Machine:
    """One pass over a pickle. `cut` is True if it ended early, in which case `run` gives what there was."""

    def __init__(self, stream: Readable, take: Callable[[int, Iterable[Any]], None], most: int) -> None:
        """take(device, events): called with parts of the history. most: bytes that the stream may hold."""
        self._stream, self._take, self._most = stream, take, most
        self._buffer, self._at, self._over = b"", 0, False
        self._memo: list[Any] = []
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # stacks below each mark
        self._stacks: dict[bytes, list[Any]] = {}
        self._kept = 0  # values in containers that stay
        self._pending = 0  # values in events that were not handed on yet
        self._opened = 0  # such events
        self.cut = False

    def run(self) -> Any:
        """The object. Raises UnknownKind for a pickle that wants more than data, InputError for one beyond all bounds."""
        try:
            return self._run()
        except _Ended:
            self.cut = True
            return self._rest()
        except (IndexError, struct.error, TypeError, AttributeError) as error:
            raise ops.Damaged(f"the pickle is damaged ({type(error).__name__})") from error

    def _refill(self, needed: int = _NEEDED) -> None:
        """Have `needed` more bytes, if the stream has."""
        self._buffer, self._at = self._buffer[self._at :], 0
        while len(self._buffer) < needed and not self._over:
            part = self._stream.read(_PART)
            self._over = not part
            self._most -= len(part)
            if self._most < 0:
                raise InputError("unpacks to more times its size than any snapshot does")
            self._buffer += part
        pushed = len(self._stack) + sum(map(len, self._outer))
        if pushed + self._kept + self._pending > _MOST_VALUES or len(self._memo) > _MOST_REFERENCES:
            raise InputError("holds more values than any snapshot does")

    def _bytes(self, at: int, count: int) -> bytes:
        """`count` bytes from `at` in the buffer; the machine stands behind them afterwards."""
        if count > _LONGEST_TEXT or count < 0:
            raise InputError(f"the pickle holds a text of {count:,} bytes, as no snapshot does")
        if at + count > len(self._buffer):
            self._at = at
            self._refill(count)
            at = 0
            if count > len(self._buffer):
                raise _Ended
        self._at = at + count
        return self._buffer[at : at + count]

    def _line(self, at: int, most: int = _LONGEST_TEXT) -> bytes:
        """Up to the next line end, without it."""
        end = self._buffer.find(b"\n", at)
        if end < 0:
            self._at = at
            self._refill(most)
            at, end = 0, self._buffer.find(b"\n")
        if end < 0 and len(self._buffer) < most:
            raise _Ended
        if end < 0 or end - at > most:
            raise InputError("the pickle holds a longer line than any snapshot does")
        self._at = end + 1
        return self._buffer[at:end]

    def _new_list(self) -> list[Any]:
        """An empty list, or the place of a history if one begins here."""
        stack, outer = self._stack, self._outer
        if stack and type(stack[-1]) is _Histories:
            return Events(len(stack[-1]), self._take)
        around = outer[-1][-1] if outer and outer[-1] else None
        if type(around) is _Histories:
            return Events(len(around) + len(stack), self._take)
        if len(outer) <= 1 and stack and isinstance(stack[-1], str) and stack[-1] == HISTORY:
            return _Histories()
        return []

    def _unmark(self) -> list[Any]:
        items, self._stack = self._stack, self._outer.pop()
        return items

    def _extend(self, target: Any, items: list[Any]) -> None:
        if not isinstance(target, list):
            raise ops.Damaged("the pickle is damaged (APPENDS)")
        target.extend(items)
        if type(target) is not Events:
            self._kept += len(items)
            return
        # No event can be elsewhere too (`_GONE`), so that what they held is free again if all that began arrived here.
        if sum(type(item) is dict for item in items) != self._opened:
            self._kept += self._pending
        self._pending = self._opened = 0

    def _set(self, target: Any, items: list[Any]) -> None:
        if type(target) is not dict or len(items) % 2:
            raise ops.Damaged("the pickle is damaged (SETITEMS)")
        keys = items[::2]
        for key in keys:
            if type(key) is not str and not (type(key) is int and abs(key) < 1 << 31):
                raise ops.Damaged("the pickle is damaged (a key that is no text)")
        target.update(zip(keys, items[1::2], strict=True))
        if self._in_history():
            self._pending += len(items)
        else:
            self._kept += len(items)

    def _in_history(self) -> bool:
        """Whether a container that begins or ends here is an entry of a history."""
        outer = self._outer
        return bool(outer) and bool(outer[-1]) and type(outer[-1][-1]) is Events

    def _put(self, value: Any, index: int) -> None:
        memo = self._memo
        if type(value) is dict and self._in_history():
            value = _GONE
        if index == len(memo):
            memo.append(value)
        elif 0 <= index < len(memo):
            memo[index] = value
            self._stacks.clear()  # what was known of bytes that refer to it
        else:
            raise ops.Damaged("the pickle is damaged (a reference out of order)")

    def _known_stack(self, raw: bytes) -> list[Any]:
        """The list that the bytes between MARK and APPENDS stand for; equal bytes give the same object."""
        numbers = (int.from_bytes(short or long, "little") for short, long in ops.REFERENCE.findall(raw))
        frames = self._stacks[raw] = [self._memo[number] for number in numbers]
        self._kept += len(frames)
        return frames

    def _rest(self) -> Any:
        """What a pickle that was cut short had said of its outermost dict or list."""
        levels = [*self._outer, self._stack]
        if not levels[0]:
            raise ops.Damaged("cut short before the first event")
        top, said = levels[0][0], levels[1] if len(levels) > 1 else levels[0][1:]
        if type(top) is dict:
            top.update((key, value) for key, value in zip(said[::2], said[1::2], strict=False) if type(key) is str)
        elif isinstance(top, list):
            top.extend(said)
        if len(self._outer) > 1 and self._outer[-1] and type(self._outer[-1][-1]) is Events:
            self._outer[-1][-1].extend(value for value in self._stack if type(value) is dict)
        elif len(self._outer) > 2 and self._outer[-2] and type(self._outer[-2][-1]) is Events:
            self._outer[-2][-1].extend(value for value in self._outer[-1][:-1] if type(value) is dict)
        return top

    def _refuse(self, op: int, at: int) -> InputError:
        """The refusal of an instruction that is not one of plain data."""
        wanted = None
        if op in (0x63, 0x69):  # GLOBAL, INST
            try:
                module = self._line(at, 1000).decode("utf-8", "replace")
                wanted = f"{module}.{self._line(self._at, 1000).decode('utf-8', 'replace')}"
            except (_Ended, InputError):
                wanted = "something"
        elif op == 0x93:  # STACK_GLOBAL
            wanted = ".".join(str(part) for part in self._stack[-2:] if isinstance(part, str)) or "something"
        elif op in (0x50, 0x51):  # PERSID, BINPERSID
            return UnknownKind("this is a Python pickle that asks for objects outside it, which is never done")
        elif op in ops.CALLS:
            wanted = f"a call ({ops.CALLS[op]})"
        if wanted is not None:
            shown = "".join(c if c.isprintable() else "?" for c in wanted[:120])
            return UnknownKind(f"this is a Python pickle that asks for {shown}, which could run code and is never loaded")
        return ops.Damaged(f"the pickle is damaged (instruction {op:#04x})")

    def _run(self) -> Any:  # one branch an instruction, the frequent ones first
        memo, outer = self._memo, self._outer
        self._refill()
        buffer, at, stack = self._buffer, self._at, self._stack
        limit = len(buffer) - _NEEDED
        from_bytes, unpack, known_stack = int.from_bytes, struct.unpack_from, ops.STACK.match
        while True:
            if at > limit:
                if not self._over:
                    self._at = at
                    self._refill()
                    buffer, at = self._buffer, self._at
                    limit = len(buffer) - _NEEDED
                if at >= len(buffer) or at + ops.SIZES[buffer[at]] > len(buffer):
                    raise _Ended
            op = buffer[at]
            if op == 0x68:  # BINGET
                stack.append(memo[buffer[at + 1]])
                at += 2
            elif op == 0x6A:  # LONG_BINGET
                stack.append(memo[from_bytes(buffer[at + 1 : at + 5], "little")])
                at += 5
            elif op == 0x4B:  # BININT1
                stack.append(buffer[at + 1])
                at += 2
            elif op == 0x8A:  # LONG1
                end = at + 2 + buffer[at + 1]
                if end > len(buffer):
                    raise _Ended
                stack.append(from_bytes(buffer[at + 2 : end], "little", signed=True))
                at = end
            elif op == 0x4A:  # BININT
                stack.append(unpack("<i", buffer, at + 1)[0])
                at += 5
            elif op == 0x7D:  # EMPTY_DICT
                at += 1
                if outer and outer[-1] and type(outer[-1][-1]) is Events:
                    self._opened += 1
                    if buffer[at : at + 1] == b"\x94":  # its place in the memo is not used
                        memo.append(_GONE)
                        at += 1
                stack.append({})
            elif op == 0x28:  # MARK
                if len(outer) >= _DEEPEST:
                    raise InputError("the pickle is nested deeper than any snapshot")
                outer.append(stack)
                stack = self._stack = []
                at += 1
            elif op == 0x75:  # SETITEMS
                items, stack = stack, outer.pop()
                self._stack = stack
                self._set(stack[-1], items)
                at += 1
            elif op == 0x5D:  # EMPTY_LIST
                found = known_stack(buffer, at)
                if found is not None and (not stack or stack[-1] != HISTORY):
                    put, raw = found.groups()
                    frames = self._stacks.get(raw) or self._known_stack(raw)
                    if put == b"\x94":
                        memo.append(frames)
                    elif put is not None:
                        self._put(frames, from_bytes(put[1:], "little"))
                    stack.append(frames)
                    at = found.end()
                else:
                    stack.append(self._new_list())
                    at += 1
            elif op == 0x94:  # MEMOIZE
                value = stack[-1]
                if type(value) is dict:
                    self._put(value, len(memo))
                else:
                    memo.append(value)
                at += 1
            elif op == 0x65:  # APPENDS
                items, stack = stack, outer.pop()
                self._stack = stack
                self._extend(stack[-1], items)
                at += 1
            elif op == 0x8C:  # SHORT_BINUNICODE
                text = self._bytes(at + 2, buffer[at + 1])
                stack.append(str(text, "utf-8", "replace"))
                buffer, at = self._buffer, self._at
                limit = len(buffer) - _NEEDED
            elif op == 0x95:  # FRAME: its length says nothing that the stream does not
                at += 9
            elif op == 0x4E:  # NONE
                stack.append(None)
                at += 1
            elif op == 0x88 or op == 0x89:  # NEWTRUE, NEWFALSE
                stack.append(op == 0x88)
                at += 1
            elif op == 0x2E:  # STOP
                return stack[-1]
            else:
                self._at = at
                self._rare(op, at)
                buffer, at, stack = self._buffer, self._at, self._stack
                limit = len(buffer) - _NEEDED

    def _rare(self, op: int, at: int) -> None:
        """An instruction that is seldom, or of an old protocol; leaves the machine behind it."""
        buffer, stack = self._buffer, self._stack
        size = ops.FIXED.get(op)
        if size is not None:
            self._at = at + size
            if op == 0x4D:  # BININT2
                stack.append(int.from_bytes(buffer[at + 1 : at + 3], "little"))
            elif op == 0x47:  # BINFLOAT
                stack.append(struct.unpack_from(">d", buffer, at + 1)[0])
            elif op == 0x71 or op == 0x72:  # BINPUT, LONG_BINPUT
                self._put(stack[-1], int.from_bytes(buffer[at + 1 : at + size], "little"))
            elif op == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif 0x85 <= op <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
                items = [stack.pop() for _ in range(op - 0x84)]
                stack.append(tuple(reversed(items)))
            elif op == 0x74:  # TUPLE
                items = self._unmark()
                self._kept += len(items)
                self._stack.append(tuple(items))
            elif op == 0x6C:  # LIST
                items = self._unmark()
                made = self._new_list()
                self._extend(made, items)
                self._stack.append(made)
            elif op == 0x64:  # DICT
                items = self._unmark()
                self._stack.append({})
                self._set(self._stack[-1], items)
            elif op == 0x61:  # APPEND
                value = stack.pop()
                self._extend(stack[-1], [value])
            elif op == 0x73:  # SETITEM
                value, key = stack.pop(), stack.pop()
                self._set(stack[-1], [key, value])
            elif op == 0x31 or (op == 0x30 and not stack):  # POP_MARK, or POP of a mark
                self._unmark()
            elif op == 0x30:  # POP
                stack.pop()
        elif op in ops.LENGTHS:
            width = ops.LENGTHS[op]
            text = self._bytes(at + 1 + width, int.from_bytes(buffer[at + 1 : at + 1 + width], "little"))
            if op in (0x58, 0x8D):  # BINUNICODE, BINUNICODE8
                stack.append(str(text, "utf-8", "replace"))
            elif op == 0x8B:  # LONG4
                if len(text) > 255:
                    raise InputError("the pickle holds a number of more digits than any snapshot does")
                stack.append(int.from_bytes(text, "little", signed=True))
            else:  # STRING and BYTES of all lengths
                stack.append(str(text, "latin-1") if op in (0x54, 0x55) else text)
        elif op in b"SVILFgp":
            self._text(op, self._line(at + 1))
        else:
            raise self._refuse(op, at + 1)

    def _text(self, op: int, line: bytes) -> None:
        """An instruction of protocol 0, whose argument is a line of text."""
        if op == 0x67:  # GET
            self._stack.append(self._memo[ops.natural(line)])
        elif op == 0x70:  # PUT
            self._put(self._stack[-1], ops.natural(line))
        else:
            self._stack.append(ops.text_value(op, line))
