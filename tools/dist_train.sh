#!/usr/bin/env bash
# Train with several processes: dist_train.sh CONFIG GPUS [flags of tools/train.py]
# Environment, as mmdet's script: NNODES NODE_RANK MASTER_ADDR PORT
if [ $# -lt 2 ]; then
    echo "usage: $0 CONFIG GPUS [flags of tools/train.py]" >&2
    exit 2
fi
CONFIG=$1
GPUS=$2
exec "$(dirname "$0")/_torchrun.sh" "$GPUS" train.py "$CONFIG" "${@:3}"
