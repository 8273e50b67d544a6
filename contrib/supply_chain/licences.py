"""Check that every installed package has a licence that goes with Apache-2.0.

    python contrib/supply_chain/licences.py

It reads the metadata of the packages of its own environment. The exit code is 1 if a licence is unknown or not allowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

#: Identifiers of SPDX, and the words that older packages write in their place.
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT"),
    *("MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "ZPL-2.1", "LLVM-exception"),
    *("Apache Software License", "Apache License 2.0", "Apache 2.0", "Apache", "Apache License, Version 2.0"),
    *("BSD License", "BSD", "3-Clause BSD License", "BSD 3-Clause", "MIT License", "The MIT License", "ISC License"),
    *("Mozilla Public License 2.0 (MPL 2.0)", "Python Software Foundation License", "The Unlicense (Unlicense)"),
    *("ISC License (ISCL)", "Public Domain", "Apache 2.0 License"),
    *("Apache License", "Historical Permission Notice and Disclaimer (HPND)", "MIT No Attribution License (MIT-0)"),
}
#: Words of metadata that name no licence.
_NO_NAMES = {"OSI Approved", "DFSG approved"}
#: Packages with another licence, and why that is no matter here. Nothing of them is part of our distribution.
ACCEPTED = {
    "jinja2-ansible-filters": "GPL-3.0; comes with copier, which the extra `template` installs",
    "psycopg": "LGPL-3.0; the extra `postgres` installs it, and it is imported as it is",
    "psycopg-binary": "LGPL-3.0; the same",
}


def licences(package: Distribution) -> list[str]:
    """The licences that a package names, from the clearest field that it has."""
    metadata = package.metadata
    text = metadata.get("License-Expression") or ""
    if not text:
        classifiers = [
            c.rpartition(" :: ")[2] for c in metadata.get_all("Classifier") or () if c.startswith("License ::")
        ]
        if named := [name for name in classifiers if name not in _NO_NAMES]:
            return named
        text = (metadata.get("License") or "").strip().partition("\n")[0]
    parts = [text] if text in ALLOWED else re.split(r"\b(?:AND|OR|WITH)\b", text)
    return [part if part in ALLOWED else part.strip(" ()") for part in parts if part.strip()]


def refused(packages: Iterable[Distribution]) -> list[str]:
    """A line for each package whose licence is unknown, or is none of those that are allowed."""
    found = []
    for package in sorted(packages, key=lambda one: one.name.lower()):
        if package.name.lower() in ACCEPTED:
            continue
        names = licences(package)
        if not names:
            found.append(f"{package.name} {package.version}: no licence is named")
        elif bad := [name for name in names if name not in ALLOWED]:
            found.append(f"{package.name} {package.version}: {', '.join(bad)}")
    return found


def main() -> int:
    packages = list(distributions())
    found = refused(packages)
    print("\n".join([*found, f"{len(packages)} packages, {len(found)} refused"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
