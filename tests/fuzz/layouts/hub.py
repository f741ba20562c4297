"""Folders for transformers, which is the judge: OPUS-MT, M2M100, NLLB-200 and mBART-50."""

import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from capsule_mt.models.fairseq_tokenizer import LANGUAGES
from tests.decoding.test_languages import CODES, TOKENIZERS, tokenizer_of, train_pieces
from tests.fixtures.opus_mt import train_pieces as train_opus_pieces
from tests.fuzz.layouts.reading import Reading, read_by_us

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

Case = dict[str, Any]
ABSENT = "(absent)"
TEXTS = ["Der alte Mann kauft einen Hut.", "12 rote Hüte", ">>deu<< The old man sleeps - doesn't he?"]
GERMAN, ENGLISH = "Der alte Mann kauft einen roten Hut und geht über die Straße.", "The old man buys 12 red hats."
SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 64,
}
# of config.json, with the values that are drawn for each; the model is built with the drawn ones
SHARED_OPTIONS: dict[str, list[Any]] = {
    "scale_embedding": [True, False],
    "activation_function": ["relu", "relu", "gelu", "swish", "silu", "gelu_new"],
    "encoder_layers": [1, 2, 3],
    "decoder_layers": [1, 2],
    "decoder_attention_heads": [1, 4, 8],
    "encoder_ffn_dim": [12, 33],
    "tie_word_embeddings": [True, True, True, False],
}
OPTIONS: dict[str, dict[str, list[Any]]] = {
    "opus_mt": {
        **SHARED_OPTIONS,
        "static_position_embeddings": [True, False],
        "normalize_before": [False, True],
        "normalize_embedding": [False, True],
        "add_final_layer_norm": [False, True],
        "add_bias_logits": [False, True],
        "share_encoder_decoder_embeddings": [True, True, True, False],
    },
    **dict.fromkeys(("m2m100", "nllb", "mbart50"), SHARED_OPTIONS),
}
# of config.json, without an effect on the weights
STATED: dict[str, list[Any]] = {
    "dropout": [0.1, 0.3],
    "encoder_layerdrop": [0.0, 0.2],
    "use_cache": [True, False],
    "output_attentions": [False],
    "torch_dtype": ["float32", "float16", "bfloat16"],
    "dtype": ["float32", "float16"],
    "transformers_version": ["4.22.0", "5.1.0"],
    "id2label": [{"0": "LABEL_0"}],
    "_name_or_path": ["/tmp/model"],
    "num_hidden_layers": [1],
    "num_attention_heads": [2],
    "hidden_size": [16],
    "classif_dropout": [0.0],
    "init_std": [0.02],
    "extra_pos_embeddings": [0, 2],
    "gradient_checkpointing": [False],
    "is_encoder_decoder": [True],
    "architectures": [None, []],
    "prefix": [None],
}
# of generation_config.json, or of config.json in old checkpoints
SEARCH: dict[str, list[Any]] = {
    "num_beams": [1, 2, 4],
    "length_penalty": [0.6, 1.0, 2.0],
    "early_stopping": [True, False, "never"],
    "no_repeat_ngram_size": [0, 2, 3],
    "repetition_penalty": [1.0, 1.3],
    "min_length": [0, 4, 8],
    "min_new_tokens": [3, 6],
    "max_length": [12, 20],
    "max_new_tokens": [7, 14],
    "renormalize_logits": [True, False],
    "do_sample": [False],
    "num_return_sequences": [1],
    "temperature": [1.0, 0.7],
    "top_k": [50, 10],
    "suppress_tokens": [[5, 6], []],
    "encoder_no_repeat_ngram_size": [0],
    "encoder_repetition_penalty": [1.0],
    "diversity_penalty": [0.0],
    "num_beam_groups": [1],
    "use_cache": [True],
    "output_scores": [False],
    "guidance_scale": [None, 1.0],
}
REFUSED: dict[str, list[Any]] = {
    "begin_suppress_tokens": [[7]],
    "encoder_no_repeat_ngram_size": [2],
    "encoder_repetition_penalty": [1.2],
    "do_sample": [True],
    "output_scores": [True],
    "exponential_decay_length_penalty": [[2, 1.5]],
    "sequence_bias": [[[[5], 1.5]]],
}
EXTRA_FILES = {
    ".gitattributes": "*.bin filter=lfs\n",
    "README.md": "---\nlicense: mit\n---\n",
    "tf_model.h5": "not a model",
    "flax_model.msgpack": "not a model",
    "rust_model.ot": "not a model",
    "training_args.bin": "not a model",
    "benchmark_translations.zip": "PK",
    "decoder_model.onnx": "not a model",
    "metadata.json": "{}",
    "all_results.json": '{"bleu": 1}',
    ".DS_Store": "",
    "vocab.json.bak": "{",
    "merges.txt": "",
    "optimizer.pt": "not a model",
}
FORMS = "safetensors", "bin", "safetensors shards", "bin shards"
NAMES = "tied", "no bias", "positions", "other bin", "no metadata", "unused", "buffers"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
CLASSES = {"opus_mt": "Marian", "m2m100": "M2M100", "nllb": "M2M100", "mbart50": "MBart"}
TAGS = ">>deu<<", ">>eng<<", ">>cmn_Hans<<"


# ---- draw a folder
def make(family: str, generator: random.Random) -> Case:
    options = {
        name: generator.choice(values) if generator.random() < 0.35 else values[0]
        for name, values in OPTIONS[family].items()
    }
    stated = {name: generator.choice(values) for name, values in STATED.items() if generator.random() < 0.25}
    search = {name: generator.choice(values) for name, values in SEARCH.items() if generator.random() < 0.15}
    if family in ("m2m100", "nllb"):  # transformers counts no position for a padding token, which no model writes
        search["suppress_tokens"] = [1]
    search |= {name: generator.choice(values) for name, values in REFUSED.items() if generator.random() < 0.01}
    changed = [*OPTIONS[family], "is_encoder_decoder", "model_type", "pad_token_id", "decoder_start_token_id"]
    changed += ["eos_token_id", "bos_token_id", "forced_eos_token_id", "vocab_size", "max_position_embeddings"]
    dropped = {name: ABSENT for name in changed if generator.random() < 0.03}
    return {
        "family": family,
        "seed": generator.randrange(1 << 30),
        "options": options,
        "stated": stated | dropped,
        "search": search,
        "search_in": generator.choice(("generation_config.json", "generation_config.json", "config.json", "both")),
        "form": "old bin" if generator.random() < 0.02 else generator.choice(FORMS),
        "dtype": generator.choice(("float32", "float32", "float16", "bfloat16")),
        "names": generator.sample(NAMES, generator.choice((0, 0, 1, 2))),
        "tokenizer": generator.sample(sorted(TOKENIZER_CHANGES[family]), generator.choice((0, 0, 1, 1, 2))),
        "extra": generator.sample(sorted(EXTRA_FILES), generator.choice((0, 0, 1, 3))),
        "tags": generator.random() < 0.4,
        "languages": generator.choice(((None, None), ("de", "en"), ("en", "de"), (None, "de"))),
    }


# ---- tokenizers
@cache
def tokenizer_folder(family: str) -> Path:
    """Return a folder with the files of a tokenizer, made once for a process."""
    folder = Path(tempfile.mkdtemp(prefix=f"{family}-"))
    if family != "opus_mt":
        name = family
        train_pieces(folder, model_type="bpe" if name == "nllb" else "unigram")
        tokenizer = tokenizer_of(name, folder)
        tokenizer.save_pretrained(folder)
        edit(folder / "tokenizer_config.json", lambda facts: facts | {"tokenizer_class": TOKENIZERS[name].__name__})
        return folder
    lines = [GERMAN, ENGLISH, *TEXTS] * 20
    sides = [train_opus_pieces(folder / f"{side}.spm", lines, 70) for side in ("source", "target")]
    pieces = dict.fromkeys(piece for side in sides for piece in side if piece not in ("<s>", "</s>", "<unk>"))
    tokens = ["</s>", "<unk>", *pieces, *TAGS, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "deu"}))
    return folder


def edit(file: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.write_text(json.dumps(change(content), ensure_ascii=False), "utf-8")


def _config_change(**fields: Any) -> Callable[[Path, random.Random], None]:
    return lambda folder, generator: edit(folder / "tokenizer_config.json", lambda content: content | fields)


def _shuffle(folder: Path, generator: random.Random) -> None:
    def shuffled(content: dict[str, int]) -> dict[str, int]:
        items = list(content.items())
        generator.shuffle(items)
        return dict(items)

    if (folder / "vocab.json").exists():
        edit(folder / "vocab.json", shuffled)


def _renumber(folder: Path, generator: random.Random) -> None:
    """Give pieces other ids; the special tokens keep theirs."""

    def renumbered(content: dict[str, int]) -> dict[str, int]:
        names = [name for name in content if not name.startswith("<") and not name.startswith(">>")]
        ids = [content[name] for name in names]
        generator.shuffle(ids)
        return content | dict(zip(names, ids, strict=True))

    edit(folder / "vocab.json", renumbered)


def _separate(folder: Path, generator: random.Random) -> None:
    shutil.copy(folder / "vocab.json", folder / "target_vocab.json")
    _config_change(separate_vocabs=True)(folder, generator)


def _remove(*names: str) -> Callable[[Path, random.Random], None]:
    def remove(folder: Path, generator: random.Random) -> None:
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return remove


def _write(name: str, content: Any) -> Callable[[Path, random.Random], None]:
    return lambda folder, generator: edit(folder / name, lambda old: content)


SHARED_CHANGES: dict[str, Callable[[Path, random.Random], None]] = {
    "order of keys": _shuffle,
    "no tokenizer_config": _remove("tokenizer_config.json"),
    "model_max_length": _config_change(model_max_length=512),
    "clean_up": _config_change(clean_up_tokenization_spaces=True),
    "no clean_up": _config_change(clean_up_tokenization_spaces=False),
    "special tokens map": _write(
        "special_tokens_map.json", {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    ),
    "special tokens as objects": _config_change(
        eos_token={"__type": "AddedToken", "content": "</s>", "lstrip": False, "rstrip": False, "normalized": False}
    ),
    "auto_map": _config_change(auto_map={"AutoTokenizer": None}),
    "no added_tokens": _remove("added_tokens.json"),
    "no special_tokens_map": _remove("special_tokens_map.json"),
    "sp_model_kwargs": _config_change(sp_model_kwargs={}),
}
TOKENIZER_CHANGES: dict[str, dict[str, Callable[[Path, random.Random], None]]] = {
    "opus_mt": SHARED_CHANGES
    | {
        "ids": _renumber,
        "separate": _separate,
        "other languages": _config_change(source_lang="de", target_lang="en"),
        "no languages": _write("tokenizer_config.json", {}),
        "class": _config_change(tokenizer_class="MarianTokenizer"),
        "no target pieces": _remove("target.spm"),
        "swapped pieces": lambda folder, generator: _swap(folder / "source.spm", folder / "target.spm"),
        "no vocabulary": _remove("vocab.json"),
        "fast": _config_change(tokenizer_class="PreTrainedTokenizerFast"),
    },
    **{
        family: SHARED_CHANGES
        | {
            "no tokenizer.json": _remove("tokenizer.json"),
            "no pieces": _remove("sentencepiece.bpe.model"),
            "source": _config_change(src_lang=CODES[family]["fr"]),
            "target": _config_change(tgt_lang=CODES[family]["ru"]),
            "legacy": _config_change(legacy_behaviour=True),
        }
        for family in ("m2m100", "nllb", "mbart50")
    },
}


def _swap(first: Path, second: Path) -> None:
    if not (first.exists() and second.exists()):  # another change has removed one
        return
    contents = second.read_bytes(), first.read_bytes()
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])


# ---- write a folder
def write(case: Case, folder: Path) -> None:
    generator = random.Random(case["seed"])
    shutil.copytree(tokenizer_folder(case["family"]), folder)
    config, state = build(case, folder, generator)
    stated = config | {"model_type": config["model_type"]} | case["stated"]
    stated = {name: value for name, value in stated.items() if value != ABSENT}
    if case["search"] and case["search_in"] in ("config.json", "both"):
        stated |= case["search"]
    (folder / "config.json").write_text(json.dumps(stated))
    if case["search_in"] != "config.json":
        special = {name: config[name] for name in SPECIAL if generator.random() < 0.97 and name in config}
        (folder / "generation_config.json").write_text(json.dumps(special | case["search"]))
    for change in case["tokenizer"]:
        TOKENIZER_CHANGES[case["family"]][change](folder, generator)
    write_weights(case, state, folder)
    for name in case["extra"]:
        (folder / name).write_text(EXTRA_FILES[name])


SPECIAL = ("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id", "forced_eos_token_id")


def build(case: Case, folder: Path, generator: random.Random) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return config.json and the weights of a random model, with other names for tied ones."""
    family = case["family"]
    if family == "opus_mt":
        vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
        pad, end, size = vocabulary["<pad>"], vocabulary["</s>"], len(vocabulary)
        special = {"pad_token_id": pad, "eos_token_id": end, "bos_token_id": 0, "decoder_start_token_id": pad}
        special |= {"forced_eos_token_id": end, "bad_words_ids": [[pad]]}
    else:
        tokenizer = cached_tokenizer(family)
        codes = LANGUAGES["m2m100"].split() if family == "m2m100" else []
        languages = tokenizer.convert_tokens_to_ids([f"__{code}__" for code in codes])
        size = max(*tokenizer.get_vocab().values(), *languages) + 1
        special = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
    options = SIZES | case["options"]
    config_class = getattr(transformers, f"{CLASSES[family]}Config")
    name = "MarianMTModel" if family == "opus_mt" else f"{CLASSES[family]}ForConditionalGeneration"
    torch.manual_seed(case["seed"])
    model_options = {name: value for name, value in special.items() if name != "bad_words_ids"}
    model = getattr(transformers, name)(config_class(vocab_size=size, **options, **model_options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                mean = parameter.mean().round() if parameter.dim() == 1 else 0  # scales of LayerNorm are about 1
                parameter.copy_(0.35 * torch.randn_like(parameter) + mean)
        if family == "opus_mt":
            model.final_logits_bias.copy_(0.5 * torch.randn_like(model.final_logits_bias))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if "tied" not in case["names"] and case["options"].get("tie_word_embeddings", True):
        for name in TIED if case["options"].get("share_encoder_decoder_embeddings", True) else ():
            state.pop(name, None)
    if "no bias" in case["names"]:
        state.pop("final_logits_bias", None)
    if "positions" not in case["names"]:
        for side in ("encoder", "decoder") if family != "mbart50" else ():
            state.pop(f"model.{side}.embed_positions.weight", None)
    if "unused" in case["names"]:
        state["guided_losses.weight"] = torch.zeros(2)
    if "buffers" in case["names"]:
        state |= {f"model.{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
    config = {"model_type": config_class.model_type, "vocab_size": size, **options, **special}
    return config, state


@cache
def cached_tokenizer(family: str) -> Any:
    return AutoTokenizer.from_pretrained(tokenizer_folder(family))


def write_weights(case: Case, state: dict[str, torch.Tensor], folder: Path) -> None:
    dtype = DTYPES[case["dtype"]]
    state = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    form, metadata = case["form"], None if "no metadata" in case["names"] else {"format": "pt"}
    suffix = "safetensors" if form.startswith("safetensors") else "bin"
    stem = "model" if suffix == "safetensors" else "pytorch_model"

    def save(part: dict[str, torch.Tensor], file: Path) -> None:
        if suffix == "safetensors":
            save_file(part, file, metadata=metadata)
        else:
            torch.save(part, file, _use_new_zipfile_serialization=form != "old bin")

    if form.endswith("shards"):
        names = sorted(state)
        files = [f"{stem}-{index + 1:05}-of-00003.{suffix}" for index in range(3)]
        weight_map = {name: files[index % 3] for index, name in enumerate(names)}
        for file in files:
            save({name: state[name] for name in names if weight_map[name] == file}, folder / file)
        index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    else:
        save(state, folder / f"{stem}.{suffix}")
    if "other bin" in case["names"] and suffix == "safetensors":
        other = {name: tensor * 0.5 for name, tensor in state.items()}
        torch.save(other, folder / "pytorch_model.bin")


# ---- read it
def languages_of(case: Case) -> tuple[str | None, str | None]:
    if case["family"] == "opus_mt":
        return (None, None)
    source, target = (None if code is None else CODES[case["family"]][code] for code in case["languages"])
    return source or CODES[case["family"]]["de"], target or CODES[case["family"]]["en"]


def texts_of(case: Case) -> list[str]:
    return [f"{TAGS[0]} {text}" for text in TEXTS[:2]] + TEXTS[2:] if case["tags"] else TEXTS


def read_ours(case: Case, folder: Path) -> Reading:
    return read_by_us(folder, texts_of(case), languages_of(case), **limit_of(case))


def limit_of(case: Case) -> dict[str, int]:
    """Return a limit if the folder has none: without one, `generate()` stops after 20 tokens, and we do not."""
    return {} if {"max_length", "max_new_tokens"} & {*case["search"]} else {"max_new_tokens": 10}


def read_theirs(case: Case, folder: Path) -> Reading:
    source, target = languages_of(case)
    languages = {} if source is None else {"src_lang": source, "tgt_lang": target}
    tokenizer = AutoTokenizer.from_pretrained(folder, **languages)
    model, facts = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if random_names := [name for name in facts["missing_keys"] if "embed_positions" not in name]:
        raise ValueError(f"random weights for {random_names[:3]}")
    forced = {} if target is None else {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(token_of(case, target))}
    texts = texts_of(case)
    sources = [tokenizer(text)["input_ids"] for text in texts]
    targets, log_probs = [], []
    for ids in sources:  # alone: the original pads batches, which must not matter
        with torch.no_grad():
            output = model.eval().generate(torch.tensor([ids]), **forced, **limit_of(case))[0]
            logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=output[None, :-1]).logits[0]
        tokens = output[1:].tolist()
        targets.append(tokens)
        log_probs.append(torch.log_softmax(logits.double(), -1)[range(len(tokens)), tokens].tolist())
    # without the spaces beside a token that is not shown
    decoded = [tokenizer.decode(tokens, skip_special_tokens=True).strip() for tokens in targets]
    if case["family"] == "m2m100":  # its languages are special tokens in facebook's folders, and not in ours
        decoded = [re.sub("__[a-z]{2,3}__", "", text).strip() for text in decoded]
    return Reading(sources, targets, decoded, log_probs)


def token_of(case: Case, code: str) -> str:
    return f"__{code}__" if case["family"] == "m2m100" else code


def families() -> Iterable[str]:
    return OPTIONS
