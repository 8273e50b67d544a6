"""The list of contents: of docs/index.md, of the site's navigation, and, in short, of the README."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: (title, path from the root, what one finds there), in the order in which they are read.
Links = list[tuple[str, str, str]]

CONTENTS: dict[str, Links] = {
    "Begin": [
        ("Tutorial", "docs/tutorial.md", "the quickstart, line by line"),
        ("Notebook", "docs/tutorial.ipynb", "a DataFrame, a metric in a cell, plots, the winner called"),
        ("From your own CSV to CI", "docs/how-to/from-csv-to-ci.md", "nine commands, each as printed"),
        ("Read the report", "docs/how-to/read-the-report.md", "each line of it"),
        ("What a run costs", "docs/how-to/what-it-costs.md", "the sums, and three bills"),
        ("Questions", "docs/how-to/faq.md", "the frequent ones, answered in a line or two"),
        ("Troubleshooting", "docs/how-to/troubleshooting.md", "by what you see"),
        ("Install", "docs/how-to/install.md", "the base, the extras, and what they weigh"),
        ("Choose an optimizer", "docs/how-to/choose-optimizer.md", "which one, for what, at what price"),
        (
            "How it differs",
            "docs/explanation/how-it-differs.md",
            "from DSPy, GEPA, promptfoo and others, and when to use them",
        ),
        ("Gallery", "docs/reference/gallery.md", "published designs as workflow files, with pictures"),
        ("Benchmarks", "docs/benchmarks.md", "what was measured, losses included"),
    ],
    "Your model and data": [
        ("Use your own endpoint", "docs/how-to/own-endpoint.md", "any server that speaks OpenAI's API"),
        ("Use vLLM", "docs/how-to/vllm.md", "for serving and for training"),
        ("Read your data", "docs/how-to/data.md", "CSV, JSON, Parquet, Hugging Face"),
        ("Start from traces", "docs/how-to/start-from-traces.md", "rows from the logs of a running system"),
        ("Make training rows", "docs/how-to/make-rows.md", "a workflow writes them, checks keep the right ones"),
        ("Improve an agent that you have", "docs/how-to/improve-an-agent.md", "in any language, unchanged"),
        ("Come from DSPy, promptfoo or Inspect", "docs/how-to/dspy.md", "and go back to DSPy"),
    ],
    "Measure": [
        ("Check a workflow", "docs/how-to/check-a-workflow.md", "before it costs anything"),
        ("Evaluate and compare", "docs/how-to/evaluate.md", "models and wordings, row by row"),
        ("Calibrate a judge", "docs/how-to/calibrate-a-judge.md", "with labels from people"),
        ("Make metrics from feedback", "docs/how-to/metrics-from-feedback.md", "from people's comments on answers"),
        ("Find the step that fails", "docs/how-to/which-step-fails.md", "and let the search use it"),
        ("Attack an agent", "plugins/agents/workbench_redteam/README.md", "and refuse gains that cost safety"),
        ("Look at runs in a browser", "docs/how-to/look-at-runs.md", "live, and steer them"),
        ("Send runs to other systems", "docs/how-to/trackers.md", "OpenTelemetry, MLflow, W&B, Optuna's dashboard"),
    ],
    "Improve": [
        ("Search the structure", "docs/how-to/search-structure.md", "which steps run, and how they are wired"),
        (
            "Get cheaper at the same quality",
            "docs/how-to/cheaper-at-the-same-quality.md",
            "with a proof that nothing is lost",
        ),
        ("Keep service levels", "docs/how-to/service-levels.md", "latency and cost as targets"),
        ("Search on several machines", "docs/how-to/shared-search.md", "one shared Optuna study, one budget per run"),
        ("Train the model", "docs/how-to/train.md", "change weights instead of prompts"),
        ("When one machine is too small", "docs/how-to/more-machines.md", "Ray, Slurm, several runs"),
    ],
    "Use the result": [
        ("Use the winner", "docs/how-to/use-the-winner.md", "from Python, behind HTTP, in a container"),
        ("Gate a change in CI", "docs/how-to/continuous-integration.md", "by exit code"),
        ("Use it from Python", "docs/how-to/from-python.md", "without a file"),
        ("Give it to a coding agent", "plugins/standard/workbench_mcp/README.md", "an MCP server, and a SKILL.md"),
    ],
    "Extend": [
        ("Write a metric", "docs/how-to/own-metric.md", "a function"),
        ("Write a node", "docs/how-to/own-node.md", "a kind of step"),
        ("Write a reader", "docs/how-to/own-reader.md", "for another file format"),
        ("Write a provider", "docs/how-to/own-provider.md", "for language models"),
        ("Write an exporter or a sandbox", "docs/how-to/own-exporter.md", "for other uses of the winner"),
        ("Write an executor", "docs/how-to/own-executor.md", "for rows on other machines"),
        ("Write an optimizer", "docs/how-to/own-optimizer.md", "under budget, journal and proof"),
        ("Measure an optimizer", "docs/how-to/benchmark-optimizer.md", "without a language model"),
    ],
    "Reference": [
        ("Workflow file", "docs/reference/workflow-file.md", "every key"),
        ("Nodes", "docs/reference/nodes.md", "every kind, and how they are wired"),
        ("Models", "docs/reference/models.md", "servers, prices, retries, reasoning"),
        ("Defects", "docs/reference/defects.md", "what `validate --deep` finds"),
        ("Evaluations", "docs/reference/evaluation.md", "splits, failed rows, comparisons, gates"),
        ("Loaded workflows", "docs/reference/loaded-workflows.md", "a finished workflow, called"),
        ("Optimizers", "docs/reference/optimizers.md", "every one, and where its settings are"),
        ("Metrics and readers", "docs/reference/metrics.md", "all of them, by name"),
        ("Executors", "docs/reference/executors.md", "where rows run, and how far it scales"),
        ("Commands", "docs/reference/cli.md", "and the environment"),
        ("Exit codes", "docs/reference/exit-codes.md", "for scripts"),
        ("Hooks", "docs/reference/hooks.md", "for plugins"),
        ("Contracts of plugins", "docs/reference/contracts.md", "what each kind must and may do"),
        ("Database", "docs/reference/database.md", "its tables"),
        ("Gateway", "docs/reference/gateway.md", "endpoints and fields"),
        ("Works with", "docs/reference/works-with.md", "model servers, and what was tried with each"),
        ("Frameworks", "docs/reference/frameworks.md", "how agents built with each find the gateway"),
        ("Works with agents", "docs/reference/agents.md", "frameworks and command-line agents, tried unmodified"),
        ("Catalogue of plugins", "docs/reference/plugins.md", "what each provides"),
    ],
    "Explanation": [
        ("The proof", "docs/explanation/proof.md", "when a gain is shown"),
        ("Budget and journal", "docs/explanation/budget-and-journal.md", "why nothing is paid twice"),
        ("What fails, and its tests", "docs/explanation/reliability.md", "by kind of failure"),
        ("Security", "docs/security.md", "who may do what"),
        ("Architecture", "docs/explanation/architecture.md", "how the code is built"),
        ("Words", "docs/explanation/words.md", "the glossary"),
    ],
}

#: What the README leads to; the rest stands on docs/index.md.
NEXT = (
    "docs/tutorial.md",
    "docs/how-to/choose-optimizer.md",
    "docs/how-to/own-endpoint.md",
    "docs/how-to/data.md",
    "docs/how-to/improve-an-agent.md",
    "docs/reference/gallery.md",
    "docs/explanation/proof.md",
    "docs/explanation/how-it-differs.md",
    "docs/benchmarks.md",
)

WORKFLOWS = (
    *("quickstart", "services", "sums", "evolve", "memory", "reflect", "which_step", "prompt_mcts", "textgrad"),
    *("dspy_module", "intercode_sql"),
)


def plugin_links() -> list[tuple[str, str]]:
    return [
        (path.parent.name.removeprefix("workbench_").replace("_", " "), path.relative_to(ROOT).as_posix())
        for path in sorted((ROOT / "plugins").glob("*/workbench_*/README.md"))
    ]


def contents() -> dict[str, list[tuple[str, str]]]:
    """Groups of (title, path from the root) with the plugins, each page once: the site's navigation."""
    groups = {group: [(title, path) for title, path, _ in links] for group, links in CONTENTS.items()}
    placed = {path for links in groups.values() for _, path in links}
    return {**groups, "Plugins": [(title, path) for title, path in plugin_links() if path not in placed]}


def with_contents(page: Path) -> str:
    """docs/index.md with links to all pages but those of plugins, which the catalogue has."""
    lines = list[str]()
    for group, links in CONTENTS.items():
        lines += ["", f"## {group}", "", *(_line(page, link) for link in links)]
    lines += ["", "## Workflows to try", ""]
    lines += [f"- {_link(page, name, f'workflows/{name}.yaml')}" for name in WORKFLOWS]
    return _between_marks(page, [*lines, ""])


def with_next(page: Path) -> str:
    """README.md with the few links that a newcomer needs."""
    known = {link[1]: link for links in CONTENTS.values() for link in links}
    lines = [_line(page, known[path]) for path in NEXT]
    return _between_marks(
        page, [*lines, _line(page, ("Everything else", "docs/index.md", "how-tos, reference, plugins"))]
    )


def _line(page: Path, link: tuple[str, str, str]) -> str:
    title, path, what = link
    return f"- {_link(page, title, path)}: {what}"


def _link(page: Path, title: str, path: str) -> str:
    return f"[{title}]({os.path.relpath(ROOT / path, page.parent)})"


def _between_marks(page: Path, lines: list[str]) -> str:
    begin, end = "<!-- contents, written by docs/generate.py -->", "<!-- end of contents -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    return "\n".join([before + begin, *lines, end + rest.partition(end)[2]])
