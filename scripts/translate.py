"""`capsule-mt translate` as a file, for `torchrun` and `accelerate launch`."""

from capsule_mt.commands import start

if __name__ == "__main__":
    start("translate")
