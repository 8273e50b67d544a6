"""A task of `openended`, a family of BrowserGym whose tasks have arguments. argv: the folder of our adapter."""

import json
import runpy
import sys
from pathlib import Path

World = runpy.run_path(f"{sys.argv[1]}/browsergym.py")["World"]
page = Path("page.html")
page.write_text("<button onclick=\"this.innerText = 'done'\">begin</button>")
world = World()
before = world.reset({"id": "openended", "start_url": page.resolve().as_uri(), "goal": "Begin."})
after = world.step('click("{}")'.format(before.partition("[")[2].partition("] button")[0].rpartition("[")[2]))
print(json.dumps({"goal": world.brief(), "before": "begin" in before, "after": "done" in after}))
