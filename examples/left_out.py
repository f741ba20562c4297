"""Translate some sentences with a released checkpoint, and show what was left out: `make demo` runs this.

It needs the light distribution alone: `pip install ./capsule_mt` in a clone.
"""

import time
from pathlib import Path

from capsule_mt import CoverageOptions, Translator

CHECKPOINT = Path(__file__).resolve().parents[1] / "checkpoints" / "capsule-marian-de-en"
SENTENCES = [
    "Das Wetter ist heute viel besser als gestern.",
    "Der alte Mann kauft einen roten Hut.",
    "Die Kinder spielen heute im Garten ihrer Großmutter.",
]


def main() -> None:
    started = time.perf_counter()
    translator = Translator.from_pretrained(CHECKPOINT, int8=True)
    for source in SENTENCES:
        translation = translator(source, coverage=CoverageOptions())
        print(f"\n{source}\n{translation.text}")
        if translation.coverage is not None and translation.coverage.untranslated:
            print(f"  left out: {', '.join(word.text for word in translation.coverage.untranslated)}")
            again = translator(source, coverage=CoverageOptions(threshold=0.8, retry_beams=8))
            print(f"  tried again with 8 beams: {again.text}")
    print(f"\n{time.perf_counter() - started:.1f} s, with loading the model")


if __name__ == "__main__":
    main()
