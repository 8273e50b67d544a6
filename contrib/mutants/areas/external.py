"""External agents: what they are given, their slots, and what is recorded of their rows."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

FOLDER = "plugins/workbench_external/"
TESTS = "tests/plugins/external/"
ROWS, PATCHES, TEMPLATES = (f"{TESTS}test_{name}.py" for name in ("rows", "patches", "templates"))
RUNS, FUNCTIONS, SERVICES = (f"{TESTS}test_{name}.py" for name in ("runs", "functions", "services"))
ISOLATION = f"{TESTS}test_isolation.py"
RESTLESS = nodes_of(RUNS, "test_a_row_that_has_ended_is_not_run_again_though_its_agent_asks_otherwise_each_time")

EXTERNAL: list[Mutant] = [
    *changes_of(
        f"{FOLDER}slots/patches.py",
        (PATCHES,),
        ("else slot.text, filled)", "else slot.text, {})", "what varies in a system message is lost"),
        ('patched.missed.append(f"system: {text[:_SHOWN]}")', "pass", "prompts that match no slot are not told"),
        ("return None if values is None else fill(text, values)", "return text", "a changed description is replaced"),
        ("patched.messages[place:place] = turns", "pass", "demos are not shown"),
        (
            '"schema": described["parameters"]',
            '"schema": schema["parameters"]',
            "descriptions of an answer's fields are not replaced",
        ),
    ),
    *changes_of(
        f"{FOLDER}apply.py",
        (f"{TESTS}test_apply.py", f"{TESTS}test_sources.py"),
        ("if not slot.match or held", "if held", "a file is written over whatever it holds"),
        ("if len(places) > 1:", "if False:", "of several places one is written"),
        ("check_written(place, file, new, text)", "pass", "what would be read as another text is written"),
    ),
    *changes_of(
        f"{FOLDER}write_back.py",
        (f"{TESTS}test_trial.py",),
        ("if not verdict.differs:", "if True:", "what the changed agent sends otherwise is written"),
        ("if verdict.unsent:", "if False:", "a text that was never sent spoils the others"),
        ("or not all(entry.has_further_way for entry in wrong)", "", "a text is refused for what another one did"),
        ("in _by_place(chosen.values()):", "in ([one] for one in chosen.values()):", "a text told twice is refused"),
    ),
    *changes_of(
        f"{FOLDER}slots/cut.py",
        (f"{TESTS}test_cut.py",),
        ("if vendor or not is_vendors", "if True or not is_vendors", "texts of a framework are searched"),
        ("and not _NAME.fullmatch(said)", "", "the name of a file is rewritten"),
    ),
    *changes_of(
        f"{FOLDER}slots/template.py",
        (TEMPLATES,),
        ("if name not in used and value.strip()", "if False", "what a new text leaves out is lost"),
        ("not text.endswith(last)", "False", "a template matches texts that end otherwise"),
    ),
    *changes_of(
        f"{FOLDER}slots/discover.py",
        (TEMPLATES,),
        ("return not together or constant >= 0.9", "return constant >= 0", "two call sites are one"),
    ),
    *changes_of(
        f"{FOLDER}session.py",
        (ROWS,),
        ("asking.draw(self._answer, first)", "asking.draw(self._answer)", "equal requests of a row are one draw"),
        ("if self.asked > self.max_calls:", "if False:", "a row has no bound on its calls"),
    ),
    *changes_of(
        f"{FOLDER}functions.py",
        (FUNCTIONS,),
        ("found += self._before.get(_identity(message), ())", "pass", "what the agent has not seen is forgotten"),
        (
            "calls = tuple(call for call in response.tool_calls if call",
            "calls = tuple(call for call in () if call",
            "nobody runs the functions",
        ),
        ('if choice != "auto" or ask', "if ask", "functions are offered where the agent wants a certain call"),
        ("            again()\n", "", "calls that the agent does not see have no bound"),
        ("if tool.name not in taken", "if tool.name", "a function hides a tool of the agent"),
    ),
    *changes_of(
        f"{FOLDER}started.py",
        (SERVICES,),
        ("if self.row is None:", "if False:", "what a service asks after its row is answered"),
        ('keep = error.kind == "exit"', "keep = True", "a service that is still at work gets the next row"),
        ("one.process.returncode is not None", "False", "a service that has ended gets the next row"),
        ("if await _listens(url):", "if False:", "another program gets the rows"),
    ),
    *changes_of(
        f"{FOLDER}home.py",
        (ISOLATION,),
        ('"XDG_CACHE_HOME": ".cache"', '"XDG_CACHE_HOME": "/tmp"', "a cache outlives the row"),
        ("if config.image is None and (shared", "if (shared", "a container's home counts as one of all rows"),
        ('.startswith(("/", "~", "$"))', "", "a folder of the row counts as one of all rows"),
        ('if config.state == "kept":', "if False:", "an agent that keeps its state has a proof"),
    ),
    *changes_of(
        f"{FOLDER}exchange.py",
        (ISOLATION,),
        ('if config.state != "kept":', "if False:", "an agent remembers in the user's home"),
    ),
    *changes_of(
        f"{FOLDER}started.py",
        (ISOLATION,),
        ("if keep and not self.anew and", "if keep and", "a fresh service has many rows"),
    ),
    *changes_of(
        f"{FOLDER}hub.py",
        (ISOLATION,),
        ('self.leftovers.count(node, notes.get("left_beside", ()))', "pass", "what an agent leaves is not noticed"),
        ("self.served[node] += remembers", "pass", "nobody hears that a service may remember"),
    ),
    *changes_of(
        "core/workbench/kit/acting/beside.py",
        (ISOLATION,),
        ("if len(changes) >= LEAST_CHANGES", "", "an edit by hand ends the claim"),
        ("before.keys() | now.keys()", "before.keys() & now.keys()", "new files are not noticed"),
        ("if not _is_of_workbench(Path(name))", "", "another run's result ends the claim"),
    ),
    *changes_of(
        "core/workbench/kit/acting/tools.py",
        ("tests/plugins/tools/test_leftovers.py",),
        (
            'leftovers.count(ctx.node, found.get("left_beside", ()))',
            "pass",
            "a database that rows change is not noticed",
        ),
    ),
    *changes_of(
        f"{FOLDER}process.py",
        (ROWS,),
        ("os.killpg(process.pid, signal.SIGKILL)", "process.kill()", "what an agent started lives on"),
    ),
    *changes_of(
        f"{FOLDER}exchange.py",
        (ROWS,),
        ("if _INHERITED.fullmatch(n)", "if n", "keys of ours reach the agent"),
        (
            'gateway.get(name, os.environ.get(name, ""))',
            'os.environ.get(name, "")',
            "a variable of the agent's own does not lead to the gateway",
        ),
        ('    "CREWAI_TRACING_ENABLED": "false",\n', "", "a framework sends what rows hold to its maker"),
    ),
    *changes_of(
        f"{FOLDER}node.py",
        (ROWS,),
        ('dict.fromkeys(self.config.env, "")', "{}", "an agent of another provider goes past the gateway"),
        (
            "session.last is not None and session.last.kind.infrastructure",
            "False",
            "an outage counts as a failure of the agent",
        ),
    ),
    *changes_of(
        f"{FOLDER}slots/files.py",
        (f"{TESTS}test_files.py",),
        ("if not is_as_found(folder / slot.name, slot):", "if False:", "a file that was changed since is replaced"),
        ("if head is None or text", "if text", "a skill loses the head that it is found by"),
    ),
    *changes_of(
        f"{FOLDER}workspace.py",
        (f"{TESTS}test_files.py",),
        ("or name.startswith(runs)", "", "each row gets a copy of the run database"),
    ),
    *changes_of(
        f"{FOLDER}slots/discover.py",
        (TEMPLATES,),
        ("if _differs(group) and _differs(other) and", "if", "prompts of several rows that begin alike are one"),
        ("found[max(frames)[1]] |= group", "found.append(dict(group))", "each row's passages are a slot of their own"),
    ),
    *changes_of(
        f"{FOLDER}exchange.py",
        nodes_of(ROWS, "test_a_program_that_is_not_copied_with_the_folder_runs_where_it_is"),
        ("path if NEVER_COPIED & {*inside.parts} else", "", "a program of the agent's environment is not found"),
    ),
    *changes_of(
        "core/workbench/runtime/program.py",
        RESTLESS,
        (
            "        if not ran:\n            await self._recall(found)",
            "        pass",
            "calls of a recorded row are lost",
        ),
    ),
    *changes_of(
        f"{FOLDER}session.py",
        RESTLESS,
        ("if before and request not in before", "if False", "an agent that asks otherwise is not told of"),
    ),
]
