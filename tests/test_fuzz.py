"""A short, fixed stretch of what tests/fuzz/fuzz_readers.py does for as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "fuzz" / "fuzz_readers.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer limits its children through /proc and fork")


@pytest.mark.parametrize("how", [["--iterations", "60"], ["--iterations", "25", "--analyze"]], ids=["read", "analyze"])
def test_damaged_recordings_end_in_a_report_or_a_refusal(how):
    done = subprocess.run([sys.executable, str(SCRIPT), "--seed", "5", *how], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " 0 failures" in done.stdout
    assert not done.stdout.startswith("\n0 cases")


def test_damage_depends_on_nothing_but_the_seed():
    code = """
import hashlib, random, sys
sys.path.insert(0, sys.argv[1])
from mutate import mutate
text = b'{"a": 1.5, "b": [2, 3], "name": "kernel"}' * 50
damaged = [mutate(text, random.Random(str(number))) for number in range(300)]
print(hashlib.sha256(b"".join(damaged)).hexdigest(), sum(one != text for one in damaged))
"""
    runs = [
        subprocess.run([sys.executable, "-c", code, str(SCRIPT.parent)], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert int(runs[0].split()[1]) > 250
