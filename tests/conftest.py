"""What many tests start from. A busy machine fails none of them, and nothing but the test says how wide a terminal is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from build.program import Run
from build.workload import Workload

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
os.environ["COLUMNS"] = "100"  # as without a terminal; runners of several processes set another width


@pytest.fixture
def advisor(capsys: pytest.CaptureFixture[str]) -> Run:
    """advisor(arguments...) -> (exit status, standard output, standard error)."""

    from advisor.cli import main

    def run_it(*arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(left.value.code or 0), out, err

    return run_it


@pytest.fixture(scope="module")
def blocking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with launch blocking."""
    w = Workload()
    for _ in w.steps(6):
        for _ in range(40):
            with w.op("aten::mm", us=60):
                w.launch("gemm", gpu_us=100, blocking=True)
    return w.write_kineto(tmp_path_factory.mktemp("blocking"))[0]
