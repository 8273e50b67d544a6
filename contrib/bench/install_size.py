"""What the base install weighs: the size of each distribution that core, kit and standard bring, without any extra.

    python contrib/bench/install_size.py
    python contrib/bench/install_size.py --of core                   # core alone
    python contrib/bench/install_size.py --of dspy --without litellm openai    # as with DSPy 3.5, which needs neither

Requirements are followed through the metadata of what is installed here, and sizes are those of the files in each
distribution's RECORD, with what pip compiles of them. pip itself, which sqlite-utils asks for, is there before.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Collection
from datetime import date
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MIB = 1 << 20
BASE = ("core", "kit", "standard")


def closure(wanted: Requirement, without: Collection[str]) -> dict[str, Distribution]:
    """All distributions that a requirement brings here, by name; without some of them, and what these alone bring."""
    found: dict[str, Distribution] = {}
    left, seen = [wanted], set[tuple[str, frozenset[str]]]()
    while left:
        one = left.pop()
        name, key = canonicalize_name(one.name), (canonicalize_name(one.name), frozenset(one.extras))
        if key in seen or name in without or name == "pip":
            continue
        seen.add(key)
        found[name] = importlib.metadata.distribution(name)
        for line in found[name].requires or ():
            more = Requirement(line)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
                left.append(more)
    return found


def size(distribution: Distribution) -> int:
    """Bytes of its files."""
    paths = (Path(str(file.locate())) for file in distribution.files or ())
    return sum(path.stat().st_size for path in paths if path.is_file())


def table(ours: Collection[str], without: Collection[str], least: float) -> str:
    """The table as Markdown. ours: distributions of this repository; least: MiB of what has a line."""
    needed = [Requirement(line) for one in ours for line in importlib.metadata.requires(f"workbench-{one}") or ()]
    wanted = [one for one in needed if not one.name.startswith("workbench-") and one.marker is None]
    brought = {one.name: closure(one, without) for one in wanted if canonicalize_name(one.name) not in without}
    everything = {name: found for one in brought.values() for name, found in one.items()}
    sizes = {name: size(found) for name, found in everything.items()}
    lines = ["| distribution | version | MiB | brought by |", "| --- | --- | --- | --- |"]
    for name in sorted(sizes, key=lambda n: -sizes[n]):
        if sizes[name] >= least * MIB:
            by = [one for one, found in brought.items() if name in found]
            told = "us" if name in by else " and ".join(by)
            lines.append(f"| {name} | {everything[name].version} | {sizes[name] / MIB:.0f} | {told} |")
    rest = [name for name in sizes if sizes[name] < least * MIB]
    lines.append(f"| {len(rest)} others | | {sum(sizes[name] for name in rest) / MIB:.0f} | |")
    lines.append(f"| all {len(sizes)} | {date.today()} | {sum(sizes.values()) / MIB:.0f} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--of", nargs="*", default=BASE, metavar="NAME", help="distributions of ours; their own code is left out"
    )
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="left out, with what they alone bring")
    parser.add_argument(
        "--least", type=float, default=5.0, metavar="MIB", help="distributions of this size have a line"
    )
    args = parser.parse_args()
    print(table(args.of, {canonicalize_name(name) for name in args.without}, args.least))
