#!/usr/bin/env bash
# Build both distributions and install their wheels without constraints in an empty environment: the light one alone, to
# use it, then the heavy one with the newest of all that it needs, to test it by the tests of its source distribution. A
# release of transformers, torch or tokenizers that breaks the package fails here, below the versions that were picked.
#
#     tests/dist.sh python3.12                    # by default python3; `make test-all` calls it
#     TORCH=torch==2.13.0 tests/dist.sh python3   # another torch; the newest brings 5 GB of CUDA on Linux
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-python3}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --constraint "$root/constraints.txt" build twine
for distribution in capsule_mt .; do # the wheels are built from the source distributions
    "$work/build/bin/python" -m build --outdir "$work/dist" "$root/$distribution" >"$work/build.log" 2>&1 \
        || { cat "$work/build.log"; exit 1; }
done
"$work/build/bin/twine" check --strict "$work"/dist/*
light=$(echo "$work"/dist/capsule_mt-*.whl) heavy=$(echo "$work"/dist/hf_capsule_mt-*.whl)
mkdir "$work/source"
tar --extract --file "$work"/dist/hf_capsule_mt-*.tar.gz --directory "$work/source" --strip-components 1
rm -r "$work/source/hf_capsule_mt" "$work/source/capsule_mt"
cd "$work/source"

echo "== the light wheel alone"
"${1:-python3}" -m venv "$work/empty"
python="$work/empty/bin/python" program="$work/empty/bin/capsule-mt"
"$python" -m pip install --quiet --upgrade pip
"$python" -m pip install --quiet "$light"
"$program" doctor
echo "The old man buys a red hat." | "$program" translate tests/golden/capsule_marian
paste <(echo "The old man buys a red hat.") <(echo "Der alte Mann kauft.") \
    | "$program" score tests/golden/capsule_marian --coverage
"$python" -c "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'transformers', 'numpy')))"

echo "== both wheels, with the newest of all"
if ! "$python" -m pip install --quiet --no-compile --no-cache-dir "${TORCH:-torch}"; then
    pinned=$(grep "^torch==" "$root/constraints.txt")
    echo "the newest torch cannot be had here, so $pinned is tested instead" >&2
    "$python" -m pip install --quiet "$pinned"
fi
"$python" -m pip install --quiet --find-links "$work/dist" "$heavy[train]" --group "$root/pyproject.toml:test"
"$python" -m pip check
tests=("$python" -m pytest -q -n "${TEST_PROCESSES:-2}" -m "not slow and not gpu")
"${tests[@]}" tests/golden tests/routing tests/decoding/test_pipeline.py tests/decoding/test_ensemble.py \
    tests/hub/test_export.py tests/training/test_run.py::test_from_text_to_a_checkpoint_and_again
"${tests[@]}" tests/modeling -k "both_names or continues_a_prefix or every_output_of_compiled"

# the versions that have just passed: for docs/publishing.md, and in the summary of the public workflow
"$python" - >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}" <<'END'
import platform
from importlib.metadata import version

tried = ("transformers", "torch", "tokenizers", "accelerate", "datasets", "safetensors", "sacrebleu", "numpy")
print("| version of | newest tried |", "|---|---|", f"| Python | {platform.python_version()} |", sep="\n")
print(*(f"| {name} | {version(name)} |" for name in tried), sep="\n")
END
