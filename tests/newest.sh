#!/usr/bin/env bash
# Install both wheels without constraints in an empty environment, and test what depends on transformers, torch and
# tokenizers: a release of one of them that breaks the package fails here, below the versions that were picked.
#
#     tests/newest.sh python3.12                    # by default python3; `make test-all` calls it
#     TORCH=torch==2.13.0 tests/newest.sh python3   # another torch; the newest brings 5 GB of CUDA on Linux
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-python3}" -m venv "$work/newest"
python="$work/newest/bin/python"
"$python" -m pip install --quiet --upgrade pip
for distribution in capsule_mt .; do
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheels" "$root/$distribution"
done
if ! "$python" -m pip install --quiet --no-compile --no-cache-dir "${TORCH:-torch}"; then
    pinned=$(grep "^torch==" "$root/constraints.txt")
    echo "the newest torch cannot be had here, so $pinned is tested instead" >&2
    "$python" -m pip install --quiet "$pinned"
fi
heavy=$(echo "$work"/wheels/hf_capsule_mt-*.whl)
"$python" -m pip install --quiet --find-links "$work/wheels" "$heavy[train]" --group "$root/pyproject.toml:test"
"$python" -m pip check
"$python" -m pip list | grep --ignore-case --extended-regexp \
    "^(transformers|torch|tokenizers|accelerate|datasets|safetensors|numpy) "
cp -r "$root/tests" "$root/pyproject.toml" "$work" # without the source of the package
cd "$work"
tests=("$python" -m pytest -q -n "${TEST_PROCESSES:-2}" -m "not slow and not gpu")
"${tests[@]}" tests/golden tests/decoding/test_pipeline.py tests/decoding/test_ensemble.py tests/hub/test_export.py \
    tests/training/test_run.py::test_from_text_to_a_checkpoint_and_again
"${tests[@]}" tests/modeling -k "both_names or continues_a_prefix or every_output_of_compiled"
