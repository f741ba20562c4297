"""Models by name, from a registry and a hub on this machine: downloads that break off or are damaged."""

import gzip
import json
import multiprocessing
import os
import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from unittest.mock import Mock

import pytest

from capsule_mt.catalog import download as downloading
from capsule_mt.catalog.entries import FACTS_FILE, CatalogError, DownloadError, cache_folder
from capsule_mt.catalog.mozilla import read_registry
from capsule_mt.catalog.pairs import language_pairs, languages_of
from capsule_mt.catalog.store import (
    downloaded_folder,
    downloaded_models,
    legs_of,
    name_of,
    remove_model,
    resolve,
)
from tests.light.catalog.conftest import CONTENT


def version(path, vocabulary="v.spm"):
    return {"architecture": "tiny", "files": {"model": {"path": path}, "vocab": {"path": vocabulary}}}


def stored_files(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


# ---- Mozilla's registry
def test_a_model_of_the_registry(registry):
    folder = Path(resolve("en-pt"))
    assert folder == cache_folder() / "mozilla" / "en-pt"
    files = stored_files(folder)
    assert files["model.enpt.bin"] == CONTENT["model"]
    assert files["vocab.enpt.spm"] == CONTENT["vocab"]
    assert files["lexicalShortlist.enpt.bin"] == CONTENT["lexicalShortlist"]
    assert b"vocabs: [vocab.enpt.spm, vocab.enpt.spm]" in files["config.intgemm8bitalpha.yml"]
    assert b"MPL-2.0 (https://www.mozilla.org/MPL/2.0/)" in files["NOTICE.txt"]
    assert json.loads(files[FACTS_FILE])["licence"] == "MPL-2.0"
    assert len(files) == 3 + len({"config.intgemm8bitalpha.yml", "NOTICE.txt", FACTS_FILE})  # nothing else is left
    asked = len(registry.hub.log)
    assert resolve("EN-pt") == str(folder)
    assert len(registry.hub.log) == asked
    assert [model.name for model in downloaded_models()] == ["en-pt"]


def test_the_best_of_several_versions(registry):
    registry.add("ja-en", "tiny")
    registry.add("ja-en", "base", "Nightly")
    split = {"model": b"m", "srcVocab": b"s", "trgVocab": b"t", "lexicalShortlist": b"l"}
    registry.add("ja-en", "base-memory", content=split)
    registry.models["ja-en"].append({"architecture": "base", "files": {"model": {"path": "no vocabulary"}}})
    registry.publish()
    names = [entry.name for entry in read_registry()]
    assert names == ["en-pt", "en-pt:tiny", "pt-en", "ja-en", "ja-en:tiny", "ja-en:base"]
    config = Path(resolve("ja-en"), "config.intgemm8bitalpha.yml").read_text()
    assert "vocabs: [srcVocab.jaen.spm, trgVocab.jaen.spm]" in config
    assert Path(resolve("en-pt:tiny")).name == "en-pt.tiny"


def test_a_registry_may_name_regions(registry):
    registry.add("pt-BR-en", "base-memory")
    registry.add("en-zh-Hant", "tiny")
    registry.publish()
    names = [entry.name for entry in read_registry()]
    assert names == ["en-pt", "en-pt:tiny", "pt-en", "pt-en:tiny", "en-zh_hant"]
    folder = resolve("pt-BR-en")
    assert (Path(folder).name, registry.asked("pt-BR-en/base-memory")) == ("pt-en", 3)
    assert downloaded_folder("pt-BR-en") == downloaded_folder("pt-en") == folder


def test_a_version_that_is_newer_than_the_program(registry):
    registry.add("en-ja", "base")
    registry.models["en-ja"][0]["version"] = "4.0"
    registry.add("en-ko", "base-memory")
    registry.models["en-ko"][0]["version"] = "v4"
    registry.add("en-ko", "tiny", "Nightly")
    registry.models["en-ko"][1]["version"] = "3.1"
    registry.publish()
    message = (
        r"en-ja: its format has version '4\.0' in .*, newer than this program, which reads versions up to 3: update"
    )
    with pytest.raises(CatalogError, match=message):
        resolve("en-ja")
    assert Path(resolve("en-ko")).name == "en-ko"  # the version that is read
    with pytest.raises(CatalogError, match="en-ko:base-memory: its format has version 'v4'"):
        resolve("en-ko:base-memory")
    assert registry.asked("en-ja/base/exported") == 0


def test_files_that_are_packed_by_zstd(registry):
    registry.add("en-ja", "base")
    for facts in registry.models["en-ja"][0]["files"].values():
        facts["path"] = facts["path"].replace(".gz", ".zst")
    registry.publish()
    with pytest.raises(CatalogError, match=r"en-ja: 'models/en-ja/.*\.zst' in .* packed by zstd.* `zstd -d \*\.zst`"):
        resolve("en-ja")


@pytest.mark.parametrize("length", [0, 1, 3000])
def test_broken_downloads_go_on(registry, length):
    size = len(registry.hub.files["/bucket/models/en-pt/base-memory/exported/model.enpt.bin.gz"])
    registry.hub.cut_next += [("model.enpt.bin.gz", min(length, size - 1))] * 2
    registry.hub.fail_next.append(("GET", "vocab.enpt.spm.gz"))
    assert stored_files(resolve("en-pt"))["model.enpt.bin"] == CONTENT["model"]
    statuses = [status for _, path, status in registry.hub.log if "model.enpt.bin" in path]
    assert statuses == ([200, 206, 206] if length else [200, 200, 200])


def test_a_killed_download_goes_on(registry, monkeypatch):
    def kill():
        with monkeypatch.context() as patched:
            patched.setattr(downloading, "_check_and_move", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                resolve("en-pt")

    kill()
    assert downloaded_models() == []
    assert stored_files(resolve("en-pt"))["model.enpt.bin"] == CONTENT["model"]
    assert registry.asked("model.enpt.bin") == 1
    # killed while what is known of a part was written
    remove_model("en-pt")
    kill()
    (cache_folder() / "mozilla" / "en-pt.partial" / "model.enpt.bin.part.json").write_text('{"val')
    assert stored_files(resolve("en-pt"))["model.enpt.bin"] == CONTENT["model"]
    # another version meanwhile: nothing of the old one is kept
    remove_model("en-pt")
    kill()
    registry.models["en-pt"].clear()
    registry.add("en-pt", content=CONTENT | {"model": b"new" * 100})
    registry.publish()
    (cache_folder() / "mozilla" / "models.json").unlink()
    assert stored_files(resolve("en-pt"))["model.enpt.bin"] == b"new" * 100


def test_a_file_that_changes_while_it_is_downloaded(registry):
    path = "/bucket/models/en-pt/base-memory/exported/vocab.enpt.spm.gz"
    registry.hub.cut_next.append(("vocab.enpt.spm", 5))
    original = registry.hub.send

    def changed(request, data, headers):
        if "vocab.enpt" in request.path and "range" in request.headers:
            registry.hub.files[path] = data = gzip.compress(b"another vocabulary")
            headers["ETag"] = '"another"'
        original(request, data, headers)

    registry.hub.send = changed
    assert stored_files(resolve("en-pt"))["vocab.enpt.spm"] == b"another vocabulary"


def test_no_redirection_leaves_https():
    request = urllib.request.Request("https://example.org/model")
    with pytest.raises(urllib.error.HTTPError, match="a redirection from https to http"):
        downloading._NoDowngrade().redirect_request(request, None, 302, "Found", {}, "http://example.org/model")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: r.add("en-fr", uncompressedHash="0" * 64), "its SHA-256 is .*, but the catalog says 000"),
        (lambda r: r.add("en-fr", uncompressedSize=4), "has more than 4 bytes"),
        (lambda r: r.add("en-fr", uncompressedSize=10**6), "has 200000 bytes, but the catalog says 1000000"),
        (lambda r: _replace(r, b"\x1f\x8bnonsense"), "the gzip file is damaged"),
        (lambda r: _replace(r, gzip.compress(bytes(10**6), mtime=0)), "unpacks to more than 20 times its size"),
        (lambda r: _replace(r, gzip.compress(CONTENT["vocab"])[:-6]), "the gzip file is cut off"),
    ],
    ids=["checksum", "too long", "too short", "no gzip", "a bomb", "cut off"],
)
def test_damaged_files_are_never_taken(registry, damage, message):
    damage(registry)
    registry.publish()
    with pytest.raises(DownloadError, match=rf"/(model|vocab)\.enfr\..*: {message}.*; run the command again to"):
        resolve("en-fr")
    assert downloaded_models() == []
    assert not (cache_folder() / "mozilla" / "en-fr").exists()


def _replace(registry, content):
    registry.add("en-fr")
    registry.hub.files["/bucket/models/en-fr/base-memory/exported/vocab.enfr.spm.gz"] = content


def _resolve_in_a_process(start, results):
    start.wait()
    results.put(resolve("en-pt"))


def test_two_that_want_one_model_download_it_once(registry):
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_resolve_in_a_process, args=(start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    assert {results.get(timeout=120) for _ in processes} == {str(cache_folder() / "mozilla" / "en-pt")}
    for process in processes:
        process.join()
    assert registry.asked("model.enpt.bin") == 1


# ---- without a network
def test_the_copy_of_the_registry(registry):
    for _ in range(3):
        read_registry()
    assert registry.asked("models.json") == 1
    os.utime(cache_folder() / "mozilla" / "models.json", (10**9, 10**9))
    registry.hub.files.clear()
    assert len(read_registry()) == 3  # of yesterday, as there is none today
    assert registry.asked("models.json") == 2
    (cache_folder() / "mozilla" / "models.json").write_text("[")
    with pytest.raises(DownloadError, match=r"models\.json: the server answers 404"):
        read_registry()


def test_without_a_network(registry, monkeypatch):
    resolve("en-pt")
    monkeypatch.setenv("CAPSULE_MT_OFFLINE", "1")
    asked = len(registry.hub.log)
    assert Path(resolve("en-pt")).is_dir()
    assert [entry.name for entry in read_registry()] == ["en-pt", "en-pt:tiny", "pt-en"]
    with pytest.raises(
        CatalogError, match="pt-en: no such folder, and not a downloaded model; CAPSULE_MT_OFFLINE or HF"
    ):
        resolve("pt-en")
    assert len(registry.hub.log) == asked
    monkeypatch.delenv("CAPSULE_MT_OFFLINE")
    registry.hub.stop()
    assert Path(resolve("en-pt")).is_dir()
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:\d+ cannot be reached .*; without a network, name a downl"):
        resolve("pt-en")
    (cache_folder() / "mozilla" / "models.json").unlink()
    with pytest.raises(DownloadError, match="cannot be reached"):
        resolve("en-de")
    monkeypatch.setattr(registry.hub, "stop", lambda: None)


def test_a_mirror_on_a_disk(registry, monkeypatch, tmp_path):
    for path, content in registry.hub.files.items():
        file = tmp_path / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    monkeypatch.setenv("CAPSULE_MT_REGISTRY", (tmp_path / "bucket" / "db" / "models.json").as_uri())
    assert stored_files(resolve("en-pt"))["model.enpt.bin"] == CONTENT["model"]
    assert registry.hub.log == []


def test_where_models_are_kept(monkeypatch):
    monkeypatch.delenv("CAPSULE_MT_CACHE", raising=False)
    for platform, variables, folder in (
        ("linux", {"HOME": "/home/ann"}, "/home/ann/.cache/capsule-mt"),
        ("darwin", {"HOME": "/Users/ann"}, "/Users/ann/Library/Caches/capsule-mt"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/capsule-mt"),
        ("linux", {"CAPSULE_MT_CACHE": "/models"}, "/models"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr("sys.platform", platform)
            patched.delenv("XDG_CACHE_HOME", raising=False)
            for name, value in variables.items():
                patched.setenv(name, value)
            assert cache_folder() == Path(folder)


# ---- names
def test_names(registry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "en-pt").mkdir()
    assert resolve("en-pt") == "en-pt"
    with pytest.raises(
        CatalogError, match=r"^\.\./x: no such folder, and not the name of a model: name a pair such as en-pt"
    ):
        resolve("../x")
    for url in ("https://huggingface.co/facebook/m2m100_418M", "hf.co/facebook/m2m100_418M/tree/main?a=b"):
        with pytest.raises(
            CatalogError, match=f"^{re.escape(url)}: name the model without its URL: facebook/m2m100_418M$"
        ):
            resolve(url)
    with pytest.raises(
        CatalogError, match="en-pr: no such folder, and not in Mozilla's registry; similar names: en-pt"
    ):
        resolve("en-pr")


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("en-pt-BR", "en-pt"),
        ("en_GB-pt_PT", "en-pt"),
        ("en-pt-BR:tiny", "en-pt:tiny"),
        ("zh-TW-en", "zh_hant-en"),
        ("zh-Hant-HK-en", "zh_hant-en"),
        ("en-es-419", "en-es"),
        ("en-zh-Hans", "en-zh"),
        ("en-zh_hant", "en-zh_hant"),
        ("en-pt", "en-pt"),
        ("opus-mt-en-de", "Helsinki-NLP/opus-mt-en-de"),
    ],
)
def test_regions_in_names(name, pair, registry):
    assert name_of(name) == pair


def test_a_region_downloads_the_model_of_its_language(registry):
    assert legs_of("en-pt-BR") == ("en-pt",)
    assert resolve("en-pt-BR") == resolve("en-pt")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("en-pt-BR", ("en", "pt")),
        ("zh-TW-en", ("zh_hant", "en")),
        ("es-419-zh-Hant-HK=model", ("es", "zh_hant")),
        ("en-pt-BR=model", ("en", "pt")),
        ("pt-BR-zh-Hant=model", ("pt", "zh_hant")),
        ("eng_Latn-por_Latn=model", ("eng_Latn", "por_Latn")),
        ("en_XX-pt_XX=model", ("en_XX", "pt_XX")),
        ("Helsinki-NLP/opus-mt-en-pt", ("en", "pt")),
        ("someone/opus-mt-en-pt-BR", ("en", "pt")),
        ("someone/opus-mt-pt-BR-en", ("pt", "en")),
    ],
)
def test_the_pair_of_a_name_with_a_region(text, pair):
    assert list(language_pairs([text])) == [pair]


def test_the_languages_of_an_option_may_have_a_region(tmp_path):
    assert languages_of(tmp_path, "en-pt-BR") == ("en", "pt")


def test_an_option_of_languages_has_nothing_but_a_pair(tmp_path):
    with pytest.raises(ValueError, match="`--languages` must be like en-de, got 'en-de=foo'"):
        languages_of(tmp_path, "en-de=foo")


def test_a_folder_whose_download_was_stopped_at_its_end_is_not_listed(registry):
    folder = Path(resolve("en-pt"))
    folder.rename(folder.with_name("en-pt.partial"))
    assert downloaded_models() == []
    assert resolve("en-pt") == str(folder)
    assert [model.name for model in downloaded_models()] == ["en-pt"]


def test_pairs_that_only_english_connects(registry):
    registry.add("de-en")
    registry.publish()
    assert legs_of("de-pt") == ("de-en", "en-pt")
    assert legs_of("en-pt") == ("en-pt",)
    with pytest.raises(CatalogError, match="pt-ja: no such folder, and not in Mozilla's registry"):
        legs_of("pt-ja")
    for leg in legs_of("de-pt"):
        resolve(leg)
    (cache_folder() / "mozilla" / "models.json").unlink()
    registry.hub.files.clear()
    assert legs_of("de-pt") == ("de-en", "en-pt")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"models": []}, "is not a registry of models: it needs `baseUrl` and `models`"),
        ({"baseUrl": "ftp://example.org"}, r"`baseUrl` must begin with https://, got 'ftp://example\.org'"),
        ({"models": {"en-pt": [version("a/..")]}}, r"'a/\.\.' does not end in a safe file name"),
        ({"models": {"en-pt": [version("a/b", "c/b.gz")]}}, "two files of en-pt have the same name"),
    ],
)
def test_registries_that_are_none(registry, fields, message):
    registry.publish(**fields)
    with pytest.raises(CatalogError, match=message):
        read_registry()
    registry.hub.files = dict.fromkeys(registry.hub.files, b"{")
    with pytest.raises(CatalogError, match=r"models\.json: is not JSON"):
        read_registry()


def test_a_registry_without_an_end_is_refused(registry, monkeypatch):
    monkeypatch.setattr("capsule_mt.catalog.download.MAX_JSON", 100)
    with pytest.raises(CatalogError, match=r"models\.json: has more than 100 bytes$"):
        read_registry()


# ---- the hub
def test_a_model_of_the_hub(hub, word_for_word, tmp_path):
    folder = tmp_path / "opus"
    shutil.copytree(word_for_word, folder)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    (folder / "rust_model.ot").write_bytes(b"not wanted")
    hub.add_folder("Helsinki-NLP/opus-mt-xx-yy", folder)
    path = Path(resolve("opus-mt-xx-yy"))
    assert path == cache_folder() / "hugging_face" / "Helsinki-NLP" / "opus-mt-xx-yy"
    for file in word_for_word.iterdir():
        if file.suffix == ".safetensors" or file.name in ("config.json", "tokenizer.json"):
            assert (path / file.name).read_bytes() == file.read_bytes()
    assert not (path / "rust_model.ot").exists()
    (model,) = downloaded_models()
    assert (model.name, model.licence, model.author) == ("Helsinki-NLP/opus-mt-xx-yy", "cc-by-4.0", "Helsinki-NLP")


def test_weights_that_the_hub_has_converted(hub, word_for_word, tmp_path):
    """Weights in a pull request of the converter are taken; weights of others, and of another file, are not."""
    good = (word_for_word / "model.safetensors").read_bytes()
    folder = tmp_path / "opus"
    shutil.copytree(word_for_word, folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    hub.add_folder("Helsinki-NLP/opus-mt-xx-yy", folder)
    repository = hub.repositories["Helsinki-NLP/opus-mt-xx-yy"]
    repository.in_lfs.add("model.safetensors")
    title = "Adding `safetensors` variant of this model"
    for number, (author, weights, pickled) in enumerate(
        [("mallory", b"bad", b"pickled"), ("SFconvertbot", b"of others", b"other"), ("SFconvertbot", good, b"pickled")]
    ):
        head = dict(repository.files)
        repository.files |= {"model.safetensors": weights, "pytorch_model.bin": pickled}
        pull_request = {"num": number, "title": title, "author": {"name": author}, "sha": repository.commit()}
        repository.pull_requests.append(pull_request)
        repository.files = head
    repository.files["README.md"] = b"newer"
    repository.commit()
    assert (Path(resolve("opus-mt-xx-yy")) / "model.safetensors").read_bytes() == good
    remove_model("opus-mt-xx-yy")
    repository.pull_requests.pop()
    path = Path(resolve("opus-mt-xx-yy"))  # which the engine reads, too
    assert (path / "pytorch_model.bin").read_bytes() == b"pickled"
    assert not (path / "model.safetensors").exists()
    remove_model("opus-mt-xx-yy")
    del repository.files["pytorch_model.bin"]
    repository.commit()
    with pytest.raises(CatalogError, match=r"opus-mt-xx-yy: has neither model\.safetensors nor pytorch_model\.bin"):
        resolve("opus-mt-xx-yy")


def test_weights_in_parts_and_a_tokenizer_of_pieces(hub, word_for_word, tmp_path):
    folder = tmp_path / "m2m100"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "m2m_100"}')
    names = ["sentencepiece.bpe.model", "vocab.json", "pytorch_model.bin.index.json"]
    names += [f"pytorch_model-0000{index}-of-00002.bin" for index in (1, 2)]
    for name in names:
        (folder / name).write_text(name)
    hub.add_folder("facebook/m2m100_418M", folder)
    path = Path(resolve("facebook/m2m100_418M"))
    assert all((path / name).read_text() == name for name in names)


def test_models_that_the_hub_has_not(hub, tmp_path):
    with pytest.raises(
        CatalogError,
        match=r"Helsinki-NLP/opus-mt-xx-zz: no such folder, and http://.* has no public model of this name",
    ):
        resolve("opus-mt-xx-zz")
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    hub.add_folder("google-t5/t5-small", tmp_path)
    with pytest.raises(CatalogError, match="google-t5/t5-small: its model_type is 't5', and the engine runs marian, "):
        resolve("google-t5/t5-small")
