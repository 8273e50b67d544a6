"""The file of labels: one line each, appended as a whole, so that nothing is lost when the labeller stops."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from workbench.base.files import make_private
from workbench.errors import SpecError
from workbench_kit.labels.judged import Label


def append_label(path: Path, label: Label) -> None:
    """Append a label in one write, after a line that a kill may have cut short. Raises SpecError."""
    line = {"row": label.row, "answer": label.answer, "by": label.by, "score": label.score}
    line |= {name: text for name, text in (("edit", label.edit), ("comment", label.comment)) if text}
    line["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_private(path)
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            whole = size == 0
            if size:
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            if not whole:
                _drop_cut_line(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(handle, (json.dumps(line) + "\n").encode())
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise SpecError(
            f"{path} cannot be written: {error.strerror}", hint="Choose another file with --labels."
        ) from None


def _drop_cut_line(path: Path) -> None:
    """Truncate the file after its last complete line: a cut line is no label."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except ValueError:
        os.truncate(path, end)
    else:  # complete but for its newline, as an editor may leave it
        with path.open("ab") as file:
            file.write(b"\n")
