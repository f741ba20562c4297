#!/usr/bin/env bash
# Run a command under several kinds of arithmetic, as other processors have them, and say where it fails.
#
#   tests/processors.sh .venv/bin/python -m pytest -q tests/golden           # all variants
#   tests/processors.sh --first .venv/bin/python -m pytest -q tests/golden   # the first one alone
#
# Each variant caps the instructions of PyTorch's own kernels, of oneDNN and of MKL, or changes their order of additions.
# A cap above what the processor has changes nothing.
variants=(
  "ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2"
  "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2"
  "ONEDNN_MAX_CPU_ISA=AVX512_CORE"
  "OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 MKL_CBWR=COMPATIBLE"
)
if [ "${1:-}" = "--first" ]; then
  shift
  variants=("${variants[0]}")
fi
failed=0
for variant in "${variants[@]}"; do
  echo "== $variant"
  # shellcheck disable=SC2086 # a variant is several words
  env $variant "$@" || { echo "== failed under $variant"; failed=1; }
done
exit $failed
