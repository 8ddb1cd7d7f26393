#!/usr/bin/env bash
# Train under Slurm: slurm_train.sh PARTITION JOB CONFIG WORK_DIR [flags of tools/train.py]
# Environment, as mmdet's script: GPUS (8) GPUS_PER_NODE (8) CPUS_PER_TASK (5) SRUN_ARGS, and as
# dist_train.sh: NNODES MASTER_ADDR PORT. NODE_RANK comes from Slurm.
if [ $# -lt 4 ]; then
    echo "usage: $0 PARTITION JOB CONFIG WORK_DIR [flags of tools/train.py]" >&2
    exit 2
fi
if ! command -v srun > /dev/null; then
    echo "error: srun is not in PATH, so this machine has no Slurm; on one machine use tools/dist_train.sh" >&2
    exit 2
fi
GPUS=${GPUS:-8}
GPUS_PER_NODE=${GPUS_PER_NODE:-$((GPUS < 8 ? GPUS : 8))}
ROOT=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "$PORT" ]; then
    export MASTER_PORT=$PORT
fi
# --kill-on-bad-exit: when one process dies the others would wait for it, and the job would run on.
# shellcheck disable=SC2086  # SRUN_ARGS holds several words
exec srun -p "$1" \
    --job-name="$2" \
    ${NNODES:+--nodes="$NNODES"} \
    --gres=gpu:"$GPUS_PER_NODE" \
    --ntasks="$GPUS" \
    --ntasks-per-node="$GPUS_PER_NODE" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 \
    ${SRUN_ARGS} \
    "${PYTHON:-python}" -u "$ROOT/tools/train.py" "$3" --work-dir "$4" --launcher slurm "${@:5}"
