"""The plugins that this process has loaded, and what each provides."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from workbench.plugins import plugins
from workbench.store import Store
from workbench_view.server.site import Site


def plugins_page(site: Site, store: Store, request: Request) -> Response:
    text = request.query_params.get("text", "").strip().lower()
    found = [
        info
        for info in sorted(plugins().infos, key=lambda info: info.name)
        if text
        in " ".join([info.name, info.distribution, *(n for names in info.provides.values() for n in names)]).lower()
    ]
    return site.render(request, "plugins.html", plugins=found, all=len(plugins().infos), text=text)
