#!/usr/bin/env bash
# Try hostile inputs on an engine that is built with the address and undefined-behaviour sanitizers; then build it as it was.
#
#     tests/fuzz/sanitized.sh --seconds 600 --seed 7
set -euo pipefail
cd "$(dirname "$0")/../.."
trap 'env -u CC python -m capsule_mt.engine.build' EXIT
CC=gcc python -m capsule_mt.engine.build --sanitize address,undefined
ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    python -m tests.fuzz.run --targets file,search,text,program "$@"
