"""The nouns of the program: tables, traces, runs, devices, reports. Imports nothing of ours."""

from advisor.model.devices import Device
from advisor.model.pictures import Pictures
from advisor.model.report import Breakdown, Evidence, Finding, Fix, Location, Report, RuleOutcome, Saving
from advisor.model.rule_page import RulePage
from advisor.model.run import Capture, InputError, Notice, Options, Run, Trace
from advisor.model.schema import (
    TABLES,
    THROTTLE_WORDS,
    CopyKind,
    MemoryKind,
    MemorySource,
    RangeKind,
    SyncKind,
    ThrottleReason,
)
from advisor.model.schema_memory import AllocatorAction, BlockState
from advisor.model.tables import Strings, Table
from advisor.model.verdict import Accepted, BaselineVerdict, Condition, Verdict

__all__ = [
    "TABLES",
    "THROTTLE_WORDS",
    "Accepted",
    "AllocatorAction",
    "BaselineVerdict",
    "BlockState",
    "Breakdown",
    "Capture",
    "Condition",
    "CopyKind",
    "Device",
    "Evidence",
    "Finding",
    "Fix",
    "InputError",
    "Location",
    "MemoryKind",
    "MemorySource",
    "Notice",
    "Options",
    "Pictures",
    "RangeKind",
    "Report",
    "RuleOutcome",
    "RulePage",
    "Run",
    "Saving",
    "Strings",
    "SyncKind",
    "Table",
    "ThrottleReason",
    "Trace",
    "Verdict",
]
