#!/usr/bin/env bash
# Try hostile inputs on an engine that is built with sanitizers; then build it as it was,
# which needs ziglang.
#
#     tests/fuzz/sanitized.sh --seconds 3600 --seed 7   # addresses and undefined behaviour
#     tests/fuzz/sanitized.sh pairs                     # every pair of options
#     tests/fuzz/sanitized.sh threads                   # the same with the thread sanitizer, which sees races
set -euo pipefail
cd "$(dirname "$0")/../.."
trap 'env -u CC python -m capsule_mt.engine.build' EXIT

# build SANITIZERS LIBRARY...: build the engine, and let python load these libraries first
build() {
    CC=gcc python -m capsule_mt.engine.build --sanitize "$1"
    preload=""
    for library in "${@:2}"; do preload+=" $(gcc -print-file-name="$library")"; done
}

case "${1:-}" in
threads)
    build thread libtsan.so
    # its shadow memory does not fit around random addresses
    LD_PRELOAD="$preload" TSAN_OPTIONS=exitcode=66 setarch --addr-no-randomize python -m tests.fuzz.pairs "${@:2}"
    ;;
pairs)
    build address,undefined libasan.so libubsan.so
    LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 python -m tests.fuzz.pairs "${@:2}"
    ;;
*)
    build address,undefined libasan.so libubsan.so
    LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 python -m tests.fuzz.run --targets file,search,text,program "$@"
    ;;
esac
