"""Workflows: hash, patches, graph."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

WORKFLOW = "core/workbench/workflow/workflow.py"
WORKFLOW_TESTS = "tests/workflow/test_workflow.py"
PROGRAM_TESTS = ("tests/runtime/test_scheduling.py", "tests/runtime/test_node_failures.py")
WORKFLOWS: list[Mutant] = [
    *changes_of(
        WORKFLOW,
        WORKFLOW_TESTS,
        (
            'for k, v in self.tree.items() if k != "name"}',
            "for k, v in self.tree.items()}",
            "the name is part of the hash",
        ),
        (
            "return digest([content, order] if order else content)",
            "return digest(content)",
            "the order of nodes does not count",
        ),
        (
            "return [*met, *inner_orders(list(trees.values()))]",
            "return met",
            "the order in a sub-workflow does not count",
        ),
        (
            "value = json.loads(json.dumps(value, ensure_ascii=False, default=str))",
            "pass",
            "a patch keeps a hand on its values",
        ),
        (
            "child = Workflow(tree, self.base, self.hash, patch, self.instead)",
            "child = Workflow(tree, self.base, None, patch, self.instead)",
            "a child does not know its parent",
        ),
        ("child.check()  # a", "pass  # a", "bad values are found where they are used"),
        ("if moved != there:", "if False:", "an undone removal puts a node last"),
        (
            "return isinstance(other, Workflow) and self.hash == other.hash",
            "return self is other",
            "equal workflows differ",
        ),
    ),
    *changes_of(
        "core/workbench/workflow/tree.py",
        WORKFLOW_TESTS,
        ("copy, key = dict(tree), head", "copy, key = tree, head", "a patch changes its parent"),
        ("or int(head) >= len(tree):", "or False:", "an index too far is no key error"),
        (
            'if key == "nodes" and is_dict(value[key]) and len(value[key]) > 1:',
            "if False:",
            "the order in a sub-workflow is not seen",
        ),
        ("if len(rest) > 1 or value is GONE:", "if False:", "addresses that lead nowhere are written"),
    ),
    *changes_of(
        "core/workbench/base/hashing.py",
        WORKFLOW_TESTS,
        ("sort_keys=True", "sort_keys=False", "the order of keys changes the hash"),
    ),
    *changes_of(
        "core/workbench/workflow/graph.py",
        PROGRAM_TESTS,
        (
            "before = [n for n in reversed(others) if place[n] < place[name]]",
            "before = [n for n in others if place[n] < place[name]]",
            "a reader gets the first writer's value",
        ),
        ("return names[: required + 1]", "return names[:1]", "no other writer stands in for an optional one"),
        (
            "values[field] = written[self._last(field, wrote)][field]",
            "values[field] = written[wrote[0]][field]",
            "the first writer has the last word",
        ),
        ("while (refiner :=", "while False and (refiner :=", "who refines a field has not the last word"),
        ("if name not in self._optional:", "if False:", "no node's failure fails the example"),
        ("for before in self._before[name]:", "for before in ():", "nodes do not wait for those before them"),
    ),
    *changes_of(
        "core/workbench/workflow/graph.py",
        WORKFLOW_TESTS,
        ("if not networkx.is_directed_acyclic_graph(graph):", "if False:", "cycles are taken"),
        ("if need not in trees:", "if False:", "unknown needs are taken"),
    ),
]
