"""The distribution that this package belongs to: how to install its extras, and others that claim its name."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

NAME = "agent-optimization-workbench"
_PACKAGE = "workbench"


def pip_install(*extras: str) -> str:
    """The command that installs extras, for error messages. It needs a clone: no index has the distribution."""
    return f"pip install -e '.[{','.join(extras)}]' in your clone of {NAME}"


def find_conflicting_distributions() -> Iterator[str]:
    """Warnings of other installed distributions with a package of our name.

    Only distributions named like the package are checked: listing the files of all takes longer than the rest of the
    start.
    """
    found = {other.version: other.name for other in distributions(name=_PACKAGE) if _brings_package(other)}
    for version, name in found.items():  # the same may stand on the path twice
        yield (
            f"two distributions bring a package '{_PACKAGE}': {NAME}, which is this program, and {name} {version}, "
            f"which is not. They overwrite each other's files. Keep one in this environment: pip uninstall {name}, "
            f"then install {NAME} again."
        )


def _brings_package(distribution: Distribution) -> bool:
    named = (distribution.read_text("top_level.txt") or "").split()
    return _PACKAGE in named or any(file.parts[:1] == (_PACKAGE,) for file in distribution.files or ())
