"""Search over a corpus, a search engine that a language model plays, and metrics of what was found."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("search", "workbench_search.node:SearchNode")
    register("browse", "workbench_search.node:BrowseNode")
    register("simulated_search", "workbench_search.simulated_engine:SimulatedSearch")


@hookimpl
def register_metrics(register):
    register("findings_f1", "workbench_search.findings:FindingsF1")
    register("list_format", "workbench_search.findings:ListFormat")
    register("query_diversity", "workbench_search.queries:QueryDiversity")
