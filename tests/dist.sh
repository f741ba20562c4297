#!/usr/bin/env bash
# Build the wheel and the source distribution, install the wheel alone in an empty environment, and run the tests of the
# source distribution on it, without the source of the package.
#
#     tests/dist.sh python3.12          # by default python3; `make test-dist` calls it
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-python3}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --constraint "$root/constraints.txt" build
"$work/build/bin/python" -m build --outdir "$work/dist" "$root"
"${1:-python3}" -m venv "$work/empty"
python="$work/empty/bin/python"
wheel=$(echo "$work"/dist/*.whl)
"$python" -m pip install --quiet --constraint "$root/constraints.txt" "$wheel[train,eval,test]"
"$python" -m pip check
mkdir "$work/source"
tar --extract --file "$work"/dist/*.tar.gz --directory "$work/source" --strip-components 1
rm -r "$work/source/hf_capsule_mt" "$work/source/capsule_mt.py"
cd "$work/source"
"$work/empty/bin/capsule-mt" doctor
echo "The old man buys a red hat." | "$work/empty/bin/capsule-mt" translate tests/golden/capsule_marian --cpu
"$python" -m pytest -q -m "not slow and not gpu" tests/golden tests/configuration tests/routing \
    tests/system/test_checkpoints.py
