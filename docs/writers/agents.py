"""The page of agents that were tried, from the table that contrib/agents/quickstarts/run.py writes."""

from __future__ import annotations

from pathlib import Path

AGENTS = Path(__file__).parents[2] / "contrib/agents"
_INTRO = """# Works with agents

Agents as the quickstarts of their frameworks have them, and command-line agents as they are installed, each behind the
gateway and unchanged. [The program](../../contrib/agents/quickstarts/README.md) that wrote this table has a server
answer that refuses what a vendor's server refuses, and whose answers are right where a planted sentence is in the
request; so no model was asked, and what is shown is that texts are found, replaced, proved and written, not how good a
prompt becomes.

- seen: its calls pass the gateway.
- slots: what was found. S system, U message of the user, T tools, P their parameters, F fields of the answer, files.
- patched: a changed text reached the server.
- gain: what `workbench optimize` proved on six sealed rows.
- applied: how many texts `workbench agent apply` wrote into the source, each with a further line, after it had run
  the changed agent; of others the reason.
- served: the unchanged agent was right with what `workbench agent gateway` prints.
"""


def agents() -> str:
    """The page. Starts no agent."""
    table = (AGENTS / "quickstarts/README.md").read_text(encoding="utf-8").partition("<!-- table -->\n")[2]
    head, line, *rows = table.partition("<!-- end of table -->")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    shown = [f"| {' | '.join([_linked(first), *others])} |" for first, *others in cells]
    return "\n".join([_INTRO, counted(cells), "", head, line, *shown]) + "\n"


def _linked(agent: str) -> str:
    """`name, framework 1.2` as a link to its folder."""
    name, _, framework = agent.partition(", ")
    place = "quickstarts/" if (AGENTS / "quickstarts" / name).is_dir() else ""
    return f"[{name}](../../contrib/agents/{place}{name}){f', {framework}' if framework else ''}"


def counted(cells: list[list[str]]) -> str:
    """How many agents each column says yes of, as a sentence. cells: of each line."""
    seen, _, patched, gain, applied, served = zip(*(row[1:] for row in cells), strict=True)
    whole = sum(len({*cell.partition(":")[0].split(" of ")}) == 1 for cell in applied if cell)
    numbers = [
        f"{sum(cell.startswith('yes') for cell in seen)} were seen",
        f"{sum(cell.startswith('yes') for cell in patched)} patched",
        f"of {sum(cell.startswith('+') for cell in gain)} the gain was proved",
        f"of {whole} all texts were applied",
        f"{sum(cell.startswith('yes') for cell in served)} were served",
    ]
    return f"Of {len(cells)} agents {', '.join(numbers[:-1])}, and {numbers[-1]}."
