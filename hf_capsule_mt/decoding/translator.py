"""`Translator` for any sequence-to-sequence model of transformers, ours or any other."""

import copy
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, cast

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

import capsule_mt.translate.translator
import hf_capsule_mt.data.separate_tokenizer  # noqa: F401 - transformers then knows it by its name
from capsule_mt.catalog.entries import pair_named
from capsule_mt.engine.decoder import FIRST_TOKEN
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.loading import is_marian
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.opening import check_name_or_folder, check_shortlist
from capsule_mt.text.glossary import Glossary
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.tokenizer import Tokenizer
from capsule_mt.translate.options import NAMES, TranslationOptions, refuse_unknown_arguments
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.scoring import Scorer
from hf_capsule_mt.decoding.attention import cross_attentions
from hf_capsule_mt.decoding.ensemble import check_same_vocabulary, load_members
from hf_capsule_mt.decoding.fast import FastTranslator, fast_logger, settings_differ, unsupported_part
from hf_capsule_mt.decoding.generate import GenerateDecoder
from hf_capsule_mt.decoding.tokenizer import TransformersTokenizer, max_source_tokens
from hf_capsule_mt.loading import CheckedSeq2SeqLM, check_tokenizer, check_weights, load_tokenizer, share_weights

BACKENDS = ("auto", "native", "transformers")
ACCELERATORS = ("cuda", "mps", "xpu")  # others, such as "xla", are not in `torch.accelerator`
TASK_WITH_LANGUAGES = re.compile(r"translation_(?P<source>[^_]+(?:_[^_]+)*?)_to_(?P<target>.+)")


class Translator(capsule_mt.translate.translator.Translator):
    """`capsule_mt.Translator` with a model and a tokenizer of transformers.

        >>> translator = Translator.from_pretrained("Helsinki-NLP/opus-mt-de-en")
        >>> translator("Der alte Mann kauft einen roten Hut.", coverage=CoverageOptions(), num_beams=4)

    A call takes further options of `generate()`, such as `do_sample`, and `clean_up_tokenization_spaces` for the
    tokenizer.

    Args:
        model: the model, which is put into evaluation mode.
        tokenizer: its tokenizer.
        ensemble: further models (or paths) of the same vocabulary, whose probabilities are averaged with the model's.
        int8: multiply by int8 copies of the matrices, in the native engine.
        backend: what decodes: "native" is the engine, "transformers" `generate()`, "auto" the engine for a float32
            model on a CPU, as far as it knows the model and the options.
        shortlist: score only the tokens that the words of a source are likely to become, which `capsule-mt shortlist`
            finds out: its file, or True for the one beside the checkpoint.
        task: "translation", or with languages, as "translation_en_to_de", which T5 checkpoints have settings for.
        reverse: what translates in the other direction, a `Translator` or its name or folder: it verifies what
            coverage marks. By default the model that the calibration names, if that is a folder beside this one's.
        glossary: terms and what they become: a dictionary, or a file with `term<tab>translation` on each line.
    """

    tokenizes_in_threads = False  # tokenizers of transformers have languages as their state
    _read: tuple[dict[str, Any], Mapping[str, Any]] | None = None  # a generation config, and what it sets

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | os.PathLike[str] = False,
        task: str = "translation",
        reverse: Scorer | str | os.PathLike[str] | None = None,
        glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None = None,
    ) -> None:
        check_model(model)
        self.model: Any = model.eval()
        self._take_glossary(glossary)
        self._loads_with = {}
        check_weights(model)
        check_tokenizer(model, tokenizer)
        self.tokenizer, self.task = tokenizer, task
        self.languages = languages_of_task(task)
        members = load_members(model, tokenizer, ensemble)
        fast = _engine_of(model, members, int8=int8, backend=backend, shortlist=shortlist)
        self._decoder = GenerateDecoder(model, members, fast, pads_left=tokenizer.padding_side == "left")
        loaded = self.loaded
        check_calibration(loaded.calibration, loaded.head_shape, self._folder or loaded.name)
        self._take_reverse(reverse)

    @classmethod
    def from_pretrained(  # type: ignore[override]  # more arguments than the engine's
        cls,
        name_or_path: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype = "auto",
        ensemble: Iterable[PreTrainedModel | str | os.PathLike[str]] = (),
        int8: bool = False,
        backend: str = "auto",
        shortlist: bool | str | os.PathLike[str] = False,
        task: str = "translation",
        reverse: Scorer | str | os.PathLike[str] | None = None,
        glossary: Glossary | Mapping[str, str] | str | os.PathLike[str] | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **unknown: NoReturn,
    ) -> "Translator":
        """Load a checkpoint and its tokenizer, onto the first accelerator if there is one and `device` names none.

        Weights that are missing, superfluous or not finite, and a tokenizer that does not fit, are errors. On a CPU,
        `dtype="auto"` computes in float32 with weights that are stored in half precision.
        """
        refuse_unknown_arguments(unknown, cls.from_pretrained)
        check_name_or_folder(name_or_path, "name_or_path")
        if not os.path.exists(name_or_path) and pair_named(os.fspath(name_or_path)):
            raise ValueError(
                f"{name_or_path}: no such folder; to load a pair by its name, use `capsule_mt.Translator`"
            )
        if is_marian(name_or_path):
            raise ValueError(
                f"{name_or_path}: has files of Marian, which `capsule_mt.Translator` reads directly; `capsule-mt "
                "convert` makes a checkpoint of transformers from them"
            )
        _check_dtype(dtype)
        device = _available_device(device)
        model = CheckedSeq2SeqLM.from_pretrained(name_or_path, dtype=dtype)
        tokenizer = load_tokenizer(name_or_path)
        if dtype == "auto" and device.type == "cpu" and model.dtype in (torch.float16, torch.bfloat16):
            model = model.float()
        options: dict[str, Any] = {"int8": int8, "backend": backend}
        settings: dict[str, Any] = {"ensemble": ensemble, "shortlist": shortlist, "task": task, "reverse": reverse}
        translator = cls(model.to(device), tokenizer, glossary=glossary, **settings, **options)
        source, target = translator.languages
        translator.languages = (src_lang or source, tgt_lang or target)
        translator.check_languages()
        translator._loads_with = {"device": device, "dtype": dtype, **options}
        return translator

    def check_languages(self) -> None:
        super().check_languages()
        self._tokenizer(TranslationOptions())

    def set_calibration(self, values: Mapping[str, Any]) -> None:
        check_calibration(values, self.loaded.head_shape, "`set_calibration`")
        self.model.config.coverage_calibration = dict(values) or None

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Save the model and its tokenizer."""
        self.model.save_pretrained(folder)
        share_weights(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def members(self) -> list[PreTrainedModel]:
        """The other models of the ensemble."""
        return self._decoder.members

    @property
    def fast(self) -> FastTranslator | None:
        """The engine, where it decodes."""
        return self._decoder.fast

    @property
    def backend(self) -> str:
        """What decodes: "native" or "transformers"."""
        return "transformers" if self.fast is None else self.fast.backend

    @property
    def loaded(self) -> LoadedModel:
        """The model as it is now: its configurations may be changed between two calls."""
        model, decoder = self.model, self._decoder
        positions = getattr(model.config, "max_position_embeddings", None)
        layers = len(cross_attentions(model))
        return LoadedModel(
            decoder=decoder,
            tokenizer=TransformersTokenizer(self.tokenizer),
            name=f"a {type(model).__name__}",
            start=decoder.start,
            end=decoder.ends[0] if decoder.ends else -1,
            pad=decoder.pad,
            generation=self._generation,
            calibration=getattr(model.config, "coverage_calibration", None) or {},
            longest_source=max_source_tokens(model, self.tokenizer),
            longest_target=positions,
            head_shape=(layers, model.config.decoder_attention_heads) if layers else (0, 0),
            shortlist=None if self.fast is None else self.fast.shortlist,
        )

    @loaded.setter
    def loaded(self, model: LoadedModel) -> None:
        raise AttributeError("`loaded` must come with `model` and `tokenizer`")

    @property
    def _generation(self) -> Mapping[str, Any]:
        """What the generation config sets; read again only if it has changed, for that takes a millisecond."""
        now = vars(self.model.generation_config)
        if self._read is None or settings_differ([now], [self._read[0]]):
            changed = self.model.generation_config.to_diff_dict()
            self._read = copy.deepcopy(now), {name: value for name, value in changed.items() if value is not None}
        return self._read[1]

    @property
    def _folder(self) -> str:
        return str(self.model.name_or_path)

    def _downloaded(self, name: str) -> str | None:
        """Return `None`: only the engine loads models by their names."""
        return None

    @property
    def option_names(self) -> frozenset[str]:  # type: ignore[override]
        return options_of_model(self.model)

    # ---- the steps of `translate`
    def plan(self, options: TranslationOptions) -> Plan:
        """Resolve the options of a call anew: the model's and the tokenizer's configurations may have changed."""
        return self._plan(self.completed(options))

    def completed(self, options: TranslationOptions) -> TranslationOptions:
        """Add what the task, the tokenizer and a `generation_config` say to the options of a call."""
        options = super().completed(options)
        kwargs = dict(options.generate_kwargs)
        config = kwargs.pop("generation_config", None)
        if config is not None:
            kwargs = {**cast(GenerationConfig, config).to_diff_dict(), **kwargs}
            kwargs.pop("transformers_version", None)
        task_settings = dict(self._task_settings(options))
        task_settings.pop("prefix", None)
        tokenizer = self._tokenizer(options)
        tokenizer.encode("")
        source, target = self._languages(options)
        tokenizer_settings = dict(tokenizer.settings)
        if tokenizer_settings.get(FIRST_TOKEN) == self._decoder.start:  # mBART's decoder starts with its language
            del tokenizer_settings[FIRST_TOKEN]
        settings = {**task_settings, **tokenizer_settings, **kwargs}
        if settings.get("stop_strings") or self.model.generation_config.stop_strings:
            settings.setdefault("tokenizer", self.tokenizer)  # with which `generate()` finds the strings
        return options._replace(src_lang=source, tgt_lang=target, generate_kwargs=settings).checked()

    @property
    def is_multilingual(self) -> bool:
        return TransformersTokenizer(self.tokenizer).is_multilingual

    def _tokenizer(self, options: TranslationOptions) -> TransformersTokenizer:
        clean_up = cast("bool | None", options.generate_kwargs.get("clean_up_tokenization_spaces"))
        return TransformersTokenizer(self.tokenizer, *self._languages(options), clean_up)

    def _labels(self, translation: str, tokenizer: Tokenizer) -> list[int]:
        labels, start = cast(TransformersTokenizer, tokenizer).labels(translation), self._decoder.start
        if not hasattr(self.tokenizer, "tgt_lang") or start in self._decoder.ends:
            return labels
        # a decoder that starts with the language does not predict it; mBART's labels have it after the end token
        return labels[labels[:1] == [start] : len(labels) - (labels[-1:] == [start])]

    def _segmenter(self, options: TranslationOptions) -> Segmenter:
        prefix = self._task_settings(options).get("prefix") or getattr(self.model.config, "prefix", None) or ""
        return super()._segmenter(options)._replace(prefix=str(prefix))

    def _task_settings(self, options: TranslationOptions) -> Mapping[str, Any]:
        """What a T5 checkpoint says of the task "translation_en_to_de": a prefix and settings of `generate()`."""
        source, target = self._languages(options)
        task = f"translation_{source.strip('_')}_to_{target.strip('_')}" if source and target else self.task
        settings_by_task = getattr(self.model.config, "task_specific_params", None) or {}
        return settings_by_task.get(task) or {}


def check_model(model: object) -> None:
    """Refuse what is not a model, such as its folder or what `to_fast` returns."""
    if isinstance(model, torch.nn.Module):
        return
    advice = "`Translator.from_pretrained` takes a folder or a name"
    if isinstance(model, FastTranslator):
        advice = f"give its `model`, with `int8={model.int8}`"
    raise TypeError(f"`model` must be a model of transformers, got a {type(model).__name__}: {advice}")


def options_of_model(model: PreTrainedModel) -> frozenset[str]:
    """Return the names of the table, and whatever `generate()` of this model takes."""
    return _option_names(type(model).forward)


@functools.cache
def _option_names(forward: Callable[..., Any]) -> frozenset[str]:
    functions = (GenerationMixin.generate, forward)
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    taken_by_name = {"tokenizer", "assistant_tokenizer"}  # from the keywords of `generate()`
    return frozenset({*NAMES, *vars(GenerationConfig()), *arguments, *taken_by_name} - {"self", "kwargs"})


def languages_of_task(task: str) -> tuple[str | None, str | None]:
    """Return the languages of a task such as "translation_en_to_de", if it names any."""
    if not isinstance(task, str):
        raise TypeError(f"`task` must be a string such as 'translation_en_to_de', got {task!r}")
    languages = TASK_WITH_LANGUAGES.fullmatch(task)
    return (None, None) if languages is None else (languages["source"], languages["target"])


def load_translator(
    models: list[str], *, backend: str, cpu: bool, dtype: str, int8: bool, shortlist: bool | str, reverse: str | None
) -> Translator:
    """Load a translator for a command of capsule-mt: on the GPU of this process if there is one and not `cpu`.

    Without transformers' bar: stderr is for what needs attention.
    """
    logging.disable_progress_bar()
    tokenizer = load_tokenizer(models[0])
    for path in models[1:]:
        check_same_vocabulary(tokenizer, path)
    device = None if cpu else torch.accelerator.current_accelerator(check_available=True)
    target_device = "cpu" if device is None else torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))
    options: dict[str, Any] = {"int8": int8, "backend": backend, "shortlist": shortlist, "reverse": reverse}
    return Translator.from_pretrained(models[0], device=target_device, dtype=dtype, ensemble=models[1:], **options)


def _check_dtype(dtype: str | torch.dtype) -> None:
    """Refuse a dtype that transformers would look up in torch without a check."""
    if isinstance(dtype, str) and dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ValueError(f"`dtype` must be 'auto', 'float32', 'bfloat16', 'float16' or a torch.dtype, got {dtype!r}")


def _available_device(device: str | torch.device | None) -> torch.device:
    """Return the device, or the first accelerator, or the CPU; refuse an accelerator that torch does not have."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    chosen = torch.device(device or accelerator or "cpu")
    if chosen.type in ACCELERATORS and (accelerator is None or accelerator.type != chosen.type):
        raise ValueError(
            f"`device` is {str(chosen)!r}, but torch {torch.__version__} does not find such a device here: use 'cpu', "
            "or install torch for this device"
        )
    return chosen


def _engine_of(
    model: PreTrainedModel,
    members: list[PreTrainedModel],
    *,
    int8: bool,
    backend: str,
    shortlist: bool | str | os.PathLike[str],
) -> FastTranslator | None:
    """Return the engine that decodes for a model, if any does."""
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be {', '.join(map(repr, BACKENDS[:-1]))} or 'transformers', got {backend!r}")
    check_shortlist(shortlist)
    weight = next(model.parameters())
    is_plain = weight.is_cpu and weight.dtype == torch.float32 and not members
    option = "`int8=True`" if int8 else "`shortlist`" if shortlist else f"`backend={backend!r}`"
    if backend == "transformers" or not is_plain:
        if int8 or shortlist or backend == "native":
            raise ValueError(
                f'{option} is for one float32 model on a CPU, decoded by another `backend` than "transformers"; got '
                f"`backend={backend!r}`, {1 + len(members)} models, {weight.dtype} on {weight.device}"
            )
        if backend == "auto" and weight.is_cpu and not members:
            fast_logger.warning(f"{unsupported_part(model)}: transformers' generate() decodes.")
        return None
    reason = None if backend == "native" or int8 or shortlist else unsupported_part(model)
    if reason is not None:
        fast_logger.warning(f"{reason}: transformers' generate() decodes.")
        return None
    fast = FastTranslator(model, int8=int8, shortlist=shortlist, strict=backend == "native")
    if fast.backend != "native" and (int8 or shortlist):
        raise ValueError(f"{option} needs the native engine, which does not take a {type(model).__name__}")
    return fast
