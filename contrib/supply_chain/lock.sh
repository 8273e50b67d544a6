#!/usr/bin/env bash
# Write the lock files, each line with the hashes of its package. Needs uv; give --upgrade for newer versions.
#
# torch and what only its CUDA builds need are left out: which build to install depends on the machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
cuda=$(echo nvidia-{cublas,cuda-cupti,cuda-nvrtc,cuda-runtime,cudnn-cu13,cufft,cufile,curand,cusolver,cusparse} \
  nvidia-{cusparselt-cu13,nccl-cu13,nvjitlink,nvshmem-cu13,nvtx} cuda-{bindings,pathfinder,toolkit} triton)
lock() {
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "$@"
}
ours=$(echo workbench-{core,kit,standard,dspy,agents,training,watch,scale,research,testing})
lock "$@" requirements-test.txt $(printf -- '--no-emit-package %s ' torch $cuda $ours) --output-file contrib/supply_chain/requirements.lock
lock "$@" contrib/supply_chain/tools.in --output-file contrib/supply_chain/tools.lock
{ cat requirements.txt contrib/supply_chain/trackers.in; echo '-e ./plugins/watch[mlflow,otel,wandb]'; } |
  lock "$@" - $(printf -- '--no-emit-package %s ' $ours) --output-file contrib/supply_chain/trackers.lock
lock "$@" contrib/fuzz/requirements.in --output-file contrib/fuzz/requirements.lock
lock "$@" contrib/mutants/requirements.in --constraint contrib/supply_chain/requirements.lock \
  --output-file contrib/mutants/requirements.lock
