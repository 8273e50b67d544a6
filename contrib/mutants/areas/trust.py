"""What a file from elsewhere is asked about, and what looking at one may do."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

POWERS = "core/workbench/spec/powers.py"
FOUND = "core/workbench/task/found_powers.py"
SHOWN = "core/workbench/cli/trust/powers.py"
ASKING = "core/workbench/cli/trust/__init__.py"
TESTS = "tests/cli/test_trust.py"
FORMS = "tests/cli/test_powers.py"
ASKED = "tests/cli/test_asked_about.py"
DECLARED = "tests/cli/test_declared_powers.py"
TRUST: list[Mutant] = [
    *changes_of(
        FOUND,
        TESTS,
        ("for server in servers if not is_loopback(server)}", "for server in servers if is_loopback(server)}", "hosts"),
        ("        names |= set(VARIABLE.findall(one.value))\n", "", "headers name no variables"),
        (
            "for key in _DATA if is_dict(data) else ():",
            "for key in _DATA[:1] if is_dict(data) else ():",
            "one file of rows",
        ),
        ('if reader not in plugins().names("readers"):', "if False:", "readers of plugins"),
        ("        self.read(source.value, path.parent, called=True)\n", "", "files referred to"),
        ("for tree in () if called else _searched(used):", "for tree in ():", "what is searched"),
    ),
    *changes_of(
        FOUND,
        FORMS,
        (
            "if any(searched and (names or servers)",
            "if any(False and (names or servers)",
            "addresses that are searched",
        ),
        ("        tree = node_tree(raw)\n", "        tree = dict(raw, kind=next(iter(raw)))\n", "one form of a node"),
        ("if any(searched for *_, searched in self._worlds):", "if False:", "environments that are searched"),
        ("in referred_functions(setting))", "in ())", "demos like nodes"),
        ("return [*(choice if is_list(choice) else ()), *", "return [*", "choices written out"),
        ('if describe_host(server).startswith("a service beside"):', "if False:", "models beside the machine"),
    ),
    *changes_of(
        POWERS,
        TESTS,
        ("        elif one.value.startswith(SERVER):", "        elif False:", "servers of tools"),
        ("    if len(text) > _LONGEST_PATH:", "    if False:", "long paths"),
    ),
    *changes_of(
        POWERS,
        DECLARED,
        ("    if powers is None:\n", "    if False:\n", "what says nothing is loaded"),
        ('return "Config" in vars(cls) or', "return", "heirs with more settings"),
    ),
    *changes_of(
        POWERS,
        FORMS,
        ("return path.expanduser().resolve().is_relative_to", "return path.expanduser().is_relative_to", "links"),
        ('    if host == "localhost" or', "    if False or", "names of this machine"),
        ("socket.inet_ntoa(socket.inet_aton(host)) if _OF_IPV4.fullmatch(host) else host", "host", "odd addresses"),
    ),
    *changes_of(
        SHOWN,
        ASKED,
        ("            powers.digests |= _leaned_on(power, base)\n", "", "an edited agent"),
        ("                waiting.append(path)\n", "                pass\n", "folders in a folder"),
        ("elif path.name in NEVER_COPIED or _is_written_by_runs(path, base):", "elif False:", "databases count"),
    ),
    *changes_of(
        "core/workbench/spec/asked.py",
        ASKED,
        ("if _asked.get(name, found :=", "if _asked.get('', found :=", "what was asked about may be replaced"),
    ),
    *changes_of(
        "core/workbench/workflow/workflow.py",
        FORMS,
        (
            '    if instead != "code":\n        node.__class__',
            "    if False:\n        node.__class__",
            "nodes forget how they were read",
        ),
    ),
    *changes_of(
        ASKING,
        ASKED,
        ("        _hold(asked.contents)\n", "", "files are held to what was asked about"),
        (
            "    return sorted(found), set(found.values())",
            "    return [], set(found.values())",
            "validate looks elsewhere",
        ),
    ),
    *changes_of(
        ASKING,
        TESTS,
        ('or powers.digest in _known()["files"]:', "or _known()['files']:", "one trusted file is all files"),
        (
            "is_relative_to(folder) for folder in folders",
            "match('*') for folder in folders",
            "one folder is all folders",
        ),
        ("if powers.found == with_flags.found else with_flags", "", "flags of a stored run are not asked about"),
        ("and file_powers(file).covers(powers):", "and file_powers(file):", "results do more"),
        ('if choice == "n":', 'if choice == "never":', "no is yes"),
        ("    if not _somebody_is_there():", "    if _somebody_is_there():", "nobody is asked"),
        ("        if _lies_in_trusted_folder(Path(db)) or", "        if True or", "runs are never asked about"),
    ),
    *changes_of(
        "core/workbench/base/type_guards.py",
        TESTS,
        ("waiting += part.values()", "pass", "mappings inside mappings"),
        ("            waiting += part\n", "            pass\n", "lists"),
    ),
    *changes_of(
        "core/workbench/base/code_outline.py",
        TESTS,
        ('if name not in names and not names.keys() & {"*", "__getattr__"}:', "if False:", "any name is there"),
        (
            "return Outline(name, ast.get_docstring(found), _signature(found.args))",
            "return Outline(name)",
            "parameters",
        ),
    ),
]
