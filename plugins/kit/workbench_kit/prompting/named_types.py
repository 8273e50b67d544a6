"""Types of a signature that are the user's own classes: `types: {Person: python:models.py:Person}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from workbench.errors import SpecError, errors_at
from workbench.spec import PREFIX, Code, read_user_code

#: The node's setting that names them. It is omitted if empty: it is newer than the hashes of workflows.
NamedTypes = dict[str, str]
NAMED_TYPES: Any = Field(
    default_factory=dict,
    exclude_if=lambda types: not types,
    description="classes of pydantic that the signature names, as {Person: python:models.py:Person}",
)


def load_types(types: Mapping[str, str], base: Path, code: Code) -> dict[str, Any]:
    """Return the classes by their names in the signature. Unless the code is `loaded`, each is a plain dict.

    Raises:
        SpecError: an address does not exist, or pydantic cannot read its target from JSON.
    """
    found: dict[str, Any] = {}
    for name, address in types.items():
        with errors_at("types", name):
            if not name.isidentifier():
                raise SpecError(f"'{name}' cannot name a type", hint="Use letters, digits and _.")
            if not address.startswith(PREFIX):
                raise SpecError(f"'{address}' is not a class", hint=f"Write {PREFIX}models.py:{name}.")
            made = read_user_code(address, base, code)
            found[name] = _checked(made, address) if code == "loaded" else dict
    return found


def _checked(made: Any, address: str) -> Any:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        TypeAdapter(made).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        raise SpecError(
            f"'{address}' is not a type that can be read from JSON: {str(error).splitlines()[0]}",
            hint="Name a class of pydantic.BaseModel, a dataclass or a TypedDict.",
        ) from None
    return made
