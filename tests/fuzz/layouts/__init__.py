"""Folders of models in layouts drawn from a grammar, read by us and by the program they are made for.

    python -m tests.fuzz.layouts --folders 500 --seed 7
    python -m tests.fuzz.layouts --folders 100 --families marian,opus_mt --keep findings

A folder must give the original program's tokens, texts and log-probabilities, or be refused by an error that names
what is not read. Anything else is a finding, and the run fails: `--keep` gets its case, which `--case FILE` reads
again. Folders of Marian need `CAPSULE_MT_PYMARIAN`, the Python of an environment with pymarian.
"""
