"""Settings that name a file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from workbench.spec import home_folder, read_outside


def _enter(text: str, info: ValidationInfo) -> str:
    if text:
        read_outside(text, home_folder(), str(info.field_name))
    return text


#: A file or folder, relative to the workflow file, of a setting with this name; "": none. It passes its door when the
#: settings are made (`workbench.spec`), so that the user is asked about one elsewhere.
FilePath = Annotated[str, AfterValidator(_enter)]
