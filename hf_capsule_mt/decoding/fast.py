"""`to_fast`: a translation model that decodes in the native engine, with the interface of `generate()`."""

import copy
import math
import os
from collections.abc import Sequence
from itertools import chain, compress
from operator import is_
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput
from transformers.utils import logging

from capsule_mt.engine.decoder import FIRST_TOKEN, EngineDecoder, with_first_token
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.engine.program import Tensor, UnsupportedModelError
from capsule_mt.engine.request import SearchResult
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.int8_weights import write_int8_weights
from capsule_mt.models.opening import check_shortlist
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.translate.options import IGNORED
from capsule_mt.translate.search_plan import search_options
from hf_capsule_mt.decoding.state_dict import StateDict, program_of
from hf_capsule_mt.loading import share_weights
from hf_capsule_mt.modeling.generation import generation_settings

fast_logger = logging.get_logger("hf_capsule_mt.decoding")

DEFAULT_NEW_TOKENS = 20  # of transformers
NEW_TOKENS = "max_new_tokens"


class UnsupportedOptionError(ValueError):
    """What the engine does not take in a call of `generate()`, such as an option that it does not obey."""


def to_fast(
    model: PreTrainedModel, *, int8: bool = True, shortlist: Shortlist | bool | str | os.PathLike[str] = False
) -> "FastTranslator":
    """Return a translator that decodes on a CPU with packed copies of a model's weights.

    It takes the families of this package, and of transformers Marian (OPUS-MT), M2M100 and NLLB-200, mBART, BART,
    Pegasus and Blenderbot:

        fast = to_fast(model)
        tokens = fast.generate(input_ids, attention_mask=attention_mask, num_beams=5)

    What the engine does not know, a model or an option, is left to `model.generate()`, with a line in the log.

    Args:
        int8: multiply in int8, with a scale for each row and each output. With False the results are those of
            `generate()`, token for token.
        shortlist: score only the tokens that the words of a source are likely to become: a file of `capsule-mt
            shortlist`, or True for the one beside the checkpoint. Scores are among these tokens then.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"`to_fast` takes a model, as `AutoModelForSeq2SeqLM.from_pretrained` returns it, got a "
            f"{type(model).__name__}"
        )
    return FastTranslator(model, int8=int8, shortlist=shortlist)


def takes_fast(model: PreTrainedModel) -> bool:
    """Whether the engine takes this model: a program can be written for it."""
    return unsupported_part(model) is None


def unsupported_part(model: PreTrainedModel) -> str | None:
    """Return what keeps the engine from running a model on a CPU; `None` if it runs it."""
    dtype = next(model.parameters()).dtype
    if dtype != torch.float32:
        return f"a model in {str(dtype).removeprefix('torch.')} is not supported by the engine, only float32"
    try:
        program_of(model)
    except UnsupportedModelError as error:
        return str(error)
    return None


class _Settings(NamedTuple):
    """What a call of `generate()` needs; `search_options` reads some of it as it reads a model."""

    config: GenerationConfig
    start: int
    end: int
    pad: int
    longest_target: int | None
    shortlist: Shortlist | None
    generation: dict[str, Any] = {}
    options: SearchOptions = SearchOptions([])  # of a source
    length_factor: float | None = None


def _restored(model: PreTrainedModel, int8: bool, shortlist: Shortlist | None, strict: bool) -> "FastTranslator":
    """Return what `FastTranslator.__reduce__` has taken apart."""
    return FastTranslator(model, int8=int8, shortlist=shortlist or False, strict=strict)


class FastTranslator:
    """A model and the engine that decodes for it: see `to_fast`.

    It has the model's `config` and `generation_config`, and the model itself as `model`.

    strict: raise an error where `generate()` would have to take over.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        int8: bool,
        shortlist: Shortlist | bool | str | os.PathLike[str] = False,
        strict: bool = False,
    ) -> None:
        self.model: Any = model
        if not isinstance(shortlist, Shortlist):
            check_shortlist(shortlist)
        self.int8, self.strict = int8, strict
        shortlist = str(model.name_or_path) if shortlist is True else shortlist
        listed = Shortlist.load(shortlist) if isinstance(shortlist, (str, os.PathLike)) else shortlist
        self.shortlist = listed if isinstance(listed, Shortlist) else None
        if self.shortlist is not None:
            embeddings = cast(nn.Embedding, model.get_input_embeddings())
            self.shortlist.check(embeddings.num_embeddings, len(cast(nn.Linear, model.get_output_embeddings()).weight))
        self._engine: Engine | None = None
        self._packed: _Weights | None = None
        self._settings_source: Any = None  # the configurations and options that the cached settings were made from
        self._cached_settings: _Settings | None = None
        self._missing = ""  # why there is no engine
        self._reported: set[str] = set()
        try:
            self._refresh()
        except (UnsupportedModelError, NativeUnavailableError) as error:
            if strict:
                raise
            self._missing = str(error)
            self._report(f"{error}: transformers' generate() decodes.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"what `to_fast` returns does not have `{name}`; the model from which it was made is its `model`"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the model; the copy packs its weights again, as the engine's memory cannot be copied."""
        return _restored, (self.model, self.int8, self.shortlist, self.strict)

    @property
    def config(self) -> PreTrainedConfig:
        """The model's configuration."""
        return cast(PreTrainedConfig, self.model.config)

    @property
    def generation_config(self) -> GenerationConfig:
        """The model's settings of `generate()`. A change, here or in the model, holds from the next call on."""
        return cast(GenerationConfig, self.model.generation_config)

    @generation_config.setter
    def generation_config(self, config: GenerationConfig) -> None:
        self.model.generation_config = config

    @property
    def backend(self) -> str:
        """What decodes: "native", or "transformers" if the engine does not take the model."""
        return "transformers" if self._engine is None else "native"

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *,
        attention_mask: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        **options: Any,
    ) -> Any:
        """Generate like `model.generate()`, with its names and kinds of results.

        Args:
            inputs: source tokens [B, S].
            attention_mask: [B, S].
            generation_config: settings; what they leave open is the model's own, as in `model.generate()`.
            **options: settings that take precedence. With `return_dict_in_generate` the result of beam search has
                `sequences_scores`.

        Returns:
            Sequences [B * returned, T] that begin with the start token, padded on the right; as `sequences` of an
            output with `return_dict_in_generate`.
        """
        inputs = options.pop("input_ids", None) if inputs is None else inputs
        if inputs is not None and not isinstance(inputs, torch.Tensor):
            raise TypeError(f"`inputs` must be a tensor of token ids [batch, source], got a {type(inputs).__name__}")
        try:
            settings = self._settings(generation_config, options)
            sources, search = self._request(inputs, attention_mask, settings, options)
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            return self.model.generate(
                inputs, attention_mask=attention_mask, generation_config=generation_config, **options
            )
        results = self._search(sources, search, settings)
        sequences = cast(torch.LongTensor, _sequences(results, settings))
        if not settings.config.return_dict_in_generate:
            return sequences
        if search.num_beams == 1:
            return GenerateEncoderDecoderOutput(sequences=sequences)
        scores = cast(torch.FloatTensor, torch.tensor([score for result in results for score in result.scores]))
        return GenerateBeamEncoderDecoderOutput(sequences=sequences, sequences_scores=scores)

    def decoder_for(self, request: SearchOptions | Readings) -> EngineDecoder | None:
        """Return a decoder over the model's present weights; `None` where `generate()` has to take over."""
        if self._engine is None:
            return None
        try:
            if isinstance(request, SearchOptions):
                self._check_search(request)
            readings = request.readings if isinstance(request, SearchOptions) else request
            if readings is not None and not self._reads(readings):
                return None
            if self.model.training:
                raise UnsupportedOptionError("a model in training mode")
            settings = self._settings(None, {})
            self._refresh()
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            return None
        self._engine.num_threads = torch.get_num_threads()
        return EngineDecoder(self._engine, start=settings.start, end=settings.end, pad=max(settings.end, 0))

    def _check_search(self, options: SearchOptions) -> None:
        """Refuse what the engine does not obey."""
        first_token = options.transformers_only.get(FIRST_TOKEN)
        if first_token is not None:
            self._check_targets(FIRST_TOKEN, [cast(int, first_token)])
        for name, value in with_first_token(options).transformers_only.items():
            raise UnsupportedOptionError(f"`{name}`" if name == "logits_processor" else f"`{name}={value!r}`")
        beams, returned = options.num_beams, options.num_return_sequences
        if beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, got {beams}")
        engine = cast(Engine, self._engine)
        longest = engine.longest_target
        if returned > beams or 2 * beams > engine.vocabulary:
            raise UnsupportedOptionError(f"{beams} beams and {returned} returned sequences")
        if longest is not None and max(options.limits) > longest:
            raise UnsupportedOptionError(f"a length beyond the model's {longest} positions")
        self._check_targets("suppress_tokens", options.suppress_tokens)

    def _reads(self, readings: Readings) -> bool:
        """Whether the engine can read a head."""
        if readings.head is None:
            return True
        (layer, head), (layers, heads) = readings.head, cast(Engine, self._engine).head_shape
        return 0 <= layer < layers and 0 <= head < heads

    @torch.no_grad()
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as an int8 checkpoint, a third to a quarter of the size of one in float32.

        `Translator.from_pretrained(folder, int8=True)` and every command load it, and the engine then translates as
        `self` does, bit for bit. The matrices that the engine uses only as codes are rounded: neither what is
        multiplied out beforehand, nor embeddings other than those of M2M100 and its relatives. Save the tokenizer
        beside it.
        """
        if not self.int8:
            raise ValueError("`save` writes int8 checkpoints, but `int8` is False: use `model.save_pretrained`")
        os.makedirs(folder, exist_ok=True)
        write_int8_weights(folder, _WeightsToSave(self.model), program_of(self.model)[1])
        config = type(self.model.config).from_dict(self.model.config.to_dict() | {"dtype": "float32"})
        config.architectures = [type(self.model).__name__]
        config.save_pretrained(folder)
        self.model.generation_config.save_pretrained(folder)
        share_weights(folder)

    def _search(self, sources: list[list[int]], options: SearchOptions, settings: _Settings) -> list[SearchResult]:
        engine = cast(Engine, self._engine)
        engine.num_threads = torch.get_num_threads()
        results = engine.search(
            sources, with_first_token(options), start=settings.start, end=settings.end, pad=settings.pad
        )
        for result in results:  # fewer where logits are not finite
            missing = options.num_return_sequences - len(result.tokens)
            result.tokens.extend([] for _ in range(missing))
            result.scores.extend([math.nan] * missing)
        return results

    def _report_unsupported(self, error: "UnsupportedOptionError") -> None:
        """Log that transformers takes over, or raise a ValueError."""
        if self._engine is None:
            return  # reported already
        if self.strict:
            raise ValueError(
                f'`backend="native"` does not support {error}: leave it out, or use `backend="auto"`, which falls '
                "back to transformers"
            ) from None
        self._report(f"{error} is left to transformers' generate().")

    def _report(self, message: str) -> None:
        """Log a line, once."""
        if message not in self._reported:
            self._reported.add(message)
            fast_logger.warning(message)

    def _refresh(self) -> None:
        """Pack the weights again if they have changed since. A change through `.data` is not seen."""
        if self._packed is not None and not self._packed.changed():
            return
        weights = _Weights(self.model)
        self._engine = Engine(program_of(self.model)[0], int8=self.int8)
        self._packed = weights

    def _settings(self, config: GenerationConfig | None, options: dict[str, Any]) -> _Settings:
        """The settings of a call but for `max_new_tokens`, which may be another one in each call.

        They are kept for the next call: making them takes longer than a short sentence.
        """
        if self._engine is None:
            raise UnsupportedOptionError(f"this model ({self._missing})")
        options = {name: value for name, value in options.items() if name != NEW_TOKENS or value is None}
        source = [vars(self.model.generation_config), {} if config is None else vars(config), options]
        if self._cached_settings is None or settings_differ(source, self._settings_source):
            self._cached_settings = self._new_settings(config, options)
            self._settings_source = copy.deepcopy(source)
        return self._cached_settings

    def _new_settings(self, generation_config: GenerationConfig | None, options: dict[str, Any]) -> _Settings:
        config = generation_settings(self.model, generation_config)
        for name, value in config.update(**options).items():
            if value is not None and value is not False:
                raise UnsupportedOptionError(f"`{name}`")
        engine, model_config = cast(Engine, self._engine), self.model.config
        end, start = _single(config.eos_token_id), config.decoder_start_token_id
        start = model_config.decoder_start_token_id if start is None else start
        start = config.bos_token_id if start is None else start  # as `generate()` does
        if isinstance(start, list) or start is None:
            raise UnsupportedOptionError(f"`decoder_start_token_id={start!r}`")
        for name, tokens in (("decoder_start_token_id", [int(start)]), ("eos_token_id", [end] if end != -1 else [])):
            self._check_targets(name, tokens)
        defaults = GenerationConfig().to_dict() | {"return_dict_in_generate": True}
        non_defaults = {
            name: value
            for name, value in config.to_dict().items()
            if (name not in IGNORED or name.startswith("output_"))
            and not name.startswith("_")
            and not (name in defaults and type(value) is type(defaults[name]) and value == defaults[name])
        }
        non_defaults[NEW_TOKENS] = self._longest(config)
        pad = model_config.pad_token_id if config.pad_token_id is None else config.pad_token_id
        settings = _Settings(config, int(start), end, 0, engine.longest_target, self.shortlist)
        search = search_options(settings, [1], non_defaults, scores=False)
        return settings._replace(options=search, pad=_padding(pad, end, search.num_beams))

    def _request(
        self, inputs: object, attention_mask: torch.Tensor | None, settings: _Settings, keywords: dict[str, Any]
    ) -> tuple[list[list[int]], SearchOptions]:
        """The sources, and how to search for their translations."""
        self._refresh()
        if self.model.training:
            raise UnsupportedOptionError("a model in training mode")
        if not isinstance(inputs, torch.Tensor) or len(inputs.shape) != 2 or not all(inputs.shape):
            raise UnsupportedOptionError("an input that is not `input_ids` [batch, source]")
        sources, options = self._sources(inputs, attention_mask, settings.config), settings.options
        longest = options.limits[0] if keywords.get(NEW_TOKENS) is None else int(keywords[NEW_TOKENS])
        if longest < 1:
            raise UnsupportedOptionError(f"a translation of {longest} tokens")
        count = len(sources)
        options = options._replace(limits=[longest] * count, forces_end=[*options.forces_end] * count)
        self._check_search(options)
        if self.shortlist is not None:
            fewest = min(len(self.shortlist.of_source(source, settings.end)) for source in sources)
            if 2 * options.num_beams > fewest:
                raise UnsupportedOptionError(f"{options.num_beams} beams with a shortlist of {fewest} tokens")
        return sources, options

    def _sources(
        self, inputs: torch.Tensor, attention_mask: torch.Tensor | None, config: GenerationConfig
    ) -> list[list[int]]:
        """The tokens of each source, without padding."""
        if attention_mask is None:
            pad, end = (
                getattr(self.model.config if getattr(config, name) is None else config, name)
                for name in ("pad_token_id", "eos_token_id")
            )
            is_padded = pad is not None and pad != _single(end)
            attention_mask = inputs.ne(pad) if is_padded else torch.ones_like(inputs)
        if attention_mask.shape != inputs.shape:
            raise UnsupportedOptionError(f"a mask {list(attention_mask.shape)} of sources {list(inputs.shape)}")
        rows, masks, engine = inputs.tolist(), attention_mask.tolist(), cast(Engine, self._engine)
        sources = [list(compress(row, mask)) for row, mask in zip(rows, masks, strict=True)]
        if not all(sources):
            raise UnsupportedOptionError("a source without a word")
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and not all(
            all(mask[: len(source)]) for mask, source in zip(masks, sources, strict=True)
        ):
            raise UnsupportedOptionError("padding on the left")
        if max(map(max, rows)) >= engine.embeddings or min(map(min, rows)) < 0:
            raise UnsupportedOptionError(f"a token outside the vocabulary of {engine.embeddings}")
        longest = engine.longest_source
        if longest is not None and max(map(len, sources)) > longest:
            raise UnsupportedOptionError(f"a source of more than {longest} tokens")
        return sources

    def _longest(self, config: GenerationConfig) -> int:
        """The most tokens after the start token."""
        longest = cast(Engine, self._engine).longest_target
        if config.max_new_tokens is not None:
            return int(config.max_new_tokens)
        if config.max_length is not None:
            return int(config.max_length) - 1
        return min(DEFAULT_NEW_TOKENS, (longest or DEFAULT_NEW_TOKENS + 1) - 1)

    def _check_targets(self, name: str, tokens: Sequence[int]) -> None:
        """Refuse tokens that are not in the vocabulary: the engine reads and writes at their places."""
        vocabulary = cast(Engine, self._engine).vocabulary
        outside = [token for token in tokens if not 0 <= token < vocabulary]
        if outside:
            raise UnsupportedOptionError(f"`{name}`: {outside[0]}, outside the vocabulary of {vocabulary}")


class _WeightsToSave(StateDict):
    """The weights of a model, in float16 where that holds them exactly."""

    def read(self, name: str) -> Tensor:
        tensor = self.tensors[name].detach()
        half = tensor.half()
        if half.to(tensor.dtype).equal(tensor):
            return Tensor(half.contiguous().view(-1).view(torch.uint8).numpy(), "F16", tuple(half.shape))
        return super().read(name)


class _Weights:
    """The parameters and buffers of a model, and whether they have changed: each call asks, so it must be quick."""

    def __init__(self, model: nn.Module) -> None:
        modules = [*model.modules()]
        self._dictionaries: list[dict[str, Any]] = [module._modules for module in modules if module._modules]
        tensors = [
            dictionary for module in modules for dictionary in (module._parameters, module._buffers) if dictionary
        ]
        self._dictionaries += tensors
        self._parts = [*chain.from_iterable(map(dict.values, self._dictionaries))]
        self._tensors = [part for part in self._parts if isinstance(part, torch.Tensor)]
        # one of each module: `model.to` moves all
        self._moving = [tensor for dictionary in tensors if (tensor := next(iter(dictionary.values()))) is not None]
        self._state = self._now()

    def changed(self) -> bool:
        parts = [*chain.from_iterable(map(dict.values, self._dictionaries))]
        return len(parts) != len(self._parts) or not all(map(is_, parts, self._parts)) or self._now() != self._state

    def _now(self) -> list[int]:
        addresses = [tensor.data_ptr() for tensor in self._moving]
        try:
            return addresses + [tensor._version for tensor in self._tensors]
        except RuntimeError:  # tensors of `torch.inference_mode` have no version
            return addresses


def settings_differ(settings: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> bool:
    """Whether settings differ in a value or its type: True is not 1."""
    return settings != earlier or any(
        [*map(type, left.values())] != [*map(type, right.values())]
        for left, right in zip(settings, earlier, strict=True)
    )


def _single(token: int | list[int] | tuple[int, ...] | None) -> int:
    """The one end token; -1 if there is none."""
    if isinstance(token, (list, tuple)):
        if len(token) > 1:
            raise UnsupportedOptionError(f"`eos_token_id={list(token)}`")
        token = token[0] if token else None
    return -1 if token is None else int(token)


def _padding(pad: int | None, end: int, num_beams: int) -> int:
    """What follows the end token. transformers' beam search takes a padding token of 0 for none."""
    if pad is None or (num_beams > 1 and not pad):
        return max(end, 0)
    return int(pad)


def _sequences(results: list[SearchResult], settings: _Settings) -> torch.Tensor:
    """[B * returned, T], with the start token, as long as the longest that was generated."""
    rows = [tokens for result in results for tokens in result.tokens]
    longest = max(map(len, rows))
    return torch.tensor([[settings.start, *row, *[settings.pad] * (longest - len(row))] for row in rows])
