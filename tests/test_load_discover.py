"""Which files a call reads: folders, patterns, archives, links, and things that are no files."""

from __future__ import annotations

import gzip
import io
import os
import socket
import tarfile
import time
from pathlib import Path

import pytest

from advisor.ingest import discover as module
from advisor.ingest.discover import Discovery, find
from advisor.ingest.source import Source
from advisor.model import InputError
from build.recordings import write_tar


def names(found: Discovery) -> list[str]:
    return [source.path.rpartition("/")[2] for source, _ in found.sources]


def touch(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_folder_is_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.json", "a/z.json", "a/y.json", ".hidden.json", "._b.json", ".git/config", "c d/e f.json"):
        touch(tmp_path / name)
    found = find([tmp_path])
    assert [str(Path(s.path).relative_to(tmp_path)) for s, _ in found.sources] == [
        "b.json",
        "a/y.json",
        "a/z.json",
        "c d/e f.json",
    ]
    assert {origin for _, origin in found.sources} == {str(tmp_path)}
    assert found.problems == []


def test_quoted_pattern_is_expanded_and_a_literal_name_is_preferred(tmp_path: Path) -> None:
    for name in ("rank1.json", "rank0.json", "other.txt", "odd[0].json"):
        touch(tmp_path / name)
    assert names(find([f"{tmp_path}/rank*.json"])) == ["rank0.json", "rank1.json"]
    assert names(find([f"{tmp_path}/odd[0].json"])) == ["odd[0].json"]
    nothing = find([f"{tmp_path}/*.csv"])
    assert nothing.sources == [] and nothing.problems == [(f"{tmp_path}/*.csv", "no file matches this pattern")]


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    file = touch(tmp_path / "a.json")
    (tmp_path / "link.json").symlink_to(file)
    found = find([file, tmp_path, str(tmp_path / "." / "a.json"), tmp_path / "link.json"])
    assert names(found) == ["a.json"] and found.problems == []


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "t.json")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    found = find([tmp_path])
    assert names(found) == ["t.json"]
    assert [path for path, _ in found.problems] == [str(tmp_path / "self")]


def test_what_is_no_file_is_a_problem_and_never_opened(tmp_path: Path) -> None:
    fifo, sock = tmp_path / "fifo", tmp_path / "s"
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock))
        found = find([fifo, sock, "/dev/null", tmp_path / "absent.json", "", "nul\0byte"])
        assert found.sources == []
        assert [reason for _, reason in found.problems] == [
            "not a regular file",
            "not a regular file",
            "not a regular file",
            "no such file or directory",
            "an empty path",
            "embedded null byte",
        ]
        assert names(find([tmp_path])) == []  # inside a folder they are passed over


def test_empty_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert find([tmp_path]).problems == [(str(tmp_path), "a folder without files")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_and_folder(tmp_path: Path) -> None:
    file = touch(tmp_path / "a.json")
    touch(tmp_path / "locked" / "b.json")
    file.chmod(0)
    (tmp_path / "locked").chmod(0)
    try:
        assert [reason for _, reason in find([tmp_path]).problems] == [
            "cannot be opened: permission denied",
            "permission denied",
        ]
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_ten_thousand_files_and_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(10_000):
        (tmp_path / f"{i:05}.txt").write_bytes(b"line\n")
    begin = time.process_time()
    assert len(find([tmp_path]).sources) == 10_000
    assert time.process_time() - begin < 20
    monkeypatch.setattr(module, "MOST_FILES", 50)
    found = find([tmp_path])
    assert names(found) == [f"{i:05}.txt" for i in range(50)]
    assert [notice.code for notice in found.notices] == ["too-many-files"]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_members_of_an_archive(tmp_path: Path, mode: str) -> None:
    zipped = gzip.compress(b"inner", mtime=0)
    members = {
        "ranks/rank1.json": b"one" * 1000,
        "ranks/._rank1.json": b"apple",
        ".hidden": b"h",
        "ranks/rank0.json.gz": zipped,
        "/etc/passwd": b"absolute",
        "../../up.json": b"up",
        "empty": b"",
    }
    archive = write_tar(tmp_path / "ranks.anything", members, mode)
    found = find([archive])
    assert [s.member.name for s, _ in found.sources if s.member] == [
        "../../up.json",
        "/etc/passwd",
        "empty",
        "ranks/rank0.json.gz",
        "ranks/rank1.json",
    ]
    by_name = {s.name: s for s, _ in found.sources}
    assert by_name["rank1.json"].path == f"{archive}::ranks/rank1.json"
    with by_name["rank1.json"].open() as stream:
        assert stream.read() == b"one" * 1000
    assert by_name["rank0.json.gz"].head() == b"inner"  # a compressed member is decompressed
    assert by_name["passwd"].head() == b"absolute"  # what the archive holds, not what the machine has there
    assert by_name["up.json"].local_file().parent != tmp_path.parent.parent
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ranks.anything"]


def test_old_tar_without_magic_is_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "old"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("t.json")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    data = bytearray(path.read_bytes())
    data[257:265] = bytes(8)
    total = sum(data[:148]) + 8 * 32 + sum(data[156:512])
    data[148:156] = f"{total:06o}\0 ".encode()
    path.write_bytes(data)
    (source, _), *rest = find([path]).sources
    assert source.head() == b"abc" and not rest


def test_archive_cut_short_gives_what_is_there(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "whole.tar", {"a": b"a" * 2000, "b": b"b" * 2000}).read_bytes()
    cut = touch(tmp_path / "cut.tar", whole[: 512 + 2048 + 512 + 700])
    found = find([cut])
    assert [(s.name, len(s.head())) for s, _ in found.sources] == [("a", 2000), ("b", 700)]
    assert [notice.code for notice in found.notices] == ["archive-damaged"]
    zipped = touch(tmp_path / "cut.tgz", gzip.compress(whole, mtime=0)[:-30])
    assert [notice.code for notice in find([zipped]).notices] == ["archive-damaged"]


def test_damaged_header_ends_the_archive(tmp_path: Path) -> None:
    data = bytearray(write_tar(tmp_path / "w.tar", {"a": b"a" * 512, "b": b"b" * 512, "c": b"c"}).read_bytes())
    data[1024:1030] = b"\xff" * 6  # the name of b: its check sum is wrong now
    found = find([touch(tmp_path / "d.tar", bytes(data))])
    assert names(found) == ["d.tar::a"] and [notice.code for notice in found.notices] == ["archive-damaged"]


def test_negative_size_does_not_walk_in_circles(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.size = 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (256**12 - 1024).to_bytes(12, "big")  # -1024 in base 256
    total = sum(header[:148]) + 8 * 32 + sum(header[156:512])
    header[148:156] = f"{total:06o}\0 ".encode()
    found = find([touch(tmp_path / "n.tar", bytes(header) * 3)])
    assert found.sources == [] and len(found.problems) == 1


def test_archive_without_files_and_of_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / "dirs.tar", "w") as archive:
        folder = tarfile.TarInfo("only/")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert find([tmp_path / "dirs.tar"]).problems == [(str(tmp_path / "dirs.tar"), "an archive without files")]
    write_tar(tmp_path / "many.tar", {f"{i}": b"" for i in range(40)})
    monkeypatch.setattr(module, "_MOST_HEADERS", 30)
    found = find([tmp_path / "many.tar"])
    assert len(found.sources) == 30 and "too many files" in found.notices[0].message


def test_what_unpacks_beyond_reason_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.ingest import source as source_module

    monkeypatch.setattr(source_module, "_HARMLESS", 1 << 21)
    bomb = touch(tmp_path / "bomb.gz", gzip.compress(bytes(1 << 24), 9, mtime=0))
    before = sorted(source_module.temporary_folder().iterdir())
    with pytest.raises(InputError, match="200 times its size"):
        Source(bomb).local_file()
    assert sorted(source_module.temporary_folder().iterdir()) == before
    # As an archive: a problem, not a crash.
    tarred = write_tar(tmp_path / "bomb.tar", {"zeros": bytes(1 << 24)})
    found = find([touch(tmp_path / "bomb.tgz", gzip.compress(tarred.read_bytes(), 9, mtime=0))])
    assert found.sources == [] and "200 times its size" in found.problems[0][1]


def test_reading_leaves_nothing_beside_the_input(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_tar(folder / "a.tar.gz", {"x": b"1"}, "w:gz")
    find([folder])
    assert [p.name for p in folder.iterdir()] == ["a.tar.gz"]
