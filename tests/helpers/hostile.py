"""Functions that a proposer might write and should not: slow, greedy, nosy, and liars. Each is named, with its end.

They import by `__import__`, so that the allow-list, which is only feedback, does not stop them before the sandbox does.
"""

from __future__ import annotations

import base64
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    """The body of a function, with the allowed kinds of outcome in a sandbox; `ok` is a wrong answer."""

    body: str
    kinds: tuple[str, ...]

    def source(self, function: str, parameters: str) -> str:
        return f"def {function}({parameters}):\n{textwrap.indent(self.body.strip(), '    ')}\n"


def hostile(secret: str, canary_name: str, pid: int) -> dict[str, Hostile]:
    """All hostile functions. secret: path of a file with a canary. canary_name: a variable with one. pid: of this
    process."""
    denied = ("forbidden", "error")  # a missing file is an error; one that may not be opened is forbidden
    return {
        "endless loop": Hostile("while True: pass", ("timeout",)),
        "sleep": Hostile("__import__('time').sleep(1e6)", ("timeout",)),
        "slow pattern": Hostile("return __import__('re').match('(a*)*b', 'a' * 60) is None", ("timeout",)),
        "memory bomb": Hostile(
            "kept = []\nwhile True: kept.append(bytearray(1 << 24))", ("memory", "crashed", "timeout")
        ),
        "10 GB at once": Hostile("return len(bytearray(10 << 30))", ("memory", "crashed")),
        "fork bomb": Hostile("while True: __import__('os').fork()", ("forbidden",)),
        "threads": Hostile("t = __import__('threading')\nwhile True: t.Thread(target=print).start()", ("forbidden",)),
        "shell": Hostile(f"return __import__('subprocess').getoutput('cat {secret}')", ("forbidden",)),
        "/etc/passwd": Hostile("return open('/etc/passwd').read()", denied),
        "secret file": Hostile(f"return open({secret!r}).read()", denied),
        "secret file in base64": Hostile(
            f"return __import__('base64').b64encode(open({secret!r}, 'rb').read()).decode()", denied
        ),
        "secret file in an error": Hostile(f"raise ValueError(open({secret!r}).read())", denied),
        "environment": Hostile(
            f"print(dict(__import__('os').environ))\nreturn __import__('os').environ[{canary_name!r}]", ("error",)
        ),
        "environment of the parent": Hostile(f"return open('/proc/{pid}/environ').read()", denied),
        "writes": Hostile(f"open({secret!r} + '.x', 'w').write('x')", denied),
        "socket": Hostile("s = __import__('socket')\ns.create_connection(('127.0.0.1', 9), 1).send(b'x')", denied),
        "kills its parent": Hostile("o = __import__('os')\no.kill(o.getppid(), 9)\no.kill(1, 9)", denied),
        "garbage for a result": Hostile(
            "o = __import__('os')\no.write(3, b'\\xff\\xfe{nonsense')\no._exit(0)", ("bad_result",)
        ),
        "not UTF-8": Hostile(
            'o = __import__(\'os\')\no.write(3, b\'{"kind": "ok", "value": "\\xff"}\')\no._exit(0)', ("bad_result",)
        ),
        "half a character": Hostile("return '\\ud800'", ("bad_result",)),
        "deep result": Hostile("a = []\nfor _ in range(500): a = [a]\nreturn a", ("bad_result",)),
        "not a number": Hostile("return float('nan')", ("bad_result",)),
        "huge result": Hostile("return 'x' * (1 << 21)", ("bad_result",)),
        "endless output": Hostile("while True: print('x' * 10000)", ("output",)),
        "prints a result": Hostile('print(\'{"kind": "ok", "value": 1}\', flush=True)\nreturn \'nothing\'', ("ok",)),
        "silent end": Hostile("__import__('os')._exit(0)", ("crashed",)),
    }


#: Reports everything within its reach: its frames up to the first, all objects, arguments, environment, open files.
SNOOP = """
gc, os, sys = (__import__(name) for name in ('gc', 'os', 'sys'))
said = [repr(sys.argv), repr(dict(os.environ)), repr(sys.orig_argv)]
frame = sys._getframe()
while frame is not None:
    for name, value in list(frame.f_locals.items()):
        if name not in ('said', 'frame', 'value'):
            said.append(f"{frame.f_code.co_name}.{name}={value!r}"[:2000])
    frame = frame.f_back
for thing in gc.get_objects():
    if type(thing) in (dict, list, tuple):
        said.append(repr([x for x in (thing.values() if type(thing) is dict else thing) if isinstance(x, (str, bytes))])[:3000])
for fd in range(64):
    try: said.append(f"{fd}: {os.pread(fd, 4096, 0)!r}")
    except OSError: pass
return '\\n'.join(said)[:500000]
"""  # noqa: E501


def written(canary: str) -> list[bytes]:
    """The encodings of a canary to search for: plain, hexadecimal, and the three shifts of base64."""
    raw = canary.encode()
    shifts = [base64.b64encode(b"\0" * n + raw)[(0, 2, 3)[n] : -4] for n in range(3)]
    return [raw, raw.hex().encode(), *shifts]
