#!/usr/bin/env bash
# What dist_train.sh and dist_test.sh share: _torchrun.sh PROCESSES SCRIPT ARGUMENTS...
GPUS=$1
NNODES=${NNODES:-1}
PYTHON=${PYTHON:-python}
TOOLS=$(cd "$(dirname "$0")" && pwd)

if ! [[ $GPUS =~ ^[1-9][0-9]*$ ]]; then
    echo "error: the number of processes must be a positive integer, got '$GPUS'" >&2
    exit 2
fi
if [ "$NNODES" -eq 1 ] && [ -z "$PORT" ]; then
    MEETING=(--standalone) # torchrun takes a free port, so two runs can share a machine
else
    MEETING=(--nnodes="$NNODES" --node_rank="${NODE_RANK:-0}"
        --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:=29500}")
    if [ "${NODE_RANK:-0}" -eq 0 ]; then
        "$PYTHON" - "$PORT" <<'EOF' || exit 2
import socket, sys

with socket.socket() as probe:
    # As torch binds it: a port that a finished run has just left may be taken.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("", int(sys.argv[1])))
    except (OSError, OverflowError, ValueError) as error:
        sys.exit(f"error: PORT={sys.argv[1]} cannot be used ({error}); set another or unset PORT")
EOF
    fi
fi
export PYTHONPATH="$TOOLS/..${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" -m torch.distributed.run --nproc_per_node="$GPUS" "${MEETING[@]}" \
    "$TOOLS/$2" "${@:3}" --launcher pytorch
