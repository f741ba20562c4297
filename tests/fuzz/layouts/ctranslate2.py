"""Folders of CTranslate2 and packages of Argos Translate, judged by `ctranslate2` in `CAPSULE_MT_CTRANSLATE2`.

The judge writes the weights of random layers; what lies around them is drawn. Its search is greedy, as its beams stop
sooner than ours.
"""

import json
import os
import random
import shutil
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from capsule_mt.models.sentencepiece import SentencePieceEncoder, joined_pieces, read_sentencepiece
from tests.ctranslate2.judge import Judge
from tests.ctranslate2.variants import BUILT_REFUSED, GELU, GELU_SIGMOID, RELU, SIGMOID, SWISH
from tests.fixtures.ctranslate2 import Variable, flag, rewrite, text
from tests.fixtures.marian_models import FOLDER, SOURCES
from tests.fuzz.layouts.reading import Reading, read_by_us

Case = dict[str, Any]
TEXTS = [SOURCES[0], SOURCES[3], f"{SOURCES[7]} €"]
LIMIT = 16  # tokens of a translation
ABSENT = "(absent)"
BLANK, BEGIN, END, UNKNOWN = "<blank>", "<s>", "</s>", "<unk>"
SPECIAL = ([UNKNOWN, BEGIN, END, BLANK], [BLANK, UNKNOWN, BEGIN, END], [BEGIN, "<pad>", END, UNKNOWN])
TAGS = [">>deu<<", ">>eng<<", ">>cmn_Hans<<"]
LANGUAGES = {"nllb": ("deu_Latn", "eng_Latn", "fra_Latn"), "m2m100": ("__de__", "__en__", "__fr__")}
CODES = {"nllb": ("deu_Latn", "fra_Latn"), "m2m100": ("de", "fr")}
# arguments of `TransformerSpec.from_config`
SPECIFICATION: dict[str, list[Any]] = {
    "pre_norm": [True, False],
    "activation": [RELU, RELU, GELU, SWISH, GELU_SIGMOID, SIGMOID],
    "no_final_norm": [False, True],
    "layernorm_embedding": [False, True],
}
# options of `build` in tests/ctranslate2/process.py
OPTIONS: dict[str, list[Any]] = {
    "width": [32, 16, 24],
    "inner": [48, 33],
    "heads": [4, 2, 8],
    "depths": [(2, 2), (1, 1), (3, 1), (1, 3)],
    "positions": [True, False],
    "num_positions": [160, 64],
    "biases": [True, False],
    "tied": [True, False],
    "shared": [True, False],
    "special": [*SPECIAL],
}
QUANTIZATIONS = [
    *(None, None, "float16", "bfloat16", "int16", "int8", "int8"),
    *("int8_float32", "int8_float16", "int8_bfloat16"),
]
SCALES: list[Any] = [True, False, 1.0, "root"]
# of config.json, as some converter writes them
CONFIGURATION: dict[str, list[Any]] = {
    "add_source_bos": [False, True],
    "add_source_eos": [False, True],
    "decoder_start_token": [BEGIN, END, BLANK],
    "layer_norm_epsilon": [1e-5, 1e-6, 1e-3],
    "bos_token": [BEGIN],
    "eos_token": [END],
    "unk_token": [UNKNOWN],
    "multi_query_attention": [False],
    "quantization_type": [0],
}
STRANGE: dict[str, list[Any]] = {
    "add_source_eos": ["yes", 1, None],
    "bos_token": [None],
    "decoder_start_token": [None, "<start>"],
    "layer_norm_epsilon": [0, "1e-6", None],
    "unk_token": ["<UNK>"],
    "eos_token": ["<eos>", None],
    "langs": [["de"]],
    "quantization_type": [3],
}
PIECES: dict[str, tuple[str, ...]] = {  # the first one cuts sources
    **dict.fromkeys(("sentencepiece.model", "spm.model", "source.spm", "joint.spm"), ("joint.spm",)),
    "source.spm target.spm": ("de.spm", "en.spm"),
    "source.spm target.spm spm.model": ("de.spm", "en.spm", "joint.spm"),
    "a.model b.model": ("de.spm", "en.spm"),
    "de.spm en.spm": ("de.spm", "en.spm"),
    "": (),
}
PIECES_WEIGHTS = (5, 2, 2, 1, 8, 2, 1, 1, 0.3)
ENDINGS = ("\n", "\r\n")
EXTRA_FILES = {
    **dict.fromkeys(("README.md", "LICENSE", "tokenizer.json", "generation_config.json", "vmap.txt"), "{}"),
    "tokenizer_config.json": '{"src_lang": "deu_Latn"}',
    "special_tokens_map.json": "{}",
    "vocab.json": "{}",
    "source.bpe": "",
}
METADATA: dict[str, list[Any]] = {
    "package_version": ["1.0"],
    "argos_version": ["1.9.0"],
    "from_code": ["de"],
    "to_code": ["en"],
    "from_name": ["German"],
    "type": ["translate"],
    "dependencies": [[]],
    "links": [["https://example.org"]],
    "target_prefix": ["", "", "▁I", "<missing>"],
}


# ---- draw a folder
def make(generator: random.Random) -> Case:
    def drawn(values: dict[str, list[Any]], share: float) -> dict[str, Any]:
        return {name: generator.choice(choices) for name, choices in values.items() if generator.random() < share}

    kind = generator.choice(("opennmt", "opennmt", "marian", "marian", "nllb", "m2m100", "argos", "argos"))
    options = drawn(OPTIONS, 0.25)
    if kind in LANGUAGES:
        options |= {"special": SPECIAL[2], "shared": True}
    elif not options.get("shared", True):
        options["source_size"] = generator.choice((150, 180))
    config = drawn(CONFIGURATION, 0.3)
    if kind in LANGUAGES:
        config |= {"decoder_start_token": END}
        for name in ("add_source_bos", "add_source_eos"):
            config.pop(name, None)
    version = generator.choice((6, 6, 6, 6, 5, 4, 3, 2)) if kind in ("opennmt", "marian") else 6
    if version < 4:
        options["heads"] = 8
    return {
        "family": "ctranslate2",
        "kind": kind,
        "seed": generator.randrange(1 << 30),
        "specification": {
            name: generator.choice(values) if generator.random() < 0.4 else values[0]
            for name, values in SPECIFICATION.items()
        },
        "options": options,
        "scale": generator.choice(SCALES) if generator.random() < 0.3 else True,
        "zero start": kind == "marian" or (kind == "opennmt" and generator.random() < 0.1),
        "quantization": generator.choice(QUANTIZATIONS),
        "refused": generator.choice(sorted(BUILT_REFUSED)) if generator.random() < 0.04 else None,
        "config": config,
        "strange": drawn(STRANGE, 0.01),
        "dropped": [name for name in CONFIGURATION if generator.random() < 0.01],
        "version": version,
        "vocabulary": generator.choice(("json", "json", "txt", "both")),
        "ending": generator.choice(ENDINGS),
        "last ending": generator.random() < 0.8,
        "lacks unknown": generator.random() < 0.03,
        "tags": kind == "marian" and generator.random() < 0.3,
        "pieces": generator.choices([*PIECES], PIECES_WEIGHTS)[0],
        "metadata": drawn(METADATA, 0.5),
        "form": generator.choice(("folder", "flat", "archive", "archive")) if kind == "argos" else "folder",
        "title": "translate-de_en-1_0.argosmodel" if kind == "argos" else "model",
        "extra": generator.sample(sorted(EXTRA_FILES), generator.choice((0, 0, 1, 2))),
    }


# ---- write it
@cache
def judge() -> Judge:
    return Judge(Path(tempfile.gettempdir()))


@cache
def pieces_of(name: str) -> list[str]:
    return [piece for piece in read_sentencepiece(str(FOLDER / name)).texts if not piece.startswith("<")]


def tokens_after_special(case: Case) -> list[str]:
    names = PIECES[case["pieces"]] if case["kind"] != "argos" else ("joint.spm",)
    pieces = [*dict.fromkeys(piece for name in names[:2] or ("joint.spm",) for piece in pieces_of(name))]
    generator = random.Random(case["seed"])
    generator.shuffle(pieces)
    pieces = pieces[: generator.choice((200, 260, len(pieces)))]
    if case["tags"]:
        pieces = [*TAGS, *pieces]
    return [*pieces, *LANGUAGES.get(case["kind"], ()), *(["<mask>"] if case["kind"] == "nllb" else [])]


def write(case: Case, folder: Path) -> None:
    root = folder.parent / "unpacked" if case["form"] == "archive" else folder
    model = root / "model" if case["kind"] == "argos" and case["form"] != "flat" else root
    build(case, model)
    if case["version"] < 6:
        write_old_version(case, model)
    write_vocabularies(case, model)
    for name in case["extra"]:
        (model / name).write_text(EXTRA_FILES[name])
    if case["kind"] == "argos":
        shutil.copy(FOLDER / "joint.spm", root / "sentencepiece.model")
        (root / "metadata.json").write_text(json.dumps(case["metadata"]))
    else:
        for name, pieces in zip(case["pieces"].split(), PIECES[case["pieces"]], strict=True):
            shutil.copy(FOLDER / pieces, model / name)
    if case["form"] == "archive":
        with zipfile.ZipFile(folder, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(root.rglob("*")):
                archive.write(path, f"translate-de_en-1_0/{path.relative_to(root)}")


def build(case: Case, folder: Path) -> None:
    """Let CTranslate2 write a model, and change its config.json."""
    variant = BUILT_REFUSED[case["refused"]][0] if case["refused"] else {}
    scale = case["scale"]
    if scale == "root":
        scale = float(case["options"].get("width", 32)) ** 0.5
    settings = {f"{side}/scale_embeddings": scale for side in ("encoder", "decoder")} if scale is not True else {}
    if case["zero start"]:
        settings["decoder/start_from_zero_embedding"] = True
    options = {**case["options"], **{name: variant[name] for name in ("positions", "shared") if name in variant}}
    judge().run(
        "build",
        folder=str(folder),
        pieces=tokens_after_special(case),
        spec={**case["specification"], **variant.get("spec", {})},
        config={},
        settings=settings | variant.get("settings", {}),
        quantization=case["quantization"],
        seed=case["seed"],
        **options,
    )
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8")) | case["config"] | variant.get("config", {}) | case["strange"]
    file.write_text(json.dumps({name: value for name, value in config.items() if name not in case["dropped"]}))


def write_old_version(case: Case, folder: Path) -> None:
    """Write the model as an older version has it: settings are variables instead of config.json."""
    config, version = json.loads((folder / "config.json").read_text("utf-8")), case["version"]
    (folder / "config.json").unlink()

    def change(variables: dict[str, Variable], aliases: dict[str, str]) -> None:
        for name, variable in (("add_source_bos", "with_source_bos"), ("add_source_eos", "with_source_eos")):
            if config.get(name) is not None:
                variables[variable] = flag(int(bool(config[name])))
        if config.get("decoder_start_token") == END:
            variables["with_target_bos"] = flag(0)
        for name in ("unk_token", "bos_token", "eos_token"):
            if isinstance(config.get(name), str):
                variables[name] = text(config[name])
        if version < 5:
            for name in ("pre_norm", "activation"):
                variables[name] = variables.pop(f"encoder/{name}")
                del variables[f"decoder/{name}"]
            for side in ("encoder", "decoder"):
                del variables[f"{side}/num_heads"]
            if version == 4:
                variables["num_heads"] = Variable((), 2, struct.pack("<h", case["options"].get("heads", 4)))

    revision = {5: 5, 4: 4}.get(version, 2)
    specification = "TransformerSpec" if version >= 4 else "TransformerBase"
    rewrite(folder, change, version=version, revision=revision, specification=specification)


def write_vocabularies(case: Case, folder: Path) -> None:
    """Write the lists of tokens as the case has them; where there are two forms, the other one is reversed."""
    for file in sorted(folder.glob("*_vocabulary.json")):
        tokens = json.loads(file.read_text("utf-8"))
        if case["lacks unknown"] and tokens[-1] != UNKNOWN:
            tokens = [*(token for token in tokens if token != UNKNOWN), UNKNOWN][:-1]
        file.write_text(json.dumps(tokens, ensure_ascii=case["seed"] % 2 == 0), "utf-8")
        if case["vocabulary"] == "json":
            continue
        lines = tokens if case["vocabulary"] == "txt" else tokens[::-1]
        content = case["ending"].join(lines) + (case["ending"] if case["last ending"] else "")
        file.with_suffix(".txt").write_bytes(content.encode())
        if case["vocabulary"] == "txt":
            file.unlink()


# ---- read it
def texts_of(case: Case) -> list[str]:
    return [f"{TAGS[0]} {line}" for line in TEXTS] if case["tags"] else TEXTS


def model_of(case: Case, folder: Path) -> Path:
    """Return the folder that CTranslate2 reads."""
    root = folder.parent / "unpacked" if case["form"] == "archive" else folder
    return root / "model" if case["kind"] == "argos" and case["form"] != "flat" else root


def tokens_of(case: Case, folder: Path) -> list[str]:
    special = case["options"].get("special", SPECIAL[0])
    tokens = [*special, *tokens_after_special(case)]
    return [*(token for token in tokens if token != UNKNOWN), UNKNOWN] if case["lacks unknown"] else tokens


def read_ours(case: Case, folder: Path) -> Reading:
    os.environ["CAPSULE_MT_CACHE"] = str(folder.parent / "cache")
    languages = CODES.get(case["kind"], (None, None))
    limits = {"num_beams": 1, "max_new_tokens": LIMIT}
    return read_by_us(folder, texts_of(case), languages, **limits)._replace(sources=[])


@cache
def encoder(name: str) -> SentencePieceEncoder:
    return SentencePieceEncoder(read_sentencepiece(str(FOLDER / name)))


def sources_of(case: Case) -> list[list[str]]:
    """Return the tokens that a user of CTranslate2 passes on."""
    name = "joint.spm" if case["kind"] == "argos" or not case["pieces"] else PIECES[case["pieces"]][0]
    sources = [encoder(name).encode(line)[0] for line in TEXTS]
    if case["tags"]:
        sources = [[TAGS[0], *source] for source in sources]
    if case["kind"] in LANGUAGES:
        return [[LANGUAGES[case["kind"]][0], *source, END] for source in sources]
    # transformers' tokenizer ends a source of Marian's, unless the model does
    adds_end = (
        bool((case["config"] | case["strange"]).get("add_source_eos")) and "add_source_eos" not in case["dropped"]
    )
    return [[*source, END] for source in sources] if case["zero start"] and not adds_end else sources


def read_theirs(case: Case, folder: Path) -> Reading:
    model, sources = str(model_of(case, folder)), sources_of(case)
    prefix = [LANGUAGES[case["kind"]][2]] if case["kind"] in LANGUAGES else []
    if case["kind"] == "argos" and case["metadata"].get("target_prefix"):
        prefix = [case["metadata"]["target_prefix"]]
    options = {"target_prefix": [prefix] * len(sources)} if prefix else {}
    translations = judge().run(
        "translate", folder=model, sources=sources, beam_size=1, max_decoding_length=LIMIT, **options
    )
    hypotheses = [hypotheses[0] for hypotheses, _ in translations]
    scores = judge().run("score", folder=model, sources=sources, targets=hypotheses)
    tokens = tokens_of(case, folder)
    ids = [[tokens.index(token) for token in hypothesis] for hypothesis in hypotheses]
    end = tokens.index(END)
    ids = [line if len(line) >= LIMIT else [*line, end] for line in ids]
    hidden = {BEGIN, END, BLANK, "<pad>", "<mask>", *prefix, *TAGS, *LANGUAGES.get(case["kind"], ())}
    if case["kind"] in LANGUAGES:  # whose tokenizer in transformers hides this one, too
        hidden.add(UNKNOWN)
    decoded = [joined_pieces([token for token in hypothesis if token not in hidden]) for hypothesis in hypotheses]
    return Reading([], ids, decoded, [line[: len(ids[index])] for index, line in enumerate(scores)])
