#!/usr/bin/env bash
# Measures steps and input and pretrains from records, in ten minutes at most, on a GPU machine with only Keras and JAX.
# Usage: benchmarks/gpu_session.sh RECORDS OUTPUT_DIR [tiny]; "tiny" tries everything on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
export KERAS_BACKEND=jax PYTHONPATH=$PWD:${PYTHONPATH:-} PYTHONUNBUFFERED=1
timeout 330 python3 benchmarks/gpu_training_step.py --preset="${3:-full}" || echo "no more rows: status $?"
timeout 270 python3 benchmarks/gpu_pretraining.py --records="$1" --output_dir="$2" --preset="${3:-full}"
