"""The table of options, and everything that is made from it."""

import math
import sys
from pathlib import Path

import pytest

from capsule_mt.commands import translate
from capsule_mt.engine import library
from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.models.checking import check_generation
from capsule_mt.models.weights import CheckpointError
from capsule_mt.options.__main__ import main, page
from capsule_mt.options.table import SEARCH_FIELDS, SEARCH_OPTIONS, SearchOptions, offered, request_layout
from capsule_mt.serve.requests import TranslationRequest
from capsule_mt.translate.options import TranslationOptions
from tests.light.engine.conftest import needs_engine
from tests.light.engine.programs import END, PAD, PROGRAMS

ROOT = Path(__file__).resolve().parents[3]
# values that each kind of option refuses, whatever the model: so no token outside of its vocabulary
WRONG = {
    "integer": [-1, 2**40, 1.5, "3", True],
    "number": [math.nan, math.inf, -1e9, "3", True],
    "switch": [0, 1, "True"],
    "choice": [2, 1, "soon"],
    "tokens": [3, "a", [-1], [True], [[1]], [2**31]],
    "phrases": [3, [3], [["a"]], [[-1]]],
}
EACH_WRONG = [(option, value) for option in SEARCH_OPTIONS for value in WRONG[option.kind]]


def test_the_page_is_made_from_the_table():
    assert (ROOT / "docs/options.md").read_text(encoding="utf-8") == page()


def test_the_command_prints_the_page_alone_or_its_help(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["__main__.py"])
    main()
    assert capsys.readouterr().out == page()
    for argument, code in (("--help", 0), ("--unknown", 2)):
        monkeypatch.setattr("sys.argv", ["__main__.py", argument])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == code
        printed = capsys.readouterr()
        assert "usage: " in printed.out + printed.err
        assert page() not in printed.out


def test_a_decoder_gets_the_options_by_their_names():
    batch_fields = {"limits", "forces_end", "prefixes", "shortlist", "scores", "readings", "transformers_only"}
    assert set(SearchOptions._fields) == {option.name for option in SEARCH_FIELDS} | batch_fields
    assert {option.name for option in offered("engine")} <= set(SearchOptions._fields)
    assert all(option.accepts(option.default) for option in SEARCH_OPTIONS if option.default is not None)


def test_the_names_are_those_of_transformers():
    transformers = pytest.importorskip("transformers", reason="the names are held to hf-capsule-mt's transformers")
    config = transformers.GenerationConfig()
    for option in SEARCH_OPTIONS:
        assert hasattr(config, option.name) == (not option.ours)


@pytest.mark.parametrize(("option", "value"), EACH_WRONG)
def test_each_check_refuses_what_an_option_does_not_take(option, value):
    message = f"`{option.name}` must be .*, got "
    with pytest.raises(ValueError, match=message):
        TranslationOptions.from_call(**{option.name: value})
    with pytest.raises(CheckpointError, match=f"^generation_config.json: {message}"):
        check_generation({option.name: value}, 60, "generation_config.json")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("suppress_tokens", [1] * 61),
        ("bad_words_ids", [[1]] * 61),
        ("bad_words_ids", [[1] * 30, [1] * 31]),
        ("bad_words_ids", [[]] * 61),
    ],
)
def test_a_list_longer_than_the_vocabulary_is_refused(name, values):
    message = f"^generation_config.json: `{name}` must have at most 60 tokens, as many as the vocabulary, got 61$"
    with pytest.raises(CheckpointError, match=message):
        check_generation({name: values}, 60, "generation_config.json")
    check_generation({name: values[:1]}, 60, "generation_config.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("forced_decoder_ids", [[1, 2]] * 100_000),
        ("sequence_bias", {str(index): 1.0 for index in range(100_001)}),
        ("anything", {"nested": [[1] * 100_001]}),
        ("_from_model_config", "a" * 100_001),
    ],
)
def test_a_field_that_the_engine_lacks_may_not_be_huge(name, value):
    """Each call compares the options with those of the call before."""
    with pytest.raises(CheckpointError, match=f"^generation_config.json: `{name}` has more than 100000 values$"):
        check_generation({name: value}, 60, "generation_config.json")
    check_generation({name: value[:9] if isinstance(value, (list, str)) else {}}, 60, "generation_config.json")


@needs_engine
@pytest.mark.parametrize(("option", "value"), [case for case in EACH_WRONG if "engine" in case[0].interfaces])
def test_the_engine_refuses_it_too(option, value):
    decoder = EngineDecoder(Engine(PROGRAMS["plain"], int8=False, num_threads=1), PAD, END, PAD)
    with pytest.raises(ValueError, match=f"`{option.name}` must be "):
        decoder.translate([[5, 6]], SearchOptions([5], **{option.name: value}))


@needs_engine
def test_a_library_of_another_table_is_refused(monkeypatch):
    monkeypatch.setattr(library, "VERSION", library.VERSION - request_layout() + (request_layout() ^ 1))
    library.load_library.cache_clear()
    with pytest.raises(library.NativeUnavailableError, match="build it again"):
        library.load_library()


def test_each_flag(monkeypatch, capsys):
    values = {"integer": "2", "number": "1.5"}
    flags = [text for option in offered("flag") for text in (option.flag, values[option.kind])]
    monkeypatch.setattr(sys, "argv", ["translate", "model", *flags])
    settings = translate.options_of(translate.parse_arguments()).generate_kwargs
    assert settings == {option.name: float(values[option.kind]) for option in offered("flag")}
    for option in offered("flag"):
        monkeypatch.setattr(sys, "argv", ["translate", "model", option.flag, "x"])
        with pytest.raises(SystemExit):
            translate.parse_arguments()
        assert f"argument {option.flag}: must be {option.expected}, got x" in capsys.readouterr().err


def test_each_field_of_the_server():
    asked = {"q": "a", "source": "en", "target": "de"}
    values = {option.name: 2 if option.kind == "integer" else 1.5 for option in offered("server")}
    request = TranslationRequest(**asked, **{name: str(value) for name, value in values.items()})  # as a form has them
    assert request.search == values
    assert TranslationRequest(**asked).search == {}
    described = TranslationRequest.model_json_schema()["properties"]
    assert all(described[option.name]["description"] == option.help for option in offered("server"))
