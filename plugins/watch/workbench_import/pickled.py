"""A pickled DSPy program. Reading a pickle runs code: this module is used only with --run-code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from workbench.errors import SpecError


def read_pickled(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return (state, signature) of each predictor of a folder made by `program.save(path, save_program=True)`.

    Raises SpecError, also if code in the pickle fails.
    """
    if path.is_file():
        hint = "Save it as JSON: program.save('p.json')."
        raise SpecError(f"{path.name} is the pickled state of a program", hint=hint)
    import dspy

    try:
        program: Any = dspy.load(str(path), allow_pickle=True)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise SpecError(f"{path} cannot be loaded: {why}", hint="Load it with DSPy.") from error
    predictors = dict(program.named_predictors())
    return {n: p.dump_state() for n, p in predictors.items()}, {n: _text(p.signature) for n, p in predictors.items()}


def _text(signature: Any) -> str:
    sides = (signature.input_fields, signature.output_fields)
    return " -> ".join(", ".join(f"{n}{_annotation(f.annotation)}" for n, f in side.items()) for side in sides)


def _annotation(annotation: Any) -> str:
    """Return a field's type in signature notation; none for text and for types without a notation."""
    if annotation in (int, float, bool, list, dict):
        return f": {annotation.__name__}"
    plain = (str, int, float, bool, type(None))
    parts = [a for a in get_args(annotation) if get_origin(annotation) is not Literal]
    if get_origin(annotation) in (Literal, list, dict) and all(part in plain for part in parts):
        return f": {str(annotation).removeprefix('typing.')}"
    return ""
