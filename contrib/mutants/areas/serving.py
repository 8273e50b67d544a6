"""Training on a server: weights on their way, sleep, candidates, deadlines."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

TRANSFER = "tests/plugins/training/test_weight_transfer.py"
NCCL = "tests/plugins/training/test_nccl_transfer.py"
RECORD = "tests/plugins/training/test_resume_record.py"
SERVER_SETTINGS = "tests/plugins/training/test_server_settings.py"
SERVED_RUNS = nodes_of(
    "tests/plugins/training/test_vllm_runs.py",
    "test_all_weights_are_trained_on_a_server_that_sleeps",
    "test_rounds_of_sft_draw_between_their_epochs",
    "test_candidates_score_alike_on_the_server_and_here",
)

SERVING: list[Mutant] = [
    *changes_of(
        "plugins/workbench_training/serving/vllm_engine.py",
        TRANSFER,
        ("/pause?mode=wait", "/pause?mode=keep", "draws in flight are frozen and go on with other weights"),
        ("if not self._asleep:  # a server", "if False:  # a server", "weights change while draws run"),
        ("self._updates += 1", "pass", "an answer of two versions is taken"),
        (
            'await self._do("/reset_prefix_cache")',
            '{"success": True}',
            "keys and values of old weights stay",
        ),
        ('if isinstance(found, dict) and found.get("success") is False:', "if False:", "a cache that stays is ignored"),
        ('await self._wake("kv_cache")', "pass", "a server wakes without its cache"),
        (
            'await self._wake("weights" if self.transfer.in_place else "")',
            "pass",
            "weights are sent to a server that sleeps",
        ),
        ("level = 2 if self.transfer.in_place else 1", "level = 2", "an adapter's base is dropped"),
        ("if not self.sleep or self._asleep:", "if not self.sleep:", "a server that sleeps is sent to sleep"),
        ("            await self._check(label)\n", "", "weights that did not arrive are not noticed"),
        ("if not label or label != self._label:", "if False:", "drawn while weights change"),
        ("if self.seeds:  # vLLM", "if True:  # vLLM", "every request has a seed"),
        ("int(label[1:]))\n        return body", "0)\n        return body", "all versions try the same"),
        ("min(request.max_tokens, self._context - len(prompt))", "request.max_tokens", "answers leave the context"),
        (
            'self._base if self.transfer.in_place else f"{self.name}-{label}"',
            'f"{self.name}-{label}"',
            "all weights are asked as an adapter",
        ),
        (
            "if error.status == 404 and self.transfer.in_place else",
            "if False else",
            "a missing route is not explained",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/serving/vllm_client.py",
        TRANSFER,
        ("connector=aiohttp.TCPConnector(limit=self.connections)", "connector=None", "a pool of 100 connections"),
    ),
    *changes_of(
        "plugins/workbench_training/serving/weight_transfer.py",
        TRANSFER,
        ('await client.post("/start_weight_update", None, timeout)', "pass", "an update is not announced"),
        (
            'await client.post("/finish_weight_update", {"weight_version": label}, timeout)',
            "pass",
            "an update does not end",
        ),
        ('if found["world_size"] != 1:', "if False:", "other GPUs keep old weights"),
        (
            "if before is not None and before != place:\n            await asyncio.to_thread(shutil.rmtree, before",
            "if False:\n            await asyncio.to_thread(shutil.rmtree, before",
            "sent weights fill the disk",
        ),
        (
            'if kind in ("ipc", "nccl") and device.type != "cuda":',
            "if False:",
            "IPC without a GPU",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/serving/nccl_transfer.py",
        NCCL,
        ('1 + (await client.get("/get_world_size", timeout))["world_size"]', "2", "the group lacks GPUs of the server"),
        ('{"weight_version": label}', "{}", "the weights on the server have no version"),
        ("asked.result()  # the", "pass  # the", "the server's own words are lost"),
        ("return_when=asyncio.FIRST_EXCEPTION", "return_when=asyncio.ALL_COMPLETED", "a refused group is waited for"),
        ("if communicator.disabled:", "if False:", "weights are sent to nobody"),
        (
            "left = [name for place, name in enumerate(seen) if place not in taken]",
            "left = seen",
            "a GPU is there twice",
        ),
        ("group.close()", "pass", "a group outlives the training"),
    ),
    *changes_of(
        "plugins/workbench_training/model/preflight.py",
        SERVER_SETTINGS,
        ("return not server.url and not over_nccl", "return not server.url", "a share is counted for a GPU elsewhere"),
    ),
    *changes_of(
        "plugins/workbench_training/base.py",
        SERVER_SETTINGS,
        (
            "check_transfer(server.transfer, resolve_device(device))",
            "pass",
            "a transfer that cannot work is refused after the baseline",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/state/resume_record.py",
        f"{RECORD}::test_only_the_best_weights_stay_and_a_resumed_run_misses_none",
        ("name for name in self._lost() if not", "name for name in set[str]() if not", "what lost is trained again"),
        ("keep) - self._lost()", "0) & set[str]()", "weights that lost fill the disk"),
    ),
    *changes_of(
        "plugins/workbench_training/imitation.py",
        f"{RECORD}::test_only_the_best_weights_stay_and_a_resumed_run_misses_none",
        (
            "score = await source.recall(folder, epoch) if known else None",
            "score = None",
            "weights that may be deleted are loaded",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/serving/weight_transfer.py",
        "tests/plugins/training/test_vllm_engine.py::"
        "test_each_version_is_loaded_under_its_name_and_draws_as_the_policy_would",
        (
            "await asyncio.to_thread(shutil.rmtree, self.folder / before, ignore_errors=True)",
            "pass",
            "adapters fill the disk",
        ),
    ),
    *changes_of(
        "plugins/workbench_training/serving/weight_transfer.py",
        SERVER_SETTINGS,
        ('return "ipc" if on_gpu and here else "reload"', 'return "ipc" if on_gpu else "reload"', "IPC to elsewhere"),
        ('["--enable-sleep-mode"] if sleep else []', "[]", "a server that cannot sleep"),
    ),
    *changes_of(
        "plugins/workbench_training/serving/server_setup.py",
        SERVER_SETTINGS,
        ("role.spec.timeout if given else LONGEST_CALL", "LONGEST_CALL", "lm.timeout does not reach a server"),
        ("role.spec.concurrency or CONCURRENCY", "CONCURRENCY", "lm.concurrency does not reach a server"),
    ),
    *changes_of(
        "plugins/workbench_training/rollouts/study_rollouts.py",
        SERVED_RUNS,
        ("await role.engine.hold_candidate(step)", "pass", "a candidate is drawn with older weights"),
        ("and role.engine.candidates:", "and True:", "candidates are drawn on a server that is not to"),
    ),
    *changes_of(
        "plugins/workbench_training/trainer.py",
        SERVED_RUNS,
        ("await wait_if_any(self.rest())", "pass", "the server never sleeps"),
        ("self.state.step, current=True)", "self.state.step, current=False)", "candidates are loaded here"),
    ),
    *changes_of(
        "plugins/workbench_training/serving/vllm_engine.py",
        nodes_of(
            "tests/plugins/training/test_vllm_engine.py",
            "test_a_probe_that_is_far_apart_by_one_token_is_drawn_again_and_all_tokens_count",
        ),
        ("PROBES = 3", "PROBES = 1", "a token far apart by rounding ends a training"),
    ),
    *changes_of(
        "plugins/workbench_training/base.py",
        nodes_of(
            "tests/plugins/training/test_vllm_runs.py",
            "test_a_server_starts_with_all_memory_that_this_process_can_spare",
        ),
        ("            free_device_memory()", "            pass", "a server starts beside what torch holds back"),
    ),
]
