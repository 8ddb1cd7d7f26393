#!/usr/bin/env bash
# Evaluate with several processes: dist_test.sh CONFIG CHECKPOINT GPUS [flags of tools/test.py]
# Environment, as mmdet's script: NNODES NODE_RANK MASTER_ADDR PORT
if [ $# -lt 3 ]; then
    echo "usage: $0 CONFIG CHECKPOINT GPUS [flags of tools/test.py]" >&2
    exit 2
fi
TOOLS=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python}" "$TOOLS/launch.py" "$3" test "$1" "$2" "${@:4}"
