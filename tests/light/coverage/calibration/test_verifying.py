"""What `capsule-mt calibrate --reverse` measures, with a model whose coverage is given."""

from types import SimpleNamespace

from capsule_mt.coverage.calibration import verifying


def test_an_alarm_flags_few_whole_translations(monkeypatch):
    texts = [f"{n} two three four five six seven eight." for n in range(400)]

    def cover(translator, examples, method):  # a whole translation loses a word now and then
        lengths = [len(example.translation.split()) for example in examples]
        lost = [int(example.source.split()[0]) % 50 == 0 for example in examples]
        return [SimpleNamespace(score=(length - low) / 8) for length, low in zip(lengths, lost, strict=True)]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    alarm = verifying.choose_alarm(None, texts, texts)
    assert alarm["flagged"] <= 2 * verifying.FLAGGED_SHARE
    assert alarm["score"] <= 1
    assert alarm["caught"] == {"three words": 1.0, "a quarter": 1.0, "a half": 1.0}


def test_the_alarm_of_given_translations_is_chosen_on_those_of_any_length(monkeypatch):
    pairs = [
        (f"{n} two", "short") if n % 41 == 0 else (f"{n} two", f"{n} two three four five six seven eight.")
        for n in range(400)
    ]

    def cover(translator, examples, method):
        return [SimpleNamespace(score=len(example.translation.split()) / 10) for example in examples]

    monkeypatch.setattr(verifying, "coverage_of_examples", cover)
    alarm = verifying.choose_human_alarm(None, pairs)
    assert alarm["score"] == 0.1  # of the ten short ones
    assert alarm["flagged"] == 0.0
    assert alarm["caught"] == {"three words": 0.0, "a quarter": 0.0, "a half": 0.0}
    assert verifying.choose_human_alarm(None, pairs[:50]) is None
