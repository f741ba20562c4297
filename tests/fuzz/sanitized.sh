#!/usr/bin/env bash
# Try hostile inputs on an engine that is built with the address and undefined-behaviour sanitizers; then build it as it was.
#
#     tests/fuzz/sanitized.sh --seconds 600 --seed 7
#     tests/fuzz/sanitized.sh pairs                     # every pair of options
set -euo pipefail
cd "$(dirname "$0")/../.."
trap 'env -u CC python -m capsule_mt.engine.build' EXIT
CC=gcc python -m capsule_mt.engine.build --sanitize address,undefined
export ASAN_OPTIONS=detect_leaks=0
preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
if [ "${1:-}" = pairs ]; then
    LD_PRELOAD="$preload" python -m tests.fuzz.pairs "${@:2}"
else
    LD_PRELOAD="$preload" python -m tests.fuzz.run --targets file,search,text,program "$@"
fi
