"""From recorded paths to files of the repository: what fits, what must not, and that nothing outside is ever named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model import Location
from advisor.report.source import SourceTree, repository_root


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    root = tmp_path / "repo"
    for name in (
        "train.py",
        "services/app/model.py",
        "services/app/layers/model.py",
        "services/web/model.py",
        "src/mylib/loss.py",
        "src/utils.py",
        "threading.py",
        ".hidden/secret.py",
        "venv/lib/python3.12/site-packages/other/thing.py",
    ):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one\n  two = 2\n")
    (tmp_path / "outside.py").write_text("password\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    return SourceTree(root)


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ("train.py", "train.py"),
        ("/workspace/run/train.py", "train.py"),
        ("C:\\jobs\\run\\train.py", "train.py"),
        ("./services/app/model.py", "services/app/model.py"),
        ("/job/services/web/model.py", "services/web/model.py"),
        ("/workspace/app/model.py", "services/app/model.py"),  # the tail is found below a folder of the repository
        ("layers/model.py", "services/app/layers/model.py"),
        ("model.py", None),  # three files have this name
        ("/elsewhere/model.py", None),
        ("utils.py", "src/utils.py"),
        ("/other/project/utils.py", None),  # only the name is the same
        ("/usr/lib/python3.11/threading.py", "threading.py"),  # a file at the root is taken as before
        ("/opt/conda/lib/python3.11/site-packages/mylib/loss.py", "src/mylib/loss.py"),  # the package, installed
        ("/opt/conda/lib/python3.11/site-packages/torch/train.py", None),  # not the user's train.py
        ("thing.py", None),  # installed packages are no source
        ("secret.py", None),
        ("link.py", None),
        ("../outside.py", None),
        ("services/../train.py", None),
        ("", None),
        ("/", None),
        ("services", None),
        ("a\0b.py", None),
        ("x" * 5000 + ".py", None),
    ],
)
def test_find(tree: SourceTree, recorded: str, found: str | None) -> None:
    assert tree.find(recorded) == found
    assert tree.find(recorded) == found  # the answer is kept


@given(st.lists(st.sampled_from(["..", ".", "", "services", "app", "model.py", "train.py", "link.py", "outside.py"]), max_size=6))
def test_nothing_outside_is_found(parts: list[str]) -> None:
    root = Path(__file__).parent
    found = SourceTree(root).find("/".join(parts))
    assert found is None or (root / found).resolve().is_relative_to(root)


def test_lines(tree: SourceTree) -> None:
    assert tree.line(Location("/x/train.py", 2)) == "two = 2"
    assert [tree.line(Location("train.py", line)) for line in (None, 0, -1, 3)] == [None] * 4


def test_the_repository_is_found_upward(tmp_path: Path) -> None:
    (tmp_path / "repo" / "deep" / "er").mkdir(parents=True)
    assert repository_root(tmp_path / "repo" / "deep" / "er") == (tmp_path / "repo" / "deep" / "er").resolve()
    (tmp_path / "repo" / ".git").write_text("gitdir: elsewhere\n")  # a work tree has a file there
    assert repository_root(tmp_path / "repo" / "deep" / "er") == (tmp_path / "repo").resolve()
