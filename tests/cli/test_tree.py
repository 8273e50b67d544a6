"""The commands: few, under headings, each summary whole, and one name for the same option."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import workbench
from workbench.cli import cli
from workbench.cli.tree import HEADINGS, OTHERS
from workbench.plugins import Plugins, plugins


def commands(group: click.Group = cli, words: str = "workbench") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{words} {name}")


def summaries(*words: str) -> dict[str, list[str]]:
    """The lines of a help text by heading."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output.splitlines():
        heading = line.rstrip(":") if line.endswith(":") and not line.startswith(" ") else heading
        if line.startswith("  ") and heading:
            found.setdefault(heading, []).append(line)
    return {heading: lines for heading, lines in found.items() if heading != "Options"}


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Plugins, dict[str, str]]]:
    """A plugin of somebody else. Where its commands go is asked for by name: {command: heading or group}."""
    places: dict[str, str] = {}

    class Stranger:
        @workbench.hookimpl
        def register_commands(self, cli: click.Group) -> None:
            for name, under in places.items():
                command = click.Command(name, help="Do something.")
                cli.add_command(command, **({"under": under} if under else {}))  # type: ignore[call-arg]

    found = Plugins(extra=[("stranger", Stranger())])
    monkeypatch.setattr("workbench.plugins.plugins", lambda: found)
    monkeypatch.setattr(cli, "placed", None)
    yield found, places
    plugins.cache_clear()


def test_there_are_at_most_25_commands_in_five_groups() -> None:
    # The 25th is `redteam`: who looks for it looks for that word, and an option of `eval` would hide it.
    found = summaries()
    assert list(found) == list(HEADINGS) and sum(map(len, found.values())) <= 25


@pytest.mark.parametrize("words", [(), ("data",), ("plugin",), ("agent",), ("runs",), ("agent", "functions")])
def test_each_summary_is_a_whole_line_of_80_columns(words: tuple[str, ...]) -> None:
    for line in (line for lines in summaries(*words).values() for line in lines):
        assert line[2] != " " and line.endswith(".") and not line.endswith("..."), line


def test_commands_of_a_plugin_stand_where_it_says(stranger: tuple[Plugins, dict[str, str]]) -> None:
    stranger[1].update(own="", seen="Look", trace="agent")
    assert [line.split()[0] for line in summaries()[OTHERS]] == ["own"]
    assert [line.split()[0] for line in summaries()["Look"]][-1] == "seen"
    assert [line.split()[0] for line in summaries("agent")["Commands"]] == ["trace"]
    assert CliRunner().invoke(cli, ["agent", "trace"]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "under", "said"),
    [
        ("own", "Nowhere", "no heading or command group 'Nowhere'; there are: Begin, Measure"),
        ("show", "", "the command 'show' exists already"),
        ("list", "runs", "the command 'list' exists already"),
    ],
)
def test_a_plugin_with_a_wrong_place_or_a_taken_name_is_set_aside(
    name: str, under: str, said: str, stranger: tuple[Plugins, dict[str, str]]
) -> None:
    stranger[1][name] = under
    done = CliRunner().invoke(cli, ["--help"])
    assert done.exit_code == 0 and said in stranger[0].set_aside["stranger"]


def test_a_command_that_is_not_there_is_suggested() -> None:
    near = (
        (["optimise"], "optimize"),
        (["runs", "lst"], "list"),
        (["agent", "slot"], "slots"),
        (["slots"], "agent slots"),
    )
    for words, known in near:
        assert f"Did you mean '{known}'?" in CliRunner().invoke(cli, words).output


#: Options that mean the same in each command.
SHARED = (
    "--db",
    "--seed",
    "--set",
    "--overwrite",
    "--cache",
    "--budget-usd",
    "--budget-tokens",
    "--yes",
    "--max-tokens",
)


def test_an_option_that_means_the_same_has_one_help_text() -> None:
    texts: dict[str, set[str]] = defaultdict(set)
    for words, command in commands():
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert option.help and (option.help[0].isupper() or ":" in option.help), f"{words} {option.opts}"
            assert option.help[-1] in ".])", f"{words} {option.opts}"
            texts[option.opts[-1]].add(option.help)
    assert {name: texts[name] for name in SHARED if len(texts[name]) != 1} == {}
