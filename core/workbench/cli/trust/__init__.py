"""Trust in workflow files: which ones the user allows to run Python, start programs, and the like.

A file is trusted by the digest of its content, so a changed one needs a new answer, or by a folder that contains it.
Both are stored next to the user's config. WORKBENCH_TRUST names folders, for machines where nobody can be asked. Python
that calls `workbench` is not asked: it has these rights already.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import choose, echo_json, fail, say
from workbench.cli.options import JSON

if TYPE_CHECKING:
    from workbench.cli.trust.needs import Needs
    from workbench.spec import Consent, Source

VARIABLE = "WORKBENCH_TRUST"
#: The most files behind a trusted one whose digests are stored, to name those that changed.
_MAX_MARKS = 2000


def require_trust(
    file: Path,
    *sets: Sequence[tuple[str, Any]],
    called: bool = False,
    further: Callable[[Source], object] = bool,
) -> Source:
    """Ask the user once about a workflow file that does more than call its models, and return it: the approved content
    is what must run, and nothing else passes the doors of `workbench.spec` until the command ends.

    sets: lists of the user's own changes of it, which are not asked about. called: data, metric, search and optimizers
    of the file are not used. further: loads what the file says beyond a workflow. Raises SpecError if the answer is no,
    or nobody can be asked.
    """
    from workbench.cli.trust.needs import collect_changed
    from workbench.spec import Consent, load_yaml_file

    source = load_yaml_file(file)
    if _lies_in_trusted_folder(file):
        _hold(Consent(file.resolve().parent, everything=True))
        return source
    asked = collect_changed(source, sets, called, further)
    if called and asked and (whole := collect_changed(source, sets)).digest in _known()["files"]:
        asked = whole
    _ask(asked, str(file), file, f"`workbench trust {one_line(file)}`, or ")
    _hold(asked.consent)
    return source


def unlooked(source: Source, sets: Sequence[tuple[str, Any]]) -> tuple[list[str], bool]:
    """List what an untrusted file names outside its folder, which may not be read without asking, and whether these are
    only its rows. Until the command ends, nothing there is read. sets: the user's own changes. Raises SpecError."""
    from workbench.cli.trust.needs import collect_changed

    if _lies_in_trusted_folder(Path(source.file)):
        return [], True
    if (needs := collect_changed(source, [sets])).digest in _known()["files"]:
        return [], True
    _hold(needs.without_outside())
    return sorted(found := needs.outside()), set(found.values()) <= {"data"}


def require_trust_in_run(run: str, db: str, sets: Sequence[tuple[str, Any]] = ()) -> str:
    """Require trust for the workflow file that a run stores, with the flags of its start. Returns the name of the run.
    The folder of the database counts, not the folder that the run names. Raises StoreError, too."""
    from workbench.base.files import content_digest
    from workbench.cli.trust.needs import collect_changed, collect_needs
    from workbench.errors import SpecError
    from workbench.run import content_of_stored, name_of_stored, read_stored_source
    from workbench.spec import Consent, load_yaml_file
    from workbench.store import ReadOnlyStore

    with ReadOnlyStore(db) as store:
        row = store.find_run(run)
        if row["file"] is None:  # it is no run of `optimize`, and `resume` refuses it
            return row["run"]
        if _lies_in_trusted_folder(Path(db)):
            _hold(Consent(Path(row["file"]).parent.resolve(), everything=True))
            return row["run"]
        written, base, started = read_stored_source(row)
        content = content_of_stored(row)
    needs = collect_needs(written)
    with_flags = collect_changed(started, [sets])
    text = f"{written.text}\0{json.dumps(started.value, sort_keys=True, default=str)}"
    with_flags.digests["."] = content_digest(text.encode("utf-8", "surrogatepass"))
    here = base.resolve().is_relative_to(Path(db).resolve().parent)
    with suppress(SpecError):
        here = here or load_yaml_file(written.file).text == written.text
    if not here:
        for found in (needs, with_flags):  # otherwise a database could claim to be from the root folder
            found.add("reads outside its folder", str(base), str(base))
    _ask(needs if needs.found == with_flags.found else with_flags, f"the workflow of run {row['run']}", Path(db))
    consent = with_flags.consent
    consent.contents[name_of_stored(row)] = content_digest(content)
    _hold(consent)
    return row["run"]


def _hold(consent: Consent) -> None:
    """Guard the doors until the command ends."""
    from workbench.spec import guard, unguard

    if (command := click.get_current_context(silent=True)) is not None:
        guard(consent)
        command.call_on_close(unguard)


def trust_result(file: Source | Path, result: Path) -> None:
    """Trust the file that a run wrote: its capabilities come from the trusted file that the run started from."""
    from workbench.cli.trust.needs import collect_needs

    if not _lies_in_trusted_folder(result) and (needs := collect_needs(result)) and collect_needs(file).covers(needs):
        _remember_file(needs, result)


def trust_file(file: Path) -> Needs:
    """Trust a file in its current form, because the user named it or the command has just written it. Returns its
    capabilities. Raises SpecError."""
    from workbench.cli.trust.needs import collect_needs

    needs = collect_needs(file)
    _remember_file(needs, file)
    return needs


def _ask(needs: Needs, name: str, place: Path, way: str = "") -> None:
    """Ask the user. way: how to trust it without a question, other than by its folder."""
    from workbench.errors import SpecError

    if not needs or needs.digest in _known()["files"]:
        return
    folder = place.resolve().parent
    state = _describe_state(needs, place)
    if not _somebody_is_there():
        raise SpecError(
            f"{one_line(name)} {state}, and nobody can be asked here. It {'; it '.join(needs.lines())}",
            hint=f"Read it, then run {way}`workbench trust --folder FOLDER` for all files in a folder. "
            f"Where nobody can be asked, set {VARIABLE}=FOLDER.",
        )
    say(f"{one_line(name)} {state}. Besides calling its models it", err=True)
    for line in needs.lines():
        say(f"  {line}", err=True)
    say(
        f"Trust it?\n  yes: in its current form\n  folder: all files in {one_line(folder)}, now and when they change",
        err=True,
    )
    choice = choose("yes, folder or no", ("yes", "folder", "no", "y", "f", "n"), default="no")[0]
    if choice == "n":
        raise SpecError(f"{one_line(name)} is not trusted", hint="Nothing of it was run.")
    if choice == "y":
        _remember_file(needs, place)
    else:
        _remember_folder(folder)


def _describe_state(needs: Needs, place: Path) -> str:
    """Say that a file is not trusted, or what has changed since it was."""
    known = _known()
    if (path := str(place.resolve())) not in known["files"].values():
        return "is not trusted yet"
    marks, now = json.loads(known["marks"].get(path, "{}")), _marks(needs)
    told = [f"{one_line(name)} differs" for name, mark in now.items() if name != "." and marks.get(name, mark) != mark]
    told += [f"{one_line(name)} is new" for name in now if name not in marks]
    told += [f"{one_line(name)} is gone" for name in marks if name not in now]
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    what = f": {', '.join(told[:3])}{more}" if marks else ", or a file that it depends on has"
    return f"has changed since it was trusted{what}"


def _marks(needs: Needs) -> dict[str, str]:
    return {name: mark[:12] for name, mark in [*needs.digests.items()][:_MAX_MARKS]}


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _lies_in_trusted_folder(path: Path) -> bool:
    given = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    folders = [Path(part).expanduser().resolve() for part in (*given, *_known()["folders"])]
    return any(path.resolve().is_relative_to(folder) for folder in folders)


def _list_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "workbench" / "trusted.json"


def _known() -> dict[str, dict[str, str]]:
    """Read the trusted items: `files`, digest to path; `folders`, path to ""; and `marks`, by path the beginnings of
    digests of the files behind each, as JSON. Raises SpecError if they cannot be read."""
    from workbench.errors import SpecError

    path = _list_file()
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault("marks", {})  # earlier versions did not write it
        return {kind: {str(k): str(v) for k, v in found[kind].items()} for kind in ("files", "folders", "marks")}
    except FileNotFoundError:
        return {"files": {}, "folders": {}, "marks": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"the list of trusted files, {path}, cannot be read: {error}", hint="Remove it.") from None


def _save(known: dict[str, dict[str, str]]) -> None:
    from workbench.base.files import write_whole

    write_whole(_list_file(), json.dumps(known, indent=1, sort_keys=True) + "\n")


def _remember_folder(folder: Path) -> None:
    known = _known()
    known["folders"][str(folder)] = ""
    _save(known)


def _remember_file(needs: Needs, file: Path) -> None:
    known, place = _known(), str(file.resolve())
    known["files"] = {digest: old for digest, old in known["files"].items() if old != place}
    known["files"][needs.digest], known["marks"][place] = place, json.dumps(_marks(needs))
    _save(known)


def _forget(path: Path) -> bool:
    known, place = _known(), str(path.resolve())
    files = {digest: file for digest, file in known["files"].items() if file != place}
    folders = {folder: "" for folder in known["folders"] if folder != place}
    if found := (files, folders) != (known["files"], known["folders"]):
        _save({"files": files, "folders": folders, "marks": {p: m for p, m in known["marks"].items() if p != place}})
    return found


@click.command("trust")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--folder",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Trust all workflow files in this folder, now and when they change. Repeatable.",
)
@click.option("--forget", is_flag=True, help="Stop trusting these files and folders.")
@JSON
def trust_command(files: tuple[Path, ...], folders: tuple[Path, ...], forget: bool, as_json: bool) -> None:
    """Trust workflow files to run code and use the network.

    Shows what each of FILES does besides calling its models: run Python, start programs, call addresses, send
    environment variables, or read data outside its folder. Commands that run a workflow ask about such a file unless it
    is trusted, and ask again when it changes. Without arguments, lists the trusted files and folders.
    """
    for place in (*files, *folders) if forget else ():
        if not _forget(place):
            fail(f"{one_line(place)} is not on the list of trusted files and folders", 2)
        if _lies_in_trusted_folder(place):
            say(f"{one_line(place)} is still in a trusted folder", err=True)
    for folder in () if forget else folders:
        _remember_folder(folder.resolve())
        say(f"trusted: every workflow file in {one_line(folder.resolve())}", err=as_json)
    for file in () if forget else files:
        needs = trust_file(file)
        say(f"trusted in its current form: {one_line(file)}", err=as_json)
        for line in needs.lines() or ["only calls its models"]:
            say(f"  {line}", err=as_json)
    known = _known()
    if as_json:
        return echo_json({"files": sorted(known["files"].values()), "folders": sorted(known["folders"])})
    if not files and not folders:
        for place in (*sorted(known["folders"]), *sorted(known["files"].values())):
            say(one_line(place))
        if not known["files"] and not known["folders"]:
            say("Nothing is trusted yet.")
