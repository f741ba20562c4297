"""`capsule-mt demo` as a file."""

from hf_capsule_mt.commands import start

if __name__ == "__main__":
    start("demo")
