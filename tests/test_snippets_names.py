"""What Python snippets call exists: modules, attributes and keywords, in the libraries that are installed here."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import Any

import pytest

from advisor.rules.fixes import filled
from advisor.rules.rule import FixTemplate, Rule
from snippets.harness import rules

torch = pytest.importorskip("torch")

SNIPPETS = [(rule, fix) for rule in rules().values() for fix in rule.fixes if fix.language == "python"]
# Names that a program has imported already where a snippet goes; by framework where two libraries share a name.
USUAL = {
    "torch": "torch",
    "DataLoader": "torch.utils.data:DataLoader",
    "DistributedDataParallel": "torch.nn.parallel:DistributedDataParallel",
    "FullyShardedDataParallel": "torch.distributed.fsdp:FullyShardedDataParallel",
    "TrainingArguments": "transformers:TrainingArguments",
    "AutoModelForCausalLM": "transformers:AutoModelForCausalLM",
    "Accelerator": "accelerate:Accelerator",
    "L": "lightning",
    "Trainer": "lightning.pytorch:Trainer",
}
_UNKNOWN = object()


def imported(where: str) -> Any:
    """Module "a.b" or attribute "a.b:c"; _UNKNOWN where the library is not installed."""
    module, _, name = where.partition(":")
    try:
        importlib.import_module(module.partition(".")[0])
    except ImportError:
        return _UNKNOWN
    found = importlib.import_module(module)
    if not name:
        return found
    return getattr(found, name) if hasattr(found, name) else importlib.import_module(f"{module}.{name}")


class Names(ast.NodeVisitor):
    """Resolves what is known in a snippet and collects what does not exist."""

    def __init__(self, assigned: set[str]) -> None:
        self.known: dict[str, Any] = {}
        self.assigned, self.wrong = assigned, []  # type: set[str], list[str]
        self.checked = 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            found = imported(alias.name)
            self.known[alias.asname or alias.name.partition(".")[0]] = (
                found if alias.asname else imported(alias.name.partition(".")[0])
            )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            try:
                self.known[alias.asname or alias.name] = imported(f"{node.module}:{alias.name}")
                self.checked += 1
            except (ImportError, AttributeError) as error:
                self.wrong.append(f"from {node.module} import {alias.name}: {error}")

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            if node.id in self.known:
                return self.known[node.id]
            return imported(USUAL[node.id]) if node.id in USUAL and node.id not in self.assigned else _UNKNOWN
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if owner is _UNKNOWN or not (
                inspect.ismodule(owner) or inspect.isclass(owner) or type(owner).__module__.startswith("torch")
            ):
                return _UNKNOWN
            self.checked += 1
            try:
                return getattr(owner, node.attr)
            except AttributeError:
                self.wrong.append(f"{ast.unparse(node)} does not exist")
        return _UNKNOWN

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.value(node)
        if not isinstance(node.value, ast.Attribute):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = self.value(node.func)
        keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
        if called is _UNKNOWN or not keywords:
            return
        try:
            parameters = inspect.signature(called).parameters.values()
        except (TypeError, ValueError):  # built in C without a signature
            return
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return
        self.checked += 1
        unknown = set(keywords) - {one.name for one in parameters}
        if unknown:
            self.wrong.append(f"{ast.unparse(node.func)}() takes no {', '.join(sorted(unknown))}")


@pytest.mark.parametrize(("rule", "fix"), SNIPPETS, ids=[f"{rule.id}/{fix.id}" for rule, fix in SNIPPETS])
def test_what_a_snippet_calls_exists(rule: Rule, fix: FixTemplate) -> None:
    tree = ast.parse(filled(fix, {}))
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = Names(assigned)
    names.visit(tree)
    assert names.wrong == []


def test_the_check_sees_what_is_wrong() -> None:
    code = "from torch.nn import Lynear\ntorch.cuda.evnt()\ntorch.optim.AdamW(p, fusd=True)\ntorch.optim.AdamW(p, lr=1)"
    names = Names(set())
    names.visit(ast.parse(code))
    assert [text.partition(":")[0] for text in dict.fromkeys(names.wrong)] == [
        "from torch.nn import Lynear", "torch.cuda.evnt does not exist", "torch.optim.AdamW() takes no fusd",
    ]  # fmt: skip
