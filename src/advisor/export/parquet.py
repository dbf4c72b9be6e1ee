"""The event tables as Parquet files, one a table, with units and meanings in the columns' metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from advisor.derive.steps import Steps, steps
from advisor.model import Run, Table
from advisor.model.schema import TABLES, Column

ROWS = 1 << 18  # of a row group: what is held in memory beside the run
_STEPS: tuple[Column, ...] = (
    Column("start", "int64", "ns", "begin on the host"),
    Column("end", "int64", "ns", "end on the host: begin of the next one"),
    Column("rank", "int32", "", "rank of the process in the job", -1),
    Column("process", "int64", "", "operating-system process id, as far as the file tells", -1),
    Column("number", "int64", "", "number of the step, as the recording has it"),
    Column("gpu_end", "int64", "ns", "when the GPU had finished what the step launched", 0),
    Column("gpu_period", "int64", "ns", "from the GPU's end of the step before to its end of this one", -1),
    Column("steady", "bool", "", "counts for the step time"),
    Column("hitch", "bool", "", "held up by the profiler's own work"),
    Column("incomplete", "bool", "", "lacks records"),
)


def files(run: Run) -> list[str]:
    """Names of the files that `write` makes: a table that holds no row has none."""
    return [f"{name}.parquet" for name in TABLES if len(run.table(name))] + (["steps.parquet"] if len(steps(run)) else [])


def write(run: Run, place: Callable[[str], Path], version: str, clean: Callable[[str], str] = str) -> dict[str, int]:
    """Write every table that holds rows; returns rows by file name.

    place: where to write a file of that name; clean: makes a recorded text fit to be shown. ImportError without pyarrow.
    """
    texts = _Texts(run, clean)
    about = {"advisor_version": version, "time": "nanoseconds from the run's start"}
    if run.epoch_ns is not None:
        about["start_epoch_ns"] = str(run.epoch_ns)
    written = {}
    for name in files(run):
        table = name.removesuffix(".parquet")
        if table == "steps":
            spec, rows, chunks = _STEPS, len(steps(run)), _step_chunks(steps(run))
        else:
            spec, rows, chunks = TABLES[table].columns, len(run.table(table)), _chunks(run.table(table), texts)
        _write(place(name), spec, chunks, {**about, "table": table, "row": TABLES[table].row if table in TABLES else "one step"})
        written[name] = rows
    return written


class _Texts:
    """Texts of the run by code, cleaned once each."""

    def __init__(self, run: Run, clean: Callable[[str], str]) -> None:
        self._strings, self._clean, self._known = run.strings, clean, dict[int, str]()

    def __getitem__(self, code: int) -> str:
        if code not in self._known:
            self._known[code] = self._clean(self._strings[code])
        return self._known[code]


def _write(path: Path, spec: tuple[Column, ...], chunks: Iterator[dict[str, Any]], about: dict[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field(
                column.name,
                pa.dictionary(pa.int32(), pa.string()) if column.unit == "text" else _type(column.dtype),
                nullable=column.missing is not None,
                metadata={"unit": column.unit, "meaning": column.meaning},
            )
            for column in spec
        ],
        metadata=about,
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for chunk in chunks:
            writer.write_table(pa.table(chunk, schema=schema))


def _type(dtype: str) -> Any:
    import pyarrow as pa

    return {"bool": pa.bool_()}.get(dtype) or getattr(pa, {"float32": "float32", "float64": "float64"}.get(dtype, dtype))()


def _chunks(table: Table, texts: _Texts) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    for at in range(0, len(table), ROWS):
        rows = slice(at, at + ROWS)
        chunk = {}
        for column in table.spec.columns:
            values, missing = table[column.name][rows], ~_known(table, column, rows)
            if column.unit == "text":
                codes, index = np.unique(values, return_inverse=True)
                words = pa.array([texts[code] if code >= 0 else "" for code in codes.tolist()], pa.string())
                chunk[column.name] = _unified(pa.array(index.astype(np.int32), mask=missing), words)
            else:
                chunk[column.name] = pa.array(np.ascontiguousarray(values), _type(column.dtype), mask=missing)
        yield chunk


def _unified(index: Any, words: Any) -> Any:
    """Codes and their words; a word that two codes share (places were taken out of it) stands once."""
    import pyarrow as pa

    plain = pa.DictionaryArray.from_arrays(index, words)
    return plain.cast(pa.string()).dictionary_encode() if len(words.unique()) < len(words) else plain


def _known(table: Table, column: Column, rows: slice) -> Any:
    values = table[column.name][rows]
    if column.missing is None:
        return np.ones(len(values), bool)
    if isinstance(column.missing, float) and np.isnan(column.missing):
        return ~np.isnan(values)
    return values != column.missing


def _step_chunks(found: Steps) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    chunk = {}
    for column in _STEPS:
        values = getattr(found, column.name)
        mask = None if column.missing is None else values == column.missing
        chunk[column.name] = pa.array(values, _type(column.dtype), mask=mask)
    yield chunk
