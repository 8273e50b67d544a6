"""python launch.py COMMAND ...: drop rights, then become the command.

The command cannot write files or dump core, has limited processor time, and dies with the workbench. Address space is
not limited, because V8 reserves far more than it uses.
"""

from __future__ import annotations

import os
import resource
import sys

LONGEST = 700  # seconds of processor time: the longest timeout, loading, and a margin

if sys.platform == "linux":
    import ctypes

    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
for what, limit in ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, LONGEST)):
    resource.setrlimit(what, (limit, limit))
os.execv(sys.argv[1], sys.argv[1:])
