"""`to_fast`: a translation model that decodes in the native engine, with the interface of `generate()`."""

import json
import math
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from huggingface_hub import save_torch_state_dict
from torch import nn
from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput
from transformers.utils import logging

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.library import Engine, Found, NativeUnavailableError
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.int8 import FACTS_FILE, FORMAT, INT8_FILE
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.models.weights import WEIGHTS_FILE
from hf_capsule_mt.decoding.state_dict import StateDict, program_of
from hf_capsule_mt.modeling.generation import generation_settings
from hf_capsule_mt.modeling.loading import LARGEST_CODE

fast_logger = logging.get_logger("hf_capsule_mt.decoding")

# fields of a generation config that the engine obeys, or that do not change what is generated
KNOWN_FIELDS = frozenset(
    {
        *("num_beams", "num_return_sequences", "length_penalty", "early_stopping", "no_repeat_ngram_size"),
        *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "bad_words_ids", "suppress_tokens"),
        *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_eos_token_id"),
        *("use_cache", "return_dict_in_generate", "do_sample", "transformers_version", "cache_implementation"),
        *("temperature", "top_k", "top_p"),  # without `do_sample` they do nothing
    }
)
# values that change nothing
NEUTRAL: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "guidance_scale": 1.0,
    "output_attentions": False,
}
DEFAULT_NEW_TOKENS = 20  # of transformers


class UnsupportedOptionError(ValueError):
    """An option of `generate()` that the engine does not obey."""


def to_fast(
    model: PreTrainedModel, *, int8: bool = True, shortlist: Shortlist | bool | str | os.PathLike[str] = False
) -> "FastTranslator":
    """Return a translator that decodes on a CPU with packed copies of a model's weights.

    It takes every model of this package and transformers' `MarianMTModel` (OPUS-MT):

        fast = to_fast(model)
        tokens = fast.generate(input_ids, attention_mask=attention_mask, num_beams=5)

    What the engine does not know, a model or an option, is left to `model.generate()`, with a line in the log.

    Args:
        int8: multiply in int8, with a scale for each row and each output. With False the results are those of
            `generate()`, token for token.
        shortlist: score only the tokens that the words of a source are likely to become: a file of `capsule-mt
            shortlist`, or True for the one beside the checkpoint. Scores are among these tokens then.
    """
    return FastTranslator(model, int8=int8, shortlist=shortlist)


def takes_fast(model: PreTrainedModel) -> bool:
    """Whether a program can be written for this model."""
    try:
        program_of(model)
    except UnsupportedModelError:
        return False
    return True


class _Request(NamedTuple):
    """What the engine is asked: `start`, `end` (-1 for none) and `pad` are tokens."""

    sources: list[list[int]]
    options: SearchOptions
    start: int
    end: int
    pad: int


class FastTranslator:
    """A model and the engine that decodes for it: see `to_fast`.

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
        self.int8, self.strict = int8, strict
        shortlist = str(model.name_or_path) if shortlist is True else shortlist
        listed = Shortlist.load(shortlist) if isinstance(shortlist, (str, os.PathLike)) else shortlist
        self.shortlist = listed if isinstance(listed, Shortlist) else None
        if self.shortlist is not None:
            embeddings = cast(nn.Embedding, model.get_input_embeddings())
            self.shortlist.check(embeddings.num_embeddings, self._vocabulary)
        self._engine: Engine | None = None
        self._made_of: list[tuple[int, int]] = []
        self._missing = ""  # why there is no engine
        self._reported: set[str] = set()
        try:
            self._refresh()
        except (UnsupportedModelError, NativeUnavailableError) as error:
            if strict:
                raise
            self._missing = str(error)
            self._report(f"{error}: transformers' generate() decodes.")

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
        """Generate like `model.generate()`, with its names and results.

        Args:
            inputs: source tokens [B, S].
            attention_mask: [B, S].
            generation_config: settings; what they leave open is the model's own, as in `model.generate()`.
            **options: settings that take precedence. With `return_dict_in_generate` the result of beam search has
                `sequences_scores`.

        Returns:
            Sequences [B * returned, T] that begin with the start token, padded on the right.
        """
        inputs = options.pop("input_ids", None) if inputs is None else inputs
        try:
            config = self._config(generation_config, options)
            request = self._request(inputs, attention_mask, config)
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            return self.model.generate(
                inputs, attention_mask=attention_mask, generation_config=generation_config, **options
            )
        found = self._search(request)
        sequences = cast(torch.LongTensor, _sequences(found, request))
        if not config.return_dict_in_generate:
            return sequences
        if request.options.num_beams == 1:
            return GenerateEncoderDecoderOutput(sequences=sequences)
        scores = cast(torch.FloatTensor, torch.tensor([score for one in found for score in one.scores]))
        return GenerateBeamEncoderDecoderOutput(sequences=sequences, sequences_scores=scores)

    def decoder_for(self, asked: SearchOptions | Readings) -> EngineDecoder | None:
        """Return a decoder over the model's present weights; `None`, with a line in the log, where it cannot do it."""
        if self._engine is None:
            return None
        try:
            if isinstance(asked, SearchOptions):
                self._check_search(asked)
            readings = asked.readings if isinstance(asked, SearchOptions) else asked
            if readings is not None and not self._reads(readings):
                return None
            config = generation_settings(self.model, None)
            if self.model.training:
                raise UnsupportedOptionError("a model in training mode")
            end, start = _single(config.eos_token_id), config.decoder_start_token_id
            start = self.model.config.decoder_start_token_id if start is None else start
            self._refresh()
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            return None
        self._engine.num_threads = torch.get_num_threads()
        return EngineDecoder(self._engine, start=int(start), end=end, pad=max(end, 0))

    def _check_search(self, options: SearchOptions) -> None:
        """Refuse what the engine does not obey."""
        for name, value in options.further.items():
            raise UnsupportedOptionError(f"`{name}`" if name == "logits_processor" else f"`{name}={value!r}`")
        beams, returned = options.num_beams, options.num_return_sequences
        most = cast(Engine, self._engine).longest_target
        if returned > beams or 2 * beams > self._vocabulary:
            raise UnsupportedOptionError(f"{beams} beams and {returned} returned sequences")
        if most is not None and max(options.limits) > most:
            raise UnsupportedOptionError(f"a length beyond the model's {most} positions")
        self._check_targets("suppress_tokens", options.suppress_tokens)

    def _reads(self, readings: Readings) -> bool:
        """Whether the engine can read a head, or PAST and FUTURE."""
        engine = cast(Engine, self._engine)
        if readings.head is not None:
            layer, head = readings.head
            return 0 <= layer < engine.head_shape[0] and 0 <= head < engine.head_shape[1]
        return not readings.guided or engine.follows_past_and_future

    @torch.no_grad()
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as an int8 checkpoint, a third to a quarter of the size of one in float32.

        `Translator.from_pretrained(folder, int8=True)` and every command load it, and the engine then translates as
        `self` does, bit for bit. Rounded are the matrices of which the engine takes the codes alone: not embeddings,
        nor what is multiplied out beforehand. Save the tokenizer beside it.
        """
        if not self.int8:
            raise ValueError("`save` writes int8 checkpoints, but `int8` is False: use `model.save_pretrained`")
        folder = Path(folder)
        if (folder / WEIGHTS_FILE).exists():
            raise ValueError(f"{folder} has weights already ({WEIGHTS_FILE}): choose an empty folder")
        rounded, state = program_of(self.model)[1].rounded, {}
        for name, tensor in StateDict(self.model).tensors.items():
            numbers = tensor.detach().float()
            if name in rounded:
                state[f"{name}.codes"], state[f"{name}.largest"] = codes_of(numbers)
            else:  # in float16 if that holds it exactly
                half = numbers.half()
                state[name] = half if half.float().equal(numbers) else numbers.clone()
        folder.mkdir(parents=True, exist_ok=True)
        pattern = INT8_FILE.replace(".", "{suffix}.")
        save_torch_state_dict(state, folder, filename_pattern=pattern, max_shard_size="1TB")
        facts = {"format": FORMAT, "sha256": sha256((folder / INT8_FILE).read_bytes()).hexdigest()}
        (folder / FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        config = type(self.model.config).from_dict(self.model.config.to_dict() | {"dtype": "float32"})
        config.architectures = [type(self.model).__name__]
        config.save_pretrained(folder)
        self.model.generation_config.save_pretrained(folder)

    def _search(self, request: _Request) -> list[Found]:
        engine = cast(Engine, self._engine)
        engine.num_threads = torch.get_num_threads()
        options = request.options
        found = engine.search(request.sources, options, start=request.start, end=request.end, pad=request.pad)
        for one in found:  # fewer where logits are not finite
            missing = options.num_return_sequences - len(one.tokens)
            one.tokens.extend([] for _ in range(missing))
            one.scores.extend([math.nan] * missing)
        return found

    def _report_unsupported(self, error: "UnsupportedOptionError") -> None:
        """Log that transformers takes over, or raise a ValueError."""
        if self._engine is None:
            return  # reported already
        if self.strict:
            raise ValueError(
                f'`backend="native"` does not take {error}: leave it out, or use `backend="auto"`, which falls back '
                "to transformers"
            ) from None
        self._report(f"{error} is left to transformers' generate().")

    def _report(self, message: str) -> None:
        """Log a line, once."""
        if message not in self._reported:
            self._reported.add(message)
            fast_logger.warning(message)

    def _refresh(self) -> None:
        """Pack the weights again if they have changed since. A change through `.data` is not seen."""
        made_of = [
            (parameter.data_ptr(), -1 if parameter.is_inference() else parameter._version)
            for parameter in (*self.model.parameters(), *self.model.buffers())
        ]
        if made_of == self._made_of:
            return
        self._engine = Engine(program_of(self.model)[0], int8=self.int8)
        self._made_of = made_of

    def _config(self, given: GenerationConfig | None, options: dict[str, Any]) -> GenerationConfig:
        """The settings of this call; refuse what the engine does not obey."""
        config = generation_settings(self.model, given)
        unused = config.update(**{name: value for name, value in options.items() if name != "generation_config"})
        for name, value in unused.items():
            if value is not None and value is not False:
                raise UnsupportedOptionError(f"`{name}`")
        defaults = GenerationConfig().to_dict() | NEUTRAL
        for name, value in config.to_dict().items():
            if name.startswith("_") or name in KNOWN_FIELDS or value is None or value is False:
                continue  # a token of 0 is a value
            if value != defaults.get(name):
                raise UnsupportedOptionError(f"`{name}={value!r}`")
        if config.do_sample:
            raise UnsupportedOptionError("`do_sample=True`")
        return config

    def _request(self, inputs: object, attention_mask: torch.Tensor | None, config: GenerationConfig) -> _Request:
        if self._engine is None:
            raise UnsupportedOptionError(f"this model ({self._missing})")
        self._refresh()
        settings = self.model.config
        if self.model.training:
            raise UnsupportedOptionError("a model in training mode")
        if not isinstance(inputs, torch.Tensor) or inputs.dim() != 2 or not inputs.numel():
            raise UnsupportedOptionError("an input that is not `input_ids` [batch, source]")
        end = _single(config.eos_token_id)
        start = config.decoder_start_token_id
        start = settings.decoder_start_token_id if start is None else start
        if isinstance(start, list) or start is None:
            raise UnsupportedOptionError(f"`decoder_start_token_id={start!r}`")
        sources = self._sources(inputs, attention_mask, config)
        longest = self._longest(config)
        num_beams, returned = int(config.num_beams or 1), int(config.num_return_sequences or 1)
        if longest < 1 or returned > num_beams or 2 * num_beams > self._vocabulary:
            raise UnsupportedOptionError(f"{longest} tokens, {num_beams} beams and {returned} returned sequences")
        if self.shortlist is not None:
            fewest = min(len(self.shortlist.of_source(source, end)) for source in sources)
            if 2 * num_beams > fewest:
                raise UnsupportedOptionError(f"{num_beams} beams with a shortlist of {fewest} tokens")
        at_end = None if config.forced_eos_token_id is None else _single(config.forced_eos_token_id)
        if at_end is not None and at_end != end:
            raise UnsupportedOptionError(f"`forced_eos_token_id={at_end}`")
        suppressed = _suppressed(config, end)
        for name, tokens in (("decoder_start_token_id", [int(start)]), ("suppress_tokens", suppressed)):
            self._check_targets(name, tokens)
        if end != -1:
            self._check_targets("eos_token_id", [end])
        pad = config.pad_token_id if config.pad_token_id is not None else settings.pad_token_id
        options = SearchOptions(
            limits=[longest] * len(inputs),
            forces_end=[end >= 0 and at_end is not None] * len(inputs),
            num_beams=num_beams,
            num_return_sequences=returned,
            length_penalty=1.0 if config.length_penalty is None else float(config.length_penalty),
            early_stopping=config.early_stopping or False,
            no_repeat_ngram_size=int(config.no_repeat_ngram_size or 0),
            min_new_tokens=_least_tokens(config),
            suppress_tokens=suppressed,
            shortlist=self.shortlist,
        )
        return _Request(sources, options, int(start), end, _padding(pad, end, num_beams))

    def _sources(
        self, inputs: torch.Tensor, attention_mask: torch.Tensor | None, config: GenerationConfig
    ) -> list[list[int]]:
        """The tokens of each source, without padding."""
        if attention_mask is not None:
            keep = attention_mask.bool()
        else:
            pad, end = (
                getattr(self.model.config if getattr(config, name) is None else config, name)
                for name in ("pad_token_id", "eos_token_id")
            )
            keep = inputs.ne(pad) if pad is not None and pad != _single(end) else torch.ones_like(inputs).bool()
        if keep.shape != inputs.shape or not bool(keep.any(dim=1).all()):
            raise UnsupportedOptionError("a source without a word")
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and bool((keep[:, 1:] > keep[:, :-1]).any()):
            raise UnsupportedOptionError("padding on the left")
        vocabulary = self.model.get_input_embeddings().num_embeddings
        if int(inputs.max()) >= vocabulary or int(inputs.min()) < 0:
            raise UnsupportedOptionError(f"a token outside of the vocabulary of {vocabulary}")
        longest = cast(Engine, self._engine).longest_source
        if longest is not None and int(keep.sum(dim=1).max()) > longest:
            raise UnsupportedOptionError(f"a source of more than {longest} tokens")
        return [row[kept].tolist() for row, kept in zip(inputs, keep, strict=True)]

    def _longest(self, config: GenerationConfig) -> int:
        """The most tokens after the start token."""
        most = cast(Engine, self._engine).longest_target
        if config.max_new_tokens is not None:
            longest = int(config.max_new_tokens)
        elif config.max_length is not None:
            longest = int(config.max_length) - 1
        else:
            longest = min(DEFAULT_NEW_TOKENS, (most or DEFAULT_NEW_TOKENS + 1) - 1)
        if most is not None and longest > most:
            raise UnsupportedOptionError(f"a length beyond the model's {most} positions")
        return longest

    def _check_targets(self, name: str, tokens: Sequence[int]) -> None:
        """Refuse tokens that are not in the vocabulary: the engine reads and writes at their places."""
        outside = [token for token in tokens if not 0 <= token < self._vocabulary]
        if outside:
            raise UnsupportedOptionError(f"`{name}`: {outside[0]}, outside of the vocabulary of {self._vocabulary}")

    @property
    def _vocabulary(self) -> int:
        return len(self.model.get_output_embeddings().weight)


def codes_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the codes of a weight [out, in] in int8, and the largest magnitude of each row [out]."""
    largest = weight.abs().amax(dim=1)
    factors = torch.full_like(largest, LARGEST_CODE) / largest  # as C divides; torch's scalar / tensor multiplies
    return (weight * factors[:, None]).nan_to_num().round().to(torch.int8), largest


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


def _suppressed(config: GenerationConfig, end: int) -> list[int]:
    """Return the tokens never to write; transformers lets no bad word keep a translation from its end."""
    banned = [words for words in config.bad_words_ids or [] if words != [end]]
    if any(len(words) != 1 for words in banned):
        raise UnsupportedOptionError("`bad_words_ids` of several tokens")
    return [*(words[0] for words in banned), *(config.suppress_tokens or [])]


def _least_tokens(config: GenerationConfig) -> int:
    if config.min_new_tokens is not None:
        return int(config.min_new_tokens)
    return max(int(config.min_length or 0) - 1, 0)


def _sequences(found: list[Found], request: _Request) -> torch.Tensor:
    """[B * returned, T], with the start token, as long as the longest that was generated."""
    rows = [tokens for one in found for tokens in one.tokens]
    longest = max(map(len, rows))
    return torch.tensor([[request.start, *row, *[request.pad] * (longest - len(row))] for row in rows])
