#!/usr/bin/env bash
# Evaluate with several processes: dist_test.sh CONFIG CHECKPOINT GPUS [flags of tools/test.py]
# Environment, as mmdet's script: NNODES NODE_RANK MASTER_ADDR PORT
if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CHECKPOINT GPUS [flags of tools/test.py]" >&2
    exit 2
fi
CONFIG=$1
CHECKPOINT=$2
GPUS=$3
exec "$(dirname "$0")/_torchrun.sh" "$GPUS" test.py "$CONFIG" "$CHECKPOINT" "${@:4}"
