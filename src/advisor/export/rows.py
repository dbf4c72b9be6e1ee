"""Rows of the event tables as lines of Trace Event JSON, a chunk at a time, in the layout that torch.profiler writes.

Viewers allow events of one row to nest, not to overlap otherwise: what overlaps goes to further rows, and a host event that
outlasts the one around it by a rounding error is cut to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.derive.calls import links
from advisor.derive.collectives import collectives
from advisor.derive.detail import lanes
from advisor.derive.gpus import COPY, GRAPH, KERNEL, gpu_work, work_by_row
from advisor.derive.nesting import distinct_rows
from advisor.export.places import Places
from advisor.export.selection import Selection
from advisor.export.words import ARGUMENTS, JSON, SYNC, category, copy_name, microseconds
from advisor.model import CopyKind, RangeKind, Run, SyncKind, Table

Ints = npt.NDArray[np.int64]
CHUNK = 8192
_MOST_LANES = 64
_MOST_ROWS = 16  # of one host thread
_ROUNDING_NS = 1000  # times were microseconds before torch 2.4
_HOST = ("python_frames", "ranges", "host_ops", "runtime_calls")


class Writer:
    """Lines of one export. `clean` makes a recorded text fit to be shown."""

    def __init__(self, run: Run, selection: Selection, places: Places, clean: Callable[[str], str]) -> None:
        self.run, self.selection, self.places = run, selection, places
        self._clean = clean
        self._texts: dict[int, str] = {}
        self._data: dict[int, str] = {}
        self._flow = 0
        self.cut = 0
        # Where each call is drawn, for the arrows: number of process and row.
        self._call_place = np.full((2, len(run.table("runtime_calls"))), -1, np.int64)

    # -- text ---------------------------------------------------------------------------------------------------------

    def text(self, code: int) -> str:
        """A text of the run as JSON."""
        known = self._texts.get(code)
        if known is None:
            known = self._texts[code] = json.dumps(self._clean(self.run.strings[code]))
        return known

    def data(self, code: int) -> str:
        """A text of the run that holds JSON, as it stands; text that does not as a string."""
        known = self._data.get(code)
        if known is None:
            text = self.run.strings[code]
            try:
                known = json.dumps(json.loads(text), allow_nan=False)
            except (ValueError, RecursionError):
                known = self.text(code)
            self._data[code] = known
        return known

    # -- events -------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """All events of the recording inside the selection."""
        for name in _HOST:
            table = self.run.table(name)
            for rank, process in distinct_rows(table["rank"], table["process"])[0]:
                self.places.host(rank, process)  # recorded process ids before any of ours
        yield from self._host()
        yield from self._overheads()
        yield from self._gpu()
        yield from self._memory()
        yield from self._backward()

    def _inside(self, table: Table) -> Ints:
        """Rows that overlap the window of their rank."""
        if self.selection.whole:
            return np.arange(len(table))
        keep = np.zeros(len(table), bool)
        ends = table["end" if "end" in table.column_names else table.spec.order]
        for (rank,) in distinct_rows(table["rank"])[0]:
            low, high = self.selection.of(rank)
            keep |= (table["rank"] == rank) & (table[table.spec.order] < high) & (ends >= low)
        return np.flatnonzero(keep)

    def _host(self) -> Iterator[str]:
        tables = {name: self.run.table(name) for name in _HOST}
        rows = {name: self._inside(table) for name, table in tables.items()}
        marks = tables["ranges"]["kind"][rows["ranges"]]
        apart = rows["ranges"][marks == int(RangeKind.START_END)]
        rows["ranges"] = rows["ranges"][(marks != int(RangeKind.START_END)) & (marks != int(RangeKind.MARK))]
        which = np.repeat(np.arange(len(_HOST)), [len(rows[name]) for name in _HOST])
        row = np.concatenate([rows[name] for name in _HOST])

        def joined(column: str) -> Ints:
            return np.concatenate([tables[name][column][rows[name]] for name in _HOST])

        starts, ends = joined("start"), joined("end")
        threads, of = distinct_rows(joined("rank"), joined("process"), joined("thread"))
        for number, (rank, process, thread) in enumerate(threads):
            mine = np.flatnonzero(of == number)
            start, end = starts[mine], ends[mine]
            order = np.lexsort((which[mine], -end, start))
            pid = self.places.host(rank, process)
            nested, level = self._nested(start[order], end[order], rank)
            for one in np.unique(level).tolist():
                there = level == one
                name = (f"thread {thread}" if thread >= 0 else "thread") + (f" ({one + 1})" if one else "")
                tid = self.places.row(pid, (thread, one) if one else thread, name, 0, -1 if one else thread)
                yield from self._host_lines(
                    which[mine][order][there], row[mine][order][there], start[order][there], nested[there], rank, pid, tid
                )
        yield from self._apart("ranges", apart, "ranges")

    def _nested(self, start: Ints, end: Ints, rank: int) -> tuple[Ints, Ints]:
        """(end, row) of events ordered by start, so that on each row they nest.

        An event goes to the first row where it ends before what is open there; by a rounding error later, and it is cut.
        """
        _, high = self.selection.of(rank)
        rows: list[list[int]] = [[]]
        result, level = np.minimum(end, high), np.zeros(len(start), np.int64)
        for i, (begins, ends) in enumerate(zip(start.tolist(), result.tolist(), strict=True)):
            for number, open_ends in enumerate(rows):
                while open_ends and open_ends[-1] <= begins:
                    open_ends.pop()
                if not open_ends or ends <= open_ends[-1]:
                    break
                if ends <= open_ends[-1] + _ROUNDING_NS or number + 1 == _MOST_ROWS:
                    ends = result[i] = open_ends[-1]
                    self.cut += 1
                    break
            else:
                number, open_ends = len(rows), []
                rows.append(open_ends)
            open_ends.append(ends)
            level[i] = number
        return result, level

    def _host_lines(self, which: Ints, row: Ints, start: Ints, end: Ints, rank: int, pid: int, tid: int) -> Iterator[str]:
        start = np.maximum(start, self.selection.of(rank)[0])
        for at in range(0, len(row), CHUNK):
            part = slice(at, at + CHUNK)
            kinds, rows = which[part], row[part]
            filled: list[str] = [""] * len(rows)
            for number, name in enumerate(_HOST):
                here = np.flatnonzero(kinds == number)
                if not len(here):
                    continue
                table = self.run.table(name)
                if name == "runtime_calls":
                    self._call_place[:, rows[here]] = [[pid], [tid]]
                names = table["name"][rows[here]].tolist()
                arguments = self._arguments(table, rows[here])
                for i, code, given in zip(here.tolist(), names, arguments, strict=True):
                    filled[i] = f'"cat":"{category(name, self.run.strings[code])}","name":{self.text(code)},"args":{{{given}}}'
            for begins, ends, what in zip(start[part].tolist(), end[part].tolist(), filled, strict=True):
                yield _complete(pid, tid, begins, max(ends, begins), what)

    def _arguments(self, table: Table, rows: Ints) -> list[str]:
        """For each row the members of its "args"."""
        parts: list[list[str]] = []
        for key, column in ARGUMENTS.get(table.name, {}).items():
            known = table.known(column)[rows]
            if not known.any():
                continue
            values = table[column][rows].tolist()
            if table.spec.column(column).unit == "text":
                show: Callable[[Any], str] = self.data if column in JSON else self.text
            else:
                show = repr
            head = json.dumps(key)
            parts.append([f"{head}:{show(v)}" if k else "" for v, k in zip(values, known.tolist(), strict=True)])
        return [",".join(filter(None, row)) for row in zip(*parts, strict=True)] if parts else [""] * len(rows)

    def _apart(self, name: str, rows: Ints, label: str) -> Iterator[str]:
        """Events of host threads that may overlap one another, on rows of their own."""
        table = self.run.table(name)
        threads, of = distinct_rows(*(table[column][rows] for column in ("rank", "process", "thread")))
        for number, (rank, process, thread) in enumerate(threads):
            mine = rows[of == number]
            pid = self.places.host(rank, process)
            for lane, chosen in _by_lane(table, mine):
                title = f"{label} of thread {thread}" if thread >= 0 else label
                tid = self.places.row(pid, (label, thread, lane), title, 1)
                which = np.full(len(chosen), _HOST.index(name)) if name in _HOST else None
                if which is not None:
                    yield from self._host_lines(which, chosen, table["start"][chosen], table["end"][chosen], rank, pid, tid)
                    continue
                for row in chosen.tolist():
                    what = f'"cat":"overhead","name":{self.text(int(table["name"][row]))}'
                    yield _complete(pid, tid, int(table["start"][row]), int(table["end"][row]), what)

    def _overheads(self) -> Iterator[str]:
        yield from self._apart("overheads", self._inside(self.run.table("overheads")), "the profiler's own work")

    def _gpu(self) -> Iterator[str]:
        run, work = self.run, gpu_work(self.run)
        tables = {KERNEL: run.table("kernels"), COPY: run.table("copies"), GRAPH: run.table("graph_executions")}
        keep = np.zeros(len(work), bool)
        for source, table in tables.items():
            place = work_by_row(work, source, len(table))
            keep[place[self._inside(table)]] = True
        found = collectives(run)
        described = np.full(len(tables[KERNEL]), -1, np.int64)
        described[found.kernel] = found.call
        for index, gpu in enumerate(work.gpus):
            pid = self.places.gpu(gpu.rank, gpu.process, gpu.device)
            mine = np.flatnonzero(keep & (work.gpu == index))
            for stream in np.unique(work.stream[mine]).tolist():
                on_stream = mine[work.stream[mine] == stream]
                for lane, chosen in _laned(on_stream, work.start[on_stream], work.end[on_stream]):
                    label = f"stream {stream}" if stream >= 0 else "stream"
                    wanted = stream if not lane else -1
                    tid = self.places.row(pid, (stream, lane), label + (" (overlapping)" if lane else ""), 0, wanted)
                    yield from self._gpu_lines(chosen, tables, described, gpu.rank, pid, tid)
        yield from self._syncs()

    def _gpu_lines(self, chosen: Ints, tables: dict[int, Table], described: Ints, rank: int, pid: int, tid: int) -> Iterator[str]:
        work, call_of, calls = gpu_work(self.run), links(self.run).call, self.run.table("runtime_calls")
        for at in range(0, len(chosen), CHUNK):
            part = chosen[at : at + CHUNK]
            filled = [""] * len(part)
            for source, table in tables.items():
                here = np.flatnonzero(work.source[part] == source)
                rows = work.row[part[here]]
                for i, what in zip(here.tolist(), self._work_texts(source, table, rows, described), strict=True):
                    filled[i] = what
            call = call_of[part]
            begin = np.where(call >= 0, calls["start"][np.maximum(call, 0)] if len(calls) else 0, 0)
            begin = np.maximum(begin, self.selection.of(rank)[0])
            placed = self._call_place[:, np.maximum(call, 0)] if len(calls) else np.full((2, len(part)), -1)
            columns = (work.start[part], work.end[part], call, begin, placed[0], placed[1])
            for what, start, end, from_call, begins, call_pid, call_tid in zip(
                filled, *(column.tolist() for column in columns), strict=True
            ):
                yield _complete(pid, tid, start, end, what)
                if from_call >= 0 and call_pid >= 0:
                    yield from self._arrow("ac2g", (call_pid, call_tid, begins), (pid, tid, start))

    def _work_texts(self, source: int, table: Table, rows: Ints, described: Ints) -> Iterator[str]:
        arguments = self._arguments(table, rows)
        if source == KERNEL:
            sizes = [table[f"{what}_{axis}"][rows].tolist() for what in ("grid", "block") for axis in "xyz"]
            told = [""] * len(rows)
            call = described[rows]
            known = np.flatnonzero(call >= 0)
            for i, more in zip(known.tolist(), self._arguments(self.run.table("collective_calls"), call[known]), strict=True):
                told[i] = more
            for code, given, more, *size in zip(table["name"][rows].tolist(), arguments, told, *sizes, strict=True):
                shape = f'"grid":{size[:3]},"block":{size[3:]}' if min(size) > 0 else ""
                members = ",".join(filter(None, (given, shape, more)))
                yield f'"cat":"kernel","name":{self.text(code)},"args":{{{members}}}'
        elif source == COPY:
            for kind, source_kind, target, given in zip(
                *(table[column][rows].tolist() for column in ("kind", "source", "target")), arguments, strict=True
            ):
                what = "gpu_memset" if kind == int(CopyKind.MEMSET) else "gpu_memcpy"
                yield f'"cat":"{what}","name":"{copy_name(kind, source_kind, target)}","args":{{{given}}}'
        else:
            for graph, given in zip(table["graph"][rows].tolist(), arguments, strict=True):
                yield f'"cat":"cuda_graph","name":"CUDA graph{f" {graph}" if graph >= 0 else ""}","args":{{{given}}}'

    def _syncs(self) -> Iterator[str]:
        table = self.run.table("sync_events")
        rows = self._inside(table)
        gpus, of = distinct_rows(*(table[column][rows] for column in ("rank", "process", "device")))
        for number, (rank, process, device) in enumerate(gpus):
            pid = self.places.gpu(rank, process, device)
            for lane, chosen in _by_lane(table, rows[of == number]):
                tid = self.places.row(pid, ("sync", lane), "synchronisation", 1)
                for row, given in zip(chosen.tolist(), self._arguments(table, chosen), strict=True):
                    kind = SYNC.get(SyncKind(int(table["kind"][row])), "Sync")
                    members = ",".join(filter(None, (f'"cuda_sync_kind":"{kind}"', given)))
                    what = f'"cat":"cuda_sync","name":"{kind}","args":{{{members}}}'
                    yield _complete(pid, tid, int(table["start"][row]), int(table["end"][row]), what)

    def _memory(self) -> Iterator[str]:
        table = self.run.table("memory_events")
        rows = self._inside(table)
        for at in range(0, len(rows), CHUNK):
            part = rows[at : at + CHUNK]
            names = ("rank", "process", "thread", "device", "time", "bytes", "address", "allocated", "reserved")
            for rank, process, thread, device, time, size, address, allocated, reserved in zip(
                *(table[name][part].tolist() for name in names), strict=True
            ):
                pid = self.places.host(rank, process)
                tid = self.places.row(pid, thread, f"thread {thread}" if thread >= 0 else "thread", 0, thread)
                members = {
                    "Device Type": int(device >= 0), "Device Id": device, "Bytes": size, "Addr": address,
                    **({"Total Allocated": allocated} if allocated >= 0 else {}),
                    **({"Total Reserved": reserved} if reserved >= 0 else {}),
                }  # fmt: skip
                yield (
                    f'{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":{pid},"tid":{tid},'
                    f'"ts":{microseconds(time)},"args":{json.dumps(members)}}}'
                )
                if device >= 0 and allocated >= 0:
                    held = f',"held by the allocator":{reserved}' if reserved >= 0 else ""
                    yield (
                        f'{{"ph":"C","cat":"advisor","name":"memory of GPU {device}, bytes","pid":{self.places.own(rank)},'
                        f'"ts":{microseconds(time)},"args":{{"in use":{allocated}{held}}}}}'
                    )

    def _backward(self) -> Iterator[str]:
        """Arrows from forward to backward operators."""
        table = self.run.table("forward_backward")
        columns = ("rank", "process", "start", "forward_thread", "backward_start", "backward_thread")
        for rank, process, start, thread, other, other_thread in zip(
            *(table[name][self._inside(table)].tolist() for name in columns), strict=True
        ):
            pid = self.places.host(rank, process)
            low, high = self.selection.of(rank)
            tids = [self.places.row(pid, one, f"thread {one}", 0, one) for one in (thread, other_thread) if one >= 0]
            if len(tids) == 2 and low <= other < high:
                yield from self._arrow("fwdbwd", (pid, tids[0], start), (pid, tids[1], other))

    def _arrow(self, name: str, begin: tuple[int, int, int], end: tuple[int, int, int]) -> Iterator[str]:
        self._flow += 1
        for phase, (pid, tid, at) in (('"ph":"s"', begin), ('"ph":"f","bp":"e"', end)):
            yield (
                f'{{{phase},"id":{self._flow},"cat":"{name}","name":"{name}","pid":{pid},"tid":{tid},"ts":{microseconds(at)}}}'
            )


def _complete(pid: int, tid: int, start: int, end: int, what: str) -> str:
    return f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{microseconds(start)},"dur":{microseconds(end - start)},{what}}}'


def _by_lane(table: Table, rows: Ints) -> Iterator[tuple[int, Ints]]:
    return _laned(rows, table["start"][rows], table["end"][rows])


def _laned(rows: Ints, start: Ints, end: Ints) -> Iterator[tuple[int, Ints]]:
    """(lane, rows on it), so that the rows of a lane do not overlap; all that find no room share the last."""
    order = np.lexsort((-end, start))
    lane = lanes(start[order], np.maximum(end, start + 1)[order], _MOST_LANES)
    for one in np.unique(lane).tolist():
        yield one, rows[order][lane == one]
