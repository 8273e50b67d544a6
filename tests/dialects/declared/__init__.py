"""All dialects by name. A new one is an entry of the list of its file; a new file is named here."""

from __future__ import annotations

from tests.dialects.declared import clouds, labs, native, openai_family, servers
from tests.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {
    one.name: one for module in (openai_family, labs, clouds, servers, native) for one in module.DIALECTS
}
