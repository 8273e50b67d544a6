"""llama.cpp's own HTTP server with a model file, in a venv with `xllamacpp` (its wheel needs no compiler).

    python llama_server.py MODEL.gguf PORT [--slots 4] [--context 6144] [--threads 2]

--context: tokens of one slot. Slots answer at the same time.
"""

from __future__ import annotations

import argparse
import time

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=6144)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    given = xllamacpp.CommonParams()
    given.model.path, given.hostnames, given.port = args.model, ["127.0.0.1"], args.port
    given.n_parallel, given.n_ctx = args.slots, args.slots * args.context
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = args.threads
    given.use_jinja = given.warmup = True
    server = xllamacpp.Server(given)
    print("ready", server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
