"""`Translator` for any sequence-to-sequence model of transformers, ours or any other."""

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
from capsule_mt.models.loading import is_ctranslate2, is_marian
from capsule_mt.models.opening import check_name_or_folder, check_shortlist
from capsule_mt.text.glossary import Glossary
from capsule_mt.translate.options import NAMES, TranslationOptions, refuse_unknown_arguments
from capsule_mt.translate.plan import Plan
from capsule_mt.translate.planning import plan_of
from capsule_mt.translate.scorer import Scorer
from hf_capsule_mt.decoding.ensemble import check_same_vocabulary, load_members
from hf_capsule_mt.decoding.fast import FastTranslator, fast_logger, unsupported_part
from hf_capsule_mt.decoding.generate import GenerateDecoder
from hf_capsule_mt.decoding.transformers_model import TransformersModel
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

    translator_model: TransformersModel
    tokenizes_in_threads = False  # tokenizers of transformers have languages as their state

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
        model.eval()
        check_weights(model)
        check_tokenizer(model, tokenizer)
        languages = languages_of_task(task)
        members = load_members(model, tokenizer, ensemble)
        fast = _engine_of(model, members, int8=int8, backend=backend, shortlist=shortlist)
        decoder = GenerateDecoder(model, members, fast, pads_left=tokenizer.padding_side == "left")
        translator_model = TransformersModel(model, tokenizer, decoder, task)
        translator_model.languages = languages
        loaded = translator_model.loaded
        check_calibration(loaded.calibration, loaded.head_shape, translator_model.folder or loaded.name)
        self._loads_with = {}
        self._compose(translator_model, glossary, reverse)

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
        if is_ctranslate2(name_or_path):
            raise ValueError(
                f"{name_or_path}: has a model of CTranslate2, which `capsule_mt.Translator` reads, and transformers "
                "does not"
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
        self.translator_model.tokenizer_of(TranslationOptions())

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Save the model and its tokenizer."""
        self.model.save_pretrained(folder)
        share_weights(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def model(self) -> Any:
        """The model."""
        return self.translator_model.model

    @model.setter
    def model(self, model: PreTrainedModel) -> None:
        self.translator_model.model = model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the model."""
        return self.translator_model.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.translator_model.tokenizer = tokenizer

    @property
    def task(self) -> str:
        """The task, in which a checkpoint of T5 has its settings."""
        return self.translator_model.task

    @task.setter
    def task(self, task: str) -> None:
        self.translator_model.task = task

    @property
    def members(self) -> list[PreTrainedModel]:
        """The other models of the ensemble."""
        return self.translator_model.decoder.members

    @property
    def fast(self) -> FastTranslator | None:
        """The engine, where it decodes."""
        return self.translator_model.decoder.fast

    @property
    def backend(self) -> str:
        """What decodes: "native" or "transformers"."""
        return "transformers" if self.fast is None else self.fast.backend

    @property
    def option_names(self) -> frozenset[str]:  # type: ignore[override]
        return options_of_model(self.model)

    # ---- the steps of `translate`
    def plan(self, options: TranslationOptions) -> Plan:
        """Resolve the options of a call anew: the model's and the tokenizer's configurations may have changed."""
        return plan_of(self, self.completed(options))

    def completed(self, options: TranslationOptions) -> TranslationOptions:
        """Add what the task, the tokenizer and a `generation_config` say to the options of a call."""
        options = super().completed(options)
        kwargs = dict(options.generate_kwargs)
        config = kwargs.pop("generation_config", None)
        if config is not None:
            kwargs = {**cast(GenerationConfig, config).to_diff_dict(), **kwargs}
            kwargs.pop("transformers_version", None)
        model = self.translator_model
        task_settings = dict(model.task_settings(options))
        task_settings.pop("prefix", None)
        tokenizer = model.tokenizer_of(options)
        tokenizer.encode("")
        source, target = model.languages_of(options)
        tokenizer_settings = dict(tokenizer.settings)
        if tokenizer_settings.get(FIRST_TOKEN) == model.decoder.start:  # mBART's decoder starts with its language
            del tokenizer_settings[FIRST_TOKEN]
        settings = {**task_settings, **tokenizer_settings, **kwargs}
        if settings.get("stop_strings") or self.model.generation_config.stop_strings:
            settings.setdefault("tokenizer", self.tokenizer)  # with which `generate()` finds the strings
        return options._replace(src_lang=source, tgt_lang=target, generate_kwargs=settings).checked()


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
