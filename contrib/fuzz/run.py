"""Fuzz one target with atheris.

    pip install --require-hashes --no-deps -r contrib/fuzz/requirements.lock
    python contrib/fuzz/run.py spec_file -max_total_time=300

Options after the target are libFuzzer's. New inputs go to a temporary corpus (or to --corpus FOLDER), what breaks the
target to contrib/fuzz/found/.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # pyright: ignore[reportMissingImports]

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

with atheris.instrument_imports(include=["workbench", "workbench_openai", "yaml"]):
    from targets import TARGETS


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    found = HERE / "found"
    found.mkdir(exist_ok=True)
    corpus = options.pop(options.index("--corpus") + 1) if "--corpus" in options else tempfile.mkdtemp(prefix="fuzz-")
    options = [option for option in options if option != "--corpus"]
    if (dictionary := HERE / f"{name}.dict").is_file():
        options.append(f"-dict={dictionary}")
    words = [sys.argv[0], f"-artifact_prefix={found}/", "-timeout=30", "-rss_limit_mb=3000", *options]
    atheris.Setup([*words, corpus, str(HERE / "seeds" / name)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
