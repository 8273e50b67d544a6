"""The tools of the MCP server. Each is a command of workbench with typed inputs; its result is that of `--json`.

No tool takes a setting by address: `--set` counts as the user's own input, and here a model speaks. All files are below
the root.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from workbench import __version__
from workbench_mcp.process import CommandFailed, run_command, run_json

_INSTRUCTIONS = """Optimize an LLM agent workflow (a YAML file) and prove the gain on sealed rows: validate,
estimate, then optimize; show and diff say what changed. Tools that are not read-only pay for models: respect the user's
budget.
A file that runs code must be trusted by the user, in a terminal of theirs: workbench trust FILE."""

File = Annotated[str, Field(description="path of a workflow file, below the server's root")]
Run = Annotated[str, Field(description="name of a run, a tag, or `last`", pattern=r"^[^-].*")]
Calls = Annotated[int | None, Field(ge=1, description="most calls of models, retries included; default: the file's")]
Usd = Annotated[float | None, Field(gt=0, description="most dollars; default: the file's")]
Minutes = Annotated[float | None, Field(gt=0, description="most minutes; default: the file's")]
Candidate = Annotated[str | None, Field(description="hash of a candidate; default: the winner", pattern=r"^[^-].*")]

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_PAYS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)


class Tools:
    """The tools, on the files of one folder and one run database."""

    def __init__(self, root: Path, db: Path):
        self.root = root.resolve()
        self.db = f"--db={self._inside(str(db))}"

    def _inside(self, path: str) -> str:
        """Return a path below the root, links followed. Raise ToolError."""
        found = (self.root / path).resolve()
        if not found.is_relative_to(self.root):
            raise ToolError(
                f"{path} lies outside of {self.root}, the root of this server (workbench agent mcp --root FOLDER)"
            )
        return str(found)

    def _result(self, path: str) -> str:
        """Return a path below the root for a result. Raise ToolError for one that other programs read as their own."""
        found = Path(self._inside(path))
        if found.suffix not in (".yaml", ".yml") or any(p.startswith(".") for p in found.relative_to(self.root).parts):
            raise ToolError(f"{path} is no name for a result: write NAME.yaml, in no folder that begins with a dot")
        return str(found)

    def _run(self, name: str) -> str:
        """Return the run with that name, tag or `last`, by the name that only runs have: commands also take paths.
        Raise ToolError."""
        from workbench.errors import StoreError
        from workbench.store import ReadOnlyStore

        try:
            with closing(ReadOnlyStore(self.db.removeprefix("--db="))) as store:
                return store.find_run(name)["run"]
        except StoreError as error:
            raise ToolError(str(error)) from None

    async def _ask(self, command: str, *arguments: str, progress: Context | None = None) -> Any:
        report = None if progress is None else progress.report_progress
        try:
            return await run_json(command.split(), arguments, self.root, report)
        except CommandFailed as failed:
            raise ToolError(str(failed)) from None

    async def validate(
        self,
        file: File,
        deep: Annotated[bool, Field(description="also look for what is valid and cannot work")] = True,
    ) -> dict[str, Any]:
        """Check a workflow file, its data and its metric. Runs no code of it, calls no model, costs nothing."""
        return await self._ask("validate", *(["--deep"] if deep else []), "--", self._inside(file))

    async def estimate(self, file: File) -> dict[str, Any]:
        """Estimate the cost of optimizing a file in calls, tokens, dollars and minutes, and the smallest gain that its
        test rows could show. Costs nothing."""
        return await self._ask("estimate", self.db, "--", self._inside(file))

    async def optimize(
        self,
        ctx: Context,
        file: File,
        budget_calls: Calls = None,
        budget_usd: Usd = None,
        budget_minutes: Minutes = None,
        seed: Annotated[int | None, Field(description="default: the file's")] = None,
        cache: Annotated[bool, Field(description="take answers of earlier runs")] = False,
        out: Annotated[str, Field(description="the result file, .yaml, below the root")] = "optimized.yaml",
    ) -> dict[str, Any]:
        """Improve a workflow within a budget and prove the gain on sealed rows. Pays for models, and may take long.

        Progress is told in calls. Cancelling it interrupts the run; `resume` goes on, and pays for no call twice. The
        result file keeps the baseline unless the gain is shown.
        """
        budget = _budget(budget_calls, budget_usd, budget_minutes)
        more = [f"--seed={seed}"] if seed is not None else []
        more += ["--cache"] if cache else []
        written = f"--out={self._result(out)}"
        return await self._ask(
            "optimize", "-v", self.db, written, *budget, *more, "--", self._inside(file), progress=ctx
        )

    async def resume(
        self,
        ctx: Context,
        run: Run = "last",
        budget_calls: Calls = None,
        budget_usd: Usd = None,
        budget_minutes: Minutes = None,
    ) -> dict[str, Any]:
        """Go on with a run that was cancelled, killed or ended by its budget. Recorded calls are not paid again."""
        budget = _budget(budget_calls, budget_usd, budget_minutes)
        return await self._ask("resume", "-v", self.db, *budget, "--", self._run(run), progress=ctx)

    async def evaluate(
        self,
        ctx: Context,
        file: File,
        split: Annotated[Literal["train", "val"], Field(description="split to score; test is sealed")] = "val",
        budget_calls: Calls = None,
        budget_usd: Usd = None,
    ) -> dict[str, Any]:
        """Score a workflow as it is, and keep the steps of each row for `show` and `attribute`. Pays for models."""
        budget = _budget(budget_calls, budget_usd, None)
        asked = ["-v", self.db, f"--split={split}", *budget, "--", self._inside(file)]
        return await self._ask("eval", *asked, progress=ctx)

    async def runs(self, most: Annotated[int, Field(ge=1, le=1000)] = 20) -> dict[str, Any]:
        """The runs in the database, newest first: status, score or gain, tags."""
        return {"runs": await self._ask("runs list", self.db, f"-n{most}")}

    async def show(
        self,
        run: Run = "last",
        failures: Annotated[bool, Field(description="rows that score below 1, with why")] = False,
        row: Annotated[str | None, Field(description="id of a row: its steps and prompts")] = None,
        calls: Annotated[int, Field(ge=0, le=200, description="number of its model calls to show")] = 0,
    ) -> dict[str, Any]:
        """A run: its report, its candidates, and on request failures, a row, or calls. Costs nothing."""
        asked = [*(["--failures"] if failures else []), *([f"--row={row}"] if row else [])]
        asked += [f"--calls={calls}"] if calls else []
        return await self._ask("show", self.db, *asked, "--", self._run(run))

    async def diff(self, run: Run = "last", candidate: Candidate = None) -> dict[str, Any]:
        """Show the changes that a candidate makes to the workflow: address, old and new value."""
        return {"changes": await self._ask("diff", self.db, "--", self._run(run), *([candidate] if candidate else []))}

    async def export(self, run: Run = "last", candidate: Candidate = None) -> dict[str, Any]:
        """A candidate as the text of a workflow file."""
        chosen = [f"--candidate={candidate}"] if candidate else []
        try:
            code, text = await run_command(["export", self.db, *chosen, "--", self._run(run)], self.root)
        except CommandFailed as failed:
            raise ToolError(str(failed)) from None
        if code:
            raise ToolError(text)
        return {"workflow": text}

    async def attribute(
        self,
        ctx: Context,
        run: Run = "last",
        method: Annotated[
            Literal["all-at-once", "step-by-step", "binary", "hybrid", "replay", "spectrum", "random", "majority"],
            Field(description="replay repeats failed rows with steps repaired, spectrum compares without a call"),
        ] = "spectrum",
        split: Annotated[
            Literal["train", "val", "test"] | None,
            Field(description="split to examine: val for a run of evaluate (default), test for one of optimize"),
        ] = None,
        calls: Annotated[int, Field(ge=1, description="most calls of models")] = 100,
        limit: Annotated[int | None, Field(ge=1, description="maximum number of failed rows")] = None,
    ) -> dict[str, Any]:
        """Which node and which step decided that rows of a run failed. All methods but spectrum, random and majority
        pay for models."""
        most = [*([f"--limit={limit}"] if limit else []), *([f"--split={split}"] if split else [])]
        asked = [] if method in ("spectrum", "random", "majority") else [f"--budget-calls={calls}"]
        of = ["--run", "--", self._run(run)]
        return await self._ask("agent attribute", self.db, f"--method={method}", *asked, *most, *of, progress=ctx)


def _budget(calls: int | None, usd: float | None, minutes: float | None) -> list[str]:
    given = {"calls": calls, "usd": usd, "minutes": minutes}
    return [f"--budget-{name}={value}" for name, value in given.items() if value is not None]


def make_server(root: Path, db: Path) -> MCPServer:
    """Create the server. root: the folder of the files that may be used. db: the run database, in it."""
    tools = Tools(root, db)
    server = MCPServer("workbench", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (tools.validate, tools.estimate, tools.runs, tools.show, tools.diff, tools.export):
        server.add_tool(tool, annotations=_READS)
    for tool in (tools.optimize, tools.resume, tools.evaluate, tools.attribute):
        server.add_tool(tool, annotations=_PAYS)
    return server
