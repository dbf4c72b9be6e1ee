"""The bytes of a file or member as readers see them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from advisor.ingest.discover import find
from advisor.ingest.source import Source, reason_of, temporary_folder
from advisor.model import InputError
from build.recordings import write_tar

DATA = bytes(range(256)) * 4096  # 1 MiB that compresses


def content(source: Source) -> bytes:
    with source.open() as stream:
        return stream.read()


def write(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return Source(path)


def test_plain_and_compressed_content_is_the_same(tmp_path: Path) -> None:
    zipped = gzip.compress(DATA, mtime=0)
    for data in (DATA, zipped, gzip.compress(DATA[:1000], mtime=0) + gzip.compress(DATA[1000:], mtime=0), zipped + bytes(100)):
        source = write(tmp_path / "f", data)
        assert content(source) == DATA and source.head(10) == DATA[:10] and source.damage is None
        assert source.size == len(data)


def test_damage_is_noted_and_what_came_before_is_kept(tmp_path: Path) -> None:
    zipped = gzip.compress(DATA, mtime=0)
    cut = write(tmp_path / "cut", zipped[:-40])
    got = content(cut)
    assert cut.damage == "the gzip stream is cut short" and len(got) > 1000 and DATA.startswith(got)
    broken = write(tmp_path / "broken", zipped[: len(zipped) // 2] + b"\xff" * 50 + zipped[len(zipped) // 2 + 50 :])
    assert DATA[:100].startswith(content(broken)[:100]) and broken.damage == "the gzip stream is damaged"
    trailing = write(tmp_path / "trailing", zipped + b"garbage")
    assert content(trailing) == DATA


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent", "no such file"), (tmp_path, "not a regular file")):
        with pytest.raises(InputError, match=f"cannot be opened: {reason}"):
            content(Source(path))
        with pytest.raises(InputError, match=reason):
            Source(path).local_file()


def test_local_file_is_the_users_own_only_if_plain(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.sqlite", DATA)
    assert plain.local_file() == tmp_path / "plain.sqlite"
    zipped = write(tmp_path / ("x" * 240 + ".gz"), gzip.compress(DATA, mtime=0))
    copy = zipped.local_file()
    assert copy.read_bytes() == DATA and copy.parent == temporary_folder() and zipped.local_file() == copy
    (member, _), *_ = find([write_tar(tmp_path / "a.tar", {"/../we ird\n/na:me" + "é" * 60: DATA})]).sources
    copy = member.local_file()
    assert copy.read_bytes() == DATA and copy.parent == temporary_folder()


def test_reads_are_counted_once_and_sniffing_is_not(tmp_path: Path) -> None:
    source, counted = write(tmp_path / "f", gzip.compress(DATA, mtime=0)), []
    source.advance = counted.append
    source.head()
    assert counted == []
    content(source)
    assert sum(counted) == source.size


def test_reasons_are_one_line_without_the_path() -> None:
    assert reason_of(FileNotFoundError(2, "No such file or directory", "/secret/x")) == "no such file or directory"
    assert reason_of(ValueError("First\nsecond")) == "first"
    assert reason_of(ValueError()) == "ValueError"
