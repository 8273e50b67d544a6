"""Metrics: matching, numbers, token F1, JSON and tool calls, a judge, and functions of your own."""

from workbench import hookimpl


@hookimpl
def register_metrics(register):
    register("exact_match", "workbench_metrics.text:ExactMatch")
    register("normalized_match", "workbench_metrics.text:NormalizedMatch")
    register("contains", "workbench_metrics.text:Contains")
    register("f1", "workbench_metrics.text:F1")
    register("numeric", "workbench_metrics.numbers:Numeric")
    register("json_match", "workbench_metrics.structured:JsonMatch")
    register("tool_call_match", "workbench_metrics.structured:ToolCallMatch")
    register("judge", "workbench_metrics.judge:Judge")
    register("checklist", "workbench_metrics.checklist:Checklist")
    register("python", "workbench_metrics.function:load_function")
