"""Tips of docs/retired-rules.md that no fix gives, and rules of the catalogue that are named there and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.rules.rule import FixTemplate, Rule
from snippets.harness import rules

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "retired-rules.md").read_text()
FIXES = [(rule, fix) for rule in rules().values() for fix in rule.fixes]
every_fix = pytest.mark.parametrize(("rule", "fix"), FIXES, ids=[f"{rule.id}/{fix.id}" for rule, fix in FIXES])


def code(fix: FixTemplate) -> str:
    """The snippet without its comments."""
    return re.sub(r"(^|\s)#.*", "", fix.snippet)


@every_fix
def test_no_fix_gives_a_tip_that_does_not_help(rule: Rule, fix: FixTemplate) -> None:
    text = code(fix)
    assert not re.search(r"CUDA_LAUNCH_BLOCKING\W{1,4}1|NCCL_BLOCKING_WAIT|\bnvprof\b|empty_cache\(", text)
    assert not re.search(r"CUDA_DEVICE_MAX_CONNECTIONS\W{1,4}1\b", text) or "fsdp" not in fix.framework
    if rule.family == "memory":
        assert "channels_last" not in text and "cudnn.benchmark" not in text
    least = fix.valid.min_compute_capability or rule.valid.min_compute_capability or (0,)
    if re.search(r"tf32\s*=\s*True|allow_tf32|set_float32_matmul_precision|fp32_precision", text):
        assert least >= (8, 0)
    if re.search(r"bf16\s*=\s*True|bf16-mixed|mixed_precision=\"bf16\"", text) or (
        "autocast" in text and "bfloat16" in text and "enabled=False" not in text
    ):
        assert least >= (8, 0)
    if re.search(r"fp8|float8", text):
        assert least >= (8, 9)


def test_the_page_names_no_rule_that_exists() -> None:
    ideas, tips = PAGE.split("## Tips that are never printed")
    named = {
        name for line in ideas.splitlines() if line.startswith("| `") for name in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    }
    assert {"same-stream-collective", "cpu-oversubscription", "network-fallback"} <= named
    assert not named & rules().keys()
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE)) - named <= rules().keys()
    assert tips.count("\n| ") >= 10
