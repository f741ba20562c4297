"""How many good translations the alarm of a calibration flags, and how many it catches that have lost something.

    python -m lab.alarm outputs/pten flores.por --reverse outputs/enpt --student --output outputs/alarm-pt-en.json

The model translates the lines greedily, each as one sentence. Flagged: of the translations of eight words or more, as
they are. Caught: of the same without three words in a row, a quarter or a half.
"""

import argparse
from pathlib import Path
from typing import Any

from capsule_mt import Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.calibration.calibrating import own_translations
from capsule_mt.coverage.calibration.verifying import scores_with_losses
from capsule_mt.files.reading import read_lines
from hf_capsule_mt.evaluation import write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("model", help="the folder of the model that translates")
    parser.add_argument("source", type=Path, help="held-out text, one sentence a line")
    parser.add_argument("--reverse", required=True, help="the folder of the reverse model")
    parser.add_argument("--student", action="store_true", help="translate in int8, with the shortlist")
    parser.add_argument("--output", type=Path, default=Path("outputs/alarm.json"), help="the result file")
    arguments = parser.parse_args()
    translator = Translator.from_pretrained(
        arguments.model, int8=arguments.student, shortlist=arguments.student, reverse=arguments.reverse
    )
    alarm = translator.calibration.alarm("verified")
    if alarm is None:
        raise ValueError(
            f"the calibration of {arguments.model} has no alarm: `capsule-mt calibrate --reverse` finds one"
        )
    record: dict[str, Any] = {"kind": "alarm", "model": Path(arguments.model).name, "text": arguments.source.name}
    sources = read_lines(arguments.source)
    complete, cut = scores_with_losses(translator, sources, own_translations(translator, sources))
    record |= {"alarm": alarm, "translations": len(complete), "flagged": int((complete < alarm).sum())}
    record["caught"] = {name: float((values < alarm).mean()) for name, values in cut.items()}
    path = write_result(arguments.output, record)
    print(f"{record}\nResult: {path}")


if __name__ == "__main__":
    run(main)
