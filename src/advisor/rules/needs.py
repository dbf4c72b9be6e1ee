"""Whether the input holds what a rule needs, and whether another recording would."""

from __future__ import annotations

from advisor.derive.capture import lost_graph_launches
from advisor.derive.collectives import collectives
from advisor.model import Run
from advisor.rules.rule import ENVIRONMENT, Rule

COMMUNICATION = "communication"  # the family of rules that judge what ranks do together
_TORCH = "torch.profiler"
# What a trace of GPU work holds whenever the program did it.
_ALWAYS = ("kernels", "copies", "runtime_calls")
# Families whose rules do not judge by when the GPU was busy.
_UNTIMED = ("capture", "environment", "hardware")


def alone(run: Run) -> bool:
    """Whether the recorded program is one process that has no peer: rules on communication have nothing to judge."""
    if len(run.ranks) != 1 or run.world_size not in (None, 1):
        return False
    return run.world_size == 1 or not len(collectives(run).kernel)


def unlocks(run: Run, rule: Rule) -> bool:
    """Whether recording again can bring what the rule lacks, so that its capture hint is worth printing."""
    recorded = len(run.table("kernels")) > 0 and len(run.table("runtime_calls")) > 0
    vain = {*(_ALWAYS if recorded else ()), *(["ranges"] if run.capture.tool == _TORCH else [])}
    lacking = [group for group in rule.needs if not any(_recorded(run, name) for name in group)]
    return not any(vain.issuperset(group) for group in lacking)


def missing(run: Run, rule: Rule) -> str | None:
    """Why the input is not enough for the rule's `needs`; None if it is."""
    for group in rule.needs:
        if not any(_recorded(run, name) for name in group):
            words = [in_words(name) for name in group]
            if len(words) == 1:
                return f"the input holds no {words[0]}"
            return f"the input holds neither {' nor '.join(words)}"
    lost = lost_graph_launches(run) if _timed(rule) else 0
    if lost:
        return f"the GPU work of CUDA graphs was not recorded (lost launches: {lost}), so what looks idle may have been busy"
    return None


def _timed(rule: Rule) -> bool:
    return rule.family not in _UNTIMED and any(name in _ALWAYS for group in rule.needs for name in group)


def _recorded(run: Run, name: str) -> bool:
    if name == ENVIRONMENT:
        return bool(run.environment)
    table, _, column = name.partition(".")
    return run.table(table).has(column) if column else len(run.table(table)) > 0


def in_words(name: str) -> str:
    """A need of a rule for people: 'device samples with pcie width'."""
    if name == ENVIRONMENT:
        return "environment variables"
    table, _, column = name.partition(".")
    return table.replace("_", " ") + (f" with {column.replace('_', ' ')}" if column else "")
