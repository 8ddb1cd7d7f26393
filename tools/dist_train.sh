#!/usr/bin/env bash
# Train with several processes: dist_train.sh CONFIG GPUS [flags of tools/train.py]
# Environment, as mmdet's script: NNODES NODE_RANK MASTER_ADDR PORT
if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG GPUS [flags of tools/train.py]" >&2
    exit 2
fi
TOOLS=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" "$TOOLS/launch.py" "$2" train "$1" "${@:3}"
