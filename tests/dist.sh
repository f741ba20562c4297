#!/usr/bin/env bash
# Build the wheels and the source distributions. Install the light wheel alone in an empty environment and use it; add the
# heavy one beside it, and run the tests of its source distribution without the source of the packages.
#
#     tests/dist.sh python3.12          # by default python3; `make test-all` calls it
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${1:-python3}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --constraint "$root/constraints.txt" build
for distribution in capsule_mt .; do
    "$work/build/bin/python" -m build --outdir "$work/dist" "$root/$distribution"
done

"${1:-python3}" -m venv "$work/empty"
python="$work/empty/bin/python" program="$work/empty/bin/capsule-mt"
"$python" -m pip install --quiet --upgrade pip
light=$(echo "$work"/dist/capsule_mt-*.whl) heavy=$(echo "$work"/dist/hf_capsule_mt-*.whl)
mkdir "$work/source"
tar --extract --file "$work"/dist/hf_capsule_mt-*.tar.gz --directory "$work/source" --strip-components 1
rm -r "$work/source/hf_capsule_mt" "$work/source/capsule_mt"
cd "$work/source"
"$python" -m pip install --quiet --constraint "$root/constraints.txt" "$light"
"$program" doctor
du --summarize --block-size 1M "$work/empty"
echo "The old man buys a red hat." | "$program" translate tests/golden/capsule_marian
paste <(echo "The old man buys a red hat.") <(echo "Der alte Mann kauft.") \
    | "$program" score tests/golden/capsule_marian --coverage
"$python" -c "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'transformers', 'numpy')))"

"$python" -m pip install --quiet --constraint "$root/constraints.txt" --find-links "$work/dist" "$heavy[train,eval]" \
    --group "$root/pyproject.toml:test"
"$python" -m pip check
"$python" -m pytest -q -m "not slow and not gpu" tests/golden tests/configuration tests/routing
