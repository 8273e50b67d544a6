"""Planted worlds: a benchmark for optimizers that needs no language model."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_bench.commands import bench_command

    cli.add_command(bench_command, under="plugin")
