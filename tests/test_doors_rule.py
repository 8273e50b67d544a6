"""Nothing reaches Python, programs or addresses beside the doors (`workbench.spec.doors`), without a reason."""

from __future__ import annotations

import ast

from tests.helpers.source import ROOT, files, parsed

#: Modules that start programs, connect, or run Python.
MODULES = (
    "subprocess",
    "multiprocessing",
    "pty",
    "runpy",
    "socket",
    "http.client",
    "urllib.request",
    "httpx",
    "aiohttp",
)
MODULES += ("requests", "websockets")
#: Functions that do, by the module that they are called on; "" for a name of its own.
CALLS = {
    "": ("exec", "eval", "__import__", "import_module", "stdio_client", "ProcessPoolExecutor"),
    "importlib": ("import_module",),
    "loader": ("exec_module",),
    "asyncio": ("create_subprocess_exec", "create_subprocess_shell", "open_connection", "start_server"),
    "anyio": ("open_process", "run_process"),
    "os": ("system", "popen", "fork", "execv", "execve", "execvp", "execvpe", "posix_spawn", "spawnv", "spawnvp"),
}

DOOR = "it passes a door with `now=True` before"
OURS = "a child process with a program of ours, without words of a file"
INSIDE = "it runs in a child process that passed a door, or in the sandbox"
SERVER = "it listens for a command of the user, or for its own children"
MODEL = "a provider of models, which are named in the file and need no question"
NAMES = "names in our own source"

#: The files that reach something, what, and why that is right. It only shrinks.
ALLOWED: dict[str, tuple[str, str]] = {
    # core
    "core/workbench/__init__.py": ("import_module", NAMES),
    "core/workbench/base/signals.py": ("subprocess", OURS),
    "core/workbench/cli/tree.py": ("import_module", NAMES),
    "core/workbench/inference/bundle.py": ("subprocess", "git, which lists the files of the user's repository"),
    "core/workbench/plugins/manager.py": (
        "import_module, subprocess",
        "installed plugins, and a trial of their import",
    ),
    "core/workbench/proof/report.py": ("import_module", NAMES),
    "core/workbench/spec/doors.py": ("socket", "it reads addresses as C libraries do, and connects nowhere"),
    "core/workbench/spec/patterns.py": ("import_module", NAMES),
    "core/workbench/spec/user_code.py": ("exec, import_module", DOOR),
    # agents
    "plugins/agents/workbench_environments/confined_sql.py": ("multiprocessing, socket, subprocess", OURS),
    "plugins/agents/workbench_environments/sql_process.py": ("exec_module, fork, multiprocessing, socket", INSIDE),
    "plugins/agents/workbench_external/container.py": ("subprocess", DOOR),
    "plugins/agents/workbench_external/gateway/server.py": ("aiohttp, socket", SERVER),
    "plugins/agents/workbench_external/gateway/streaming.py": ("aiohttp", SERVER),
    "plugins/agents/workbench_external/process.py": ("create_subprocess_exec", DOOR),
    "plugins/agents/workbench_external/service.py": ("aiohttp", DOOR),
    "plugins/agents/workbench_external/started.py": ("open_connection, socket, subprocess", DOOR),
    "plugins/agents/workbench_external/worker.py": ("exec_module, import_module, stdio_client", INSIDE),
    "plugins/agents/workbench_worlds/driver.py": ("exec_module, fork, import_module, socket, subprocess", INSIDE),
    "plugins/agents/workbench_worlds/interpreter.py": ("subprocess", DOOR),
    "plugins/agents/workbench_worlds/process.py": ("open_connection, socket, subprocess", DOOR),
    "plugins/agents/workbench_worlds/tasks.py": ("subprocess", DOOR),
    "plugins/agents/workbench_worlds/worlds/browsergym.py": ("import_module", INSIDE),
    "plugins/agents/workbench_worlds/worlds/intercode_bash.py": ("subprocess", INSIDE),
    "plugins/agents/workbench_worlds/worlds/tau2.py": ("import_module", INSIDE),
    "plugins/agents/workbench_worlds/worlds/textworld.py": ("subprocess", INSIDE),
    "plugins/agents/workbench_worlds/worlds/workspace.py": ("subprocess", INSIDE),
    # kit, research
    "plugins/kit/workbench_kit/acting/bound_function.py": ("eval", "annotations of a function that was loaded"),
    "plugins/kit/workbench_kit/acting/mcp_session.py": ("stdio_client", DOOR),
    "plugins/kit/workbench_kit/acting/patterns.py": ("import_module", NAMES),
    "plugins/kit/workbench_kit/lms/bounded_http.py": ("import_module", NAMES),
    "plugins/research/workbench_bench/run_world.py": ("ProcessPoolExecutor, multiprocessing", OURS),
    # scale: the executor itself passes a door
    "plugins/scale/workbench_ray/executor.py": ("socket", DOOR),
    "plugins/scale/workbench_slurm/executor.py": ("socket", SERVER),
    "plugins/scale/workbench_workers/sockets.py": ("multiprocessing, socket", SERVER),
    "plugins/scale/workbench_workers/worker.py": ("socket", "the name of the machine"),
    # standard
    "plugins/standard/workbench_mcp/process.py": ("open_process, subprocess", OURS),
    "plugins/standard/workbench_openai/server.py": ("aiohttp, socket, urllib.request", MODEL),
    "plugins/standard/workbench_readers/arrow_rows.py": ("import_module", NAMES),
    "plugins/standard/workbench_readers/common.py": ("import_module", NAMES),
    "plugins/standard/workbench_sandbox/attacks.py": ("socket", INSIDE),
    "plugins/standard/workbench_sandbox/calls.py": ("socket", INSIDE),
    "plugins/standard/workbench_sandbox/launch.py": ("execv", INSIDE),
    "plugins/standard/workbench_sandbox/linux.py": ("socket, subprocess", OURS),
    "plugins/standard/workbench_sandbox/prepare.py": ("import_module", INSIDE),
    "plugins/standard/workbench_sandbox/pyodide.py": ("subprocess", OURS),
    "plugins/standard/workbench_sandbox/runner.py": ("exec", INSIDE),
    "plugins/standard/workbench_sandbox/wasm.py": ("create_subprocess_exec", OURS),
    "plugins/standard/workbench_sandbox/watch.py": ("create_subprocess_exec", OURS),
    "plugins/standard/workbench_sandbox/zygote.py": ("exec_module, fork, import_module, socket", INSIDE),
    # training
    "plugins/training/workbench_engine/chat_template.py": ("subprocess", OURS),
    "plugins/training/workbench_engine/chat_template_process.py": ("exec_module", INSIDE),
    "plugins/training/workbench_training/extension.py": ("import_module", NAMES),
    "plugins/training/workbench_training/serving/vllm_client.py": ("aiohttp", "a server that `enter_server` passed"),
    "plugins/training/workbench_training/serving/vllm_server.py": ("aiohttp, create_subprocess_exec, socket", DOOR),
    # watch, testing
    "plugins/watch/workbench_import/imported.py": ("import_module", "a file that the user imports with --run-code"),
    "plugins/watch/workbench_serve/server.py": ("socket", SERVER),
    "plugins/watch/workbench_view/server/access.py": ("socket", SERVER),
    "plugins/watch/workbench_view/server/listen.py": ("socket", SERVER),
    "plugins/watch/workbench_view/server/site.py": ("import_module", NAMES),
    "plugins/watch/workbench_view/server/starting.py": ("subprocess", "a command of ours, which asks itself"),
    "plugins/testing/workbench_testing/__init__.py": ("import_module", NAMES),
    "plugins/testing/workbench_testing/executors.py": ("socket", "the suite of executors, in tests"),
}


def reached(tree: ast.AST) -> set[str]:
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            inside = [f"{node.module}.{one.name}" for one in node.names] if isinstance(node, ast.ImportFrom) else []
            names = inside or [one.name for one in node.names]
            found |= {module for module in MODULES for name in names if f"{name}.".startswith(f"{module}.")}
        elif isinstance(node, ast.Call):
            on, name = "", getattr(node.func, "id", "")
            if isinstance(node.func, ast.Attribute):
                on, name = getattr(node.func.value, "id", getattr(node.func.value, "attr", "?")), node.func.attr
            found |= {name} & {*CALLS.get(on, ())}
    return found


def test_nothing_reaches_out_beside_the_doors() -> None:
    found = {str(path.relative_to(ROOT)): reached(parsed(path)) for path in files("core", "plugins")}
    told = {name: ", ".join(sorted(what)) for name, what in found.items() if what}
    assert told == {name: what for name, (what, _) in ALLOWED.items()}, (
        "pass a door of workbench.spec instead: load_python, start_program, connect, read_outside"
    )
