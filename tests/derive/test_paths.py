"""Paths of source files: enough to find them, nothing of who works where."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.derive.attribution import parse_frame
from advisor.derive.paths import short_path
from advisor.rules.plain import plain


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("", ""),
        ("train.py", "train.py"),
        ("./train.py", "train.py"),
        ("src/model/layers/block.py", "src/model/layers/block.py"),
        ("/home/ann/train.py", "train.py"),
        ("home/ann/train.py", "train.py"),
        ("/home/ann/work/team/llm/src/train.py", "llm/src/train.py"),
        ("/mnt/nfs/home/ann/llm/train.py", "llm/train.py"),
        ("/lustre/users/ann/llm/train.py", "llm/train.py"),
        ("\\\\server\\homes\\ann\\llm\\train.py", "llm/train.py"),
        ("/root/llm/train.py", "llm/train.py"),
        ("/Users/ann/llm/train.py", "llm/train.py"),
        ("C:\\Users\\ann\\llm\\train.py", "llm/train.py"),
        ("c:/users/ann/llm/train.py", "llm/train.py"),
        ("C:\\Documents and Settings\\ann\\train.py", "train.py"),
        ("~ann/llm/train.py", "llm/train.py"),
        ("~/llm/train.py", "llm/train.py"),
        ("/home/ann/mnt/home/ann/train.py", "train.py"),
        ("/workspace/ann/b/c/train.py", "c/train.py"),
        ("/home/ann/venv/lib/python3.11/site-packages/torch/nn/functional.py", "torch/nn/functional.py"),
    ],
)
def test_paths_lose_private_folders(path: str, short: str) -> None:
    assert short_path(path) == short
    assert " " in path or "ann" not in plain(f"{path}(3): f")


FOLDER = st.text("abcxyz_-. 09é", min_size=1, max_size=6).filter(lambda text: text.strip(". ") != "")


@given(
    st.lists(FOLDER, max_size=2),
    st.sampled_from(["home", "Users", "users", "homes", "Documents and Settings"]),
    st.lists(FOLDER, max_size=4),
    st.sampled_from(["/", "\\"]),
    st.sampled_from(["", "/", "C:\\", "\\\\host\\", "file:///"]),
)
def test_no_users_name_survives(before: list[str], home: str, after: list[str], slash: str, start: str) -> None:
    path = start + slash.join([*before, home, "secret-name", *after, "train.py"])
    for text in (short_path(path), getattr(parse_frame(path + "(3): f"), "file", "")):
        assert "secret-name" not in text
        assert not re.search(r"[A-Za-z]:|^[/\\~]", text)
        assert text.count("/") <= 2
