"""What a file from elsewhere is asked about, and what looking at one may do."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

POWERS = "core/workbench/cli/trust/powers.py"
ASKING = "core/workbench/cli/trust/__init__.py"
TESTS = "tests/cli/test_trust.py"
TRUST: list[Mutant] = [
    *changes_of(
        POWERS,
        TESTS,
        ("for server in servers if not is_loopback(server)}", "for server in servers if is_loopback(server)}", "hosts"),
        ("names |= set(_VARIABLE.findall(text))", "pass", "headers name no variables"),
        ("self.powers.digests[os.path.relpath(file, self.start)] =", "_ =", "the Python of a file may change"),
        ("if key in _DATA and isinstance", "if key == 'file' and isinstance", "only one file of rows counts"),
        ("if reader not in _PATH_READERS:", "if False:", "readers of plugins"),
        ("self.read(source.value, source.text, path.parent, name)", "pass", "files referred to"),
        (
            'if place.strip("./~ ") and not path.is_relative_to(base):',
            "if False:",
            "folders of databases elsewhere",
        ),
        ("for part in (*_mappings(value), *_mappings(searched)):", "for part in _mappings(value):", "what is searched"),
        ("if any(names or servers for names, servers in tried):", "if False:", "addresses that are searched"),
        ('return "/" not in rest or', "return", "formats of the hub's library"),
        ("return filter(is_dict, walk(value))", "return filter(is_dict, [value])", "only the top is read"),
        ("if text.startswith(SERVER):", "if False:", "servers of tools"),
        ('if command := part.get("command"):', "if command := None:", "commands of settings"),
        ('":" in str(settings.get("id"))', '":" in ""', "modules of worlds"),
        ("return path.expanduser().resolve().is_relative_to", "return path.expanduser().is_relative_to", "links"),
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
        ("    if _lies_in_trusted_folder(Path(db)):", "    if True:", "runs are never asked about"),
    ),
    *changes_of(
        "core/workbench/type_guards.py",
        TESTS,
        ("waiting += part.values()", "pass", "mappings inside mappings"),
        ("            waiting += part\n", "            pass\n", "lists"),
    ),
    *changes_of(
        "core/workbench/code_outline.py",
        TESTS,
        ('if name not in names and not names.keys() & {"*", "__getattr__"}:', "if False:", "any name is there"),
        (
            "return Outline(name, ast.get_docstring(found), _signature(found.args))",
            "return Outline(name)",
            "parameters",
        ),
    ),
]
