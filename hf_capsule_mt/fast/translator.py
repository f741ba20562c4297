"""`to_fast`: a translation model that decodes many times faster, with the interface of `generate()`."""

import copy
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from huggingface_hub import save_torch_state_dict
from torch import nn
from transformers import GenerationConfig, MarianMTModel, PreTrainedModel
from transformers.generation.utils import GenerateBeamEncoderDecoderOutput, GenerateEncoderDecoderOutput
from transformers.utils import logging

from hf_capsule_mt.fast.int8 import int8_state
from hf_capsule_mt.fast.marian_program import marian_program
from hf_capsule_mt.fast.native import NativeModel, NativeUnavailableError
from hf_capsule_mt.fast.programs import Program, UnsupportedModelError, known_class
from hf_capsule_mt.fast.recurrent_programs import capsnmt_program, rnmt_program
from hf_capsule_mt.fast.reference import TorchModel
from hf_capsule_mt.fast.requests import Answer, Backend, Request
from hf_capsule_mt.fast.shortlist import Shortlist
from hf_capsule_mt.modeling import (
    CapsNMTForConditionalGeneration,
    CapsuleMarianMTModel,
    CapsuleRNMTForConditionalGeneration,
)
from hf_capsule_mt.modeling.coverage import CoverageScore
from hf_capsule_mt.modeling.generation import generation_settings
from hf_capsule_mt.modeling.loading import INT8_FACTS, INT8_FILE, INT8_FORMAT, WEIGHTS_FILE

fast_logger = logging.get_logger("hf_capsule_mt.fast")

BackendName = Literal["auto", "torch", "native"]
PROGRAMS: dict[type, Callable[[Any], Program]] = {
    MarianMTModel: marian_program,
    CapsuleMarianMTModel: marian_program,
    CapsNMTForConditionalGeneration: capsnmt_program,
    CapsuleRNMTForConditionalGeneration: rnmt_program,
}
# fields of a generation config that a backend obeys, or that do not change what is generated
KNOWN_FIELDS = frozenset(
    {
        *("num_beams", "num_return_sequences", "length_penalty", "early_stopping", "no_repeat_ngram_size"),
        *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "bad_words_ids", "suppress_tokens"),
        *("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_eos_token_id"),
        *("use_cache", "return_dict_in_generate", "do_sample", "transformers_version", "cache_implementation"),
        *("temperature", "top_k", "top_p"),  # without `do_sample` they do nothing
    }
)
DEFAULT_NEW_TOKENS = 20  # of transformers
EARLY_STOPPING: dict[Any, int] = {False: 0, None: 0, True: 1, "never": 2}


class UnsupportedOptionError(ValueError):
    """An option of `generate()` that no backend obeys."""


def to_fast(
    model: PreTrainedModel,
    *,
    int8: bool = True,
    backend: BackendName = "auto",
    shortlist: Shortlist | bool | str | os.PathLike[str] = False,
) -> "FastTranslator":
    """Return a translator that decodes with packed copies of a model's weights.

    It takes every model of this package and transformers' `MarianMTModel` (OPUS-MT):

        fast = to_fast(model)
        tokens = fast.generate(input_ids, attention_mask=attention_mask, num_beams=5)

    Args:
        int8: multiply in int8, with a scale for each row and each output; on a CPU. With False the results are those
            of `generate()`, token for token.
        backend: "native" (C), "torch" (no compiled code), or "auto": native where it is there. With "auto" an option
            that the backends do not know is left to `generate()`, with a line in the log; else it is a ValueError.
            A model on a GPU is decoded there by "torch", in float32: encoder, decoder and search without a wait for
            the host but one every few steps. Its speed was not measured yet.
        shortlist: score only the tokens that the words of a source are likely to become: a file of `capsule-mt
            shortlist`, or True for the one beside the checkpoint. Scores and coverage are among these tokens then.
    """
    if backend not in ("auto", "torch", "native"):
        raise ValueError(f'`backend` must be "auto", "torch" or "native", got {backend!r}')
    if shortlist is True:
        shortlist = str(model.name_or_path)
    if isinstance(shortlist, (str, os.PathLike)):
        shortlist = Shortlist.load(shortlist)
    return FastTranslator(model, int8=int8, backend=backend, shortlist=shortlist or None)


def takes_fast(model: PreTrainedModel) -> bool:
    """Whether a program can be written for this model; if not, a line in the log says why."""
    try:
        FastTranslator.program_of(model)
    except UnsupportedModelError as error:
        fast_logger.warning(f"{error}: transformers' generate() decodes.")
        return False
    return True


class Decoded(NamedTuple):
    """What `FastTranslator.decode` returns.

    sequences: [B * returned, T].
    log_probs: [B * returned], the mean log-probability of a token.
    coverage: of the B * returned translations, if it was asked for and the backend followed PAST and FUTURE; or the
        most that the head attends to each source token, [B * returned, S].
    """

    sequences: torch.Tensor
    log_probs: torch.Tensor
    coverage: CoverageScore | torch.Tensor | None


class FastTranslator:
    """A model and the backend that decodes for it: see `to_fast`."""

    def __init__(
        self, model: PreTrainedModel, *, int8: bool, backend: BackendName, shortlist: Shortlist | None = None
    ) -> None:
        self.model: Any = model
        self.shortlist = shortlist
        if shortlist is not None:
            embeddings = cast(nn.Embedding, model.get_input_embeddings())
            shortlist.check(len(embeddings.weight), self._vocabulary)
        self.int8 = int8
        self.wanted = backend
        self._made_of: list[tuple[int, int]] = []
        self._longest_source: int | None = None
        self._backend: Backend | None = None
        self._reported: set[str] = set()
        try:
            self._refresh()
        except (UnsupportedModelError, NativeUnavailableError) as error:
            if backend != "auto":
                raise
            self._report(str(error))

    @torch.no_grad()
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the model as an int8 checkpoint, a third to a quarter of the size of one in float32.

        `Translator.from_pretrained(folder, int8=True)` and every command load it, and the native engine then
        translates as `self` does, bit for bit. Rounded are the matrices whose rounding does not change what the engine
        multiplies by: not embeddings, nor what is multiplied out beforehand. Save the tokenizer beside it.
        """
        if not self.int8:
            raise ValueError("`save` writes int8 checkpoints, but `int8` is False: use `model.save_pretrained`")
        folder = Path(folder)
        if (folder / WEIGHTS_FILE).exists():
            raise ValueError(f"{folder} has weights already ({WEIGHTS_FILE}): choose an empty folder")
        model = copy.deepcopy(self.model).float().cpu()
        state = int8_state(model, self.program_of)
        folder.mkdir(parents=True, exist_ok=True)
        save_torch_state_dict(
            state, folder, filename_pattern=INT8_FILE.replace(".", "{suffix}."), max_shard_size="1TB"
        )
        facts = {"format": INT8_FORMAT, "sha256": sha256((folder / INT8_FILE).read_bytes()).hexdigest()}
        (folder / INT8_FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        model.config.dtype = torch.float32
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)

    @property
    def backend(self) -> str:
        """What decodes: "native", "torch", or "transformers" if no backend takes the model."""
        return "transformers" if self._backend is None else self._backend.name

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *,
        attention_mask: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        limits: torch.Tensor | None = None,
        return_coverage: bool = False,
        **options: Any,
    ) -> Any:
        """Generate like `model.generate()`, with its names and results.

        Args:
            inputs: source tokens [B, S].
            attention_mask: [B, S].
            generation_config: settings; what they leave open is the model's own, as in `model.generate()`.
            limits: [B], how many tokens may follow the start token of each source; at the limit the end token is
                forced, unless `max_new_tokens` or `max_length` is reached at the same token.
            return_coverage: add `coverage`, which is `model.score_coverage` of the sequences, to the result. Needs a
                model with PAST and FUTURE and `return_dict_in_generate`.
            **options: settings that take precedence. With `return_dict_in_generate` the result of beam search has
                `sequences_scores`.

        Returns:
            Sequences [B * returned, T] that begin with the start token, padded on the right.
        """
        inputs = options.pop("input_ids", None) if inputs is None else inputs
        if isinstance(inputs, torch.Tensor):
            inputs = inputs.to(self.model.device)
            attention_mask = None if attention_mask is None else attention_mask.to(self.model.device)
        try:
            config = self._config(generation_config, options)
            answer, request = self._answer(inputs, attention_mask, config, limits, coverage=return_coverage)
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            if limits is not None or return_coverage:
                name = "limits" if limits is not None else "return_coverage"
                raise ValueError(f"`{name}` is for the fast backends, which do not take {error}") from None
            return self.model.generate(
                inputs, attention_mask=attention_mask, generation_config=generation_config, **options
            )
        sequences = _with_start(answer, request)
        if not config.return_dict_in_generate:
            if return_coverage:
                raise ValueError("`return_coverage` needs `return_dict_in_generate=True`, got False")
            return sequences
        kept = cast(torch.LongTensor, sequences)
        found: Any = GenerateEncoderDecoderOutput(sequences=kept)
        if request.num_beams > 1:
            scores = cast(torch.FloatTensor, answer.scores.flatten())
            found = GenerateBeamEncoderDecoderOutput(sequences=kept, sequences_scores=scores)
        if return_coverage:
            keep = self._keep(inputs, attention_mask, config)
            coverage = self._coverage(inputs, keep, answer)
            if coverage is None:
                inputs, keep = (one.repeat_interleave(request.num_returned, dim=0) for one in (inputs, keep))
                coverage = self.model.score_coverage(inputs, keep, labels=sequences[:, 1:])
            found["coverage"] = coverage
        return found

    def decode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        limits: torch.Tensor | None,
        options: Mapping[str, Any],
        *,
        coverage: bool | Sequence[int] = False,
    ) -> Decoded | None:
        """Generate with scores and, if asked for, coverage: that of the model, or of a layer and a head.

        The other arguments are those of `generate`. The result is `None`, with a line in the log, where "auto" leaves
        an option to transformers.
        """
        settings = dict(options)
        try:
            config = self._config(settings.pop("generation_config", None), settings)
            answer, request = self._answer(input_ids, attention_mask, config, limits, scored=True, coverage=coverage)
        except UnsupportedOptionError as error:
            self._report_unsupported(error)
            return None
        sequences = _with_start(answer, request)
        if answer.reading is not None:
            keep = self._keep(input_ids, attention_mask, config)
            scored = self._coverage(input_ids, keep, answer, of_head=request.head is not None)
            return Decoded(sequences, answer.reading.log_probs.flatten(), scored)
        lengths = _lengths(answer, request).clamp(min=1).float()
        return Decoded(sequences, (answer.scores * lengths ** (request.length_penalty - 1)).flatten(), None)

    def _coverage(
        self, inputs: torch.Tensor, keep: torch.Tensor, answer: Answer, *, of_head: bool = False
    ) -> CoverageScore | torch.Tensor | None:
        """The coverage of the results [B * returned], if the backend followed it."""
        if answer.reading is None:
            return None
        places = (keep.cumsum(dim=1) - 1).clamp(min=0)[:, None, None]  # of each token among those without padding
        values = answer.reading.values.take_along_dim(places, dim=-1) * keep[:, None, None]  # [B, returned, 4, S]
        if of_head:
            return values[:, :, 0].flatten(0, 1)
        past, future, fall, agreed = values.flatten(0, 1).unbind(dim=1)
        copies = values.shape[1]
        scored: CoverageScore = self.model.coverage_of_falls(
            inputs.repeat_interleave(copies, dim=0),
            keep.repeat_interleave(copies, dim=0),
            past,
            future,
            fall=fall,
            agreed=agreed,
            log_prob=answer.reading.log_probs.flatten(),
        )
        return scored

    def _report_unsupported(self, error: "UnsupportedOptionError") -> None:
        """Log that transformers takes over; with an explicit backend, raise a ValueError."""
        if self.wanted != "auto":
            raise ValueError(
                f'`backend="{self.wanted}"` does not take {error}: leave it out, or use `backend="auto"`, which falls '
                "back to transformers"
            ) from None
        self._report(f"{error} is left to transformers' generate().")

    def _answer(
        self,
        inputs: object,
        attention_mask: torch.Tensor | None,
        config: GenerationConfig,
        limits: torch.Tensor | None,
        *,
        scored: bool = False,
        coverage: bool | Sequence[int] = False,
    ) -> tuple[Answer, Request]:
        if self._backend is None:
            raise UnsupportedOptionError(f"a model of type {self.model.config.model_type}")
        self._refresh()
        request = self._request(inputs, attention_mask, config, limits, scored=scored or bool(coverage))
        head = None if isinstance(coverage, bool) else (coverage[0], coverage[1])
        if coverage and self._follows(request, head):
            request = replace(request, coverage=True, head=head)
        return self._backend.translate(request), request

    def _follows(self, request: Request, head: tuple[int, int] | None) -> bool:
        """Whether the backend can read PAST and FUTURE, or a head, to the end of this request's translations."""
        config = self.model.config
        if head is None:
            has_coverage = self._backend is not None and self._backend.has_coverage
        else:
            sizes = (getattr(config, f"decoder_{name}", 0) for name in ("layers", "attention_heads"))
            has_coverage = all(0 <= number < size for number, size in zip(head, sizes, strict=True))
        positions = getattr(config, "max_position_embeddings", None)
        has_position = positions is None or request.longest < positions
        ends_alike = request.end_token == config.eos_token_id
        return has_coverage and has_position and ends_alike

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
        program = self.program_of(self.model)
        self._backend, self._longest_source = self._pack(program), program.longest_source
        self._made_of = made_of

    @staticmethod
    @torch.no_grad()
    def program_of(model: PreTrainedModel) -> Program:
        """Write the program of a model, or refuse what no program can say."""
        if not isinstance(model, PreTrainedModel):
            raise UnsupportedModelError(
                f"`to_fast` takes transformers models, got a {type(model).__name__}: merge_and_unload() merges peft's"
            )
        weight = next(model.parameters())
        if weight.is_meta or not weight.is_floating_point():
            raise UnsupportedModelError(
                f"fast decoding is for floating point models with values, got {weight.dtype} on {weight.device}"
            )
        if any(parameter.device != weight.device for parameter in model.parameters()):
            raise UnsupportedModelError("fast decoding is for models on one device")
        write = PROGRAMS[known_class(model, *PROGRAMS)]
        if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
            raise UnsupportedModelError("a model with forward hooks has no fast form")
        return write(model)

    def _pack(self, program: Program) -> Backend:
        device = program.linears[0].weight.device
        if device.type != "cpu":
            if self.wanted == "native":
                raise NativeUnavailableError(f"the native engine decodes on a CPU, got a model on {device}")
            if self.int8:
                self._report(f"`int8` is for a CPU: on {device} the products stay float32.")
            return TorchModel(program, int8=False)
        if self.wanted != "torch":
            try:
                return NativeModel(program, int8=self.int8)
            except NativeUnavailableError as error:
                if self.wanted == "native":
                    raise
                self._report(str(error))
        return TorchModel(program, int8=self.int8)

    def _config(self, given: GenerationConfig | None, options: dict[str, Any]) -> GenerationConfig:
        """The settings of this call; refuse what no backend obeys."""
        config = generation_settings(self.model, given)
        unused = config.update(**{name: value for name, value in options.items() if name != "generation_config"})
        for name, value in unused.items():
            if value is not None and value is not False:
                raise UnsupportedOptionError(f"`{name}`")
        defaults = GenerationConfig().to_dict()
        for name, value in config.to_dict().items():
            if name.startswith("_") or name in KNOWN_FIELDS or value is None or value is False:
                continue  # a token of 0 is a value
            if value == defaults.get(name):
                continue
            if name in _NEUTRAL and value == _NEUTRAL[name]:
                continue
            raise UnsupportedOptionError(f"`{name}={value!r}`")
        if config.do_sample:
            raise UnsupportedOptionError("`do_sample=True`")
        return config

    def _request(
        self,
        inputs: object,
        attention_mask: torch.Tensor | None,
        config: GenerationConfig,
        limits: torch.Tensor | None,
        *,
        scored: bool = False,
    ) -> Request:
        settings = self.model.config
        if self.model.training:
            raise UnsupportedOptionError("a model in training mode")
        if not isinstance(inputs, torch.Tensor) or inputs.dim() != 2 or not inputs.numel():
            raise UnsupportedOptionError("an input that is not `input_ids` [batch, source]")
        end = _single(config.eos_token_id)
        pad = config.pad_token_id if config.pad_token_id is not None else settings.pad_token_id
        start = config.decoder_start_token_id
        start = settings.decoder_start_token_id if start is None else start
        if isinstance(start, list) or start is None:
            raise UnsupportedOptionError(f"`decoder_start_token_id={start!r}`")
        if limits is not None and (limits.shape != (len(inputs),) or int(limits.min()) < 1):
            raise ValueError(
                f"`limits` must be a number of at least 1 for each of {len(inputs)} sources, got {limits}"
            )
        keep = self._keep(inputs, attention_mask, config)
        positions = getattr(settings, "max_position_embeddings", None)
        if keep.shape != inputs.shape or not bool(keep.any(dim=1).all()):
            raise UnsupportedOptionError("a source without a word")
        if positions is not None and bool((keep[:, 1:] > keep[:, :-1]).any()):
            raise UnsupportedOptionError("padding on the left")
        vocabulary = self.model.get_input_embeddings().num_embeddings
        if int(inputs.max()) >= vocabulary or int(inputs.min()) < 0:
            raise UnsupportedOptionError(f"a token outside of the vocabulary of {vocabulary}")
        if config.max_new_tokens is not None:
            longest = int(config.max_new_tokens)
        elif config.max_length is not None:
            longest = int(config.max_length) - 1
        else:
            longest = min(DEFAULT_NEW_TOKENS, (positions or DEFAULT_NEW_TOKENS + 1) - 1)
        num_beams, returned = int(config.num_beams or 1), int(config.num_return_sequences or 1)
        if longest < 1 or returned > num_beams or 2 * num_beams > self._vocabulary:
            raise UnsupportedOptionError(f"{longest} tokens, {num_beams} beams and {returned} returned sequences")
        if positions is not None and (longest > positions or int(keep.sum(dim=1).max()) > positions):
            raise UnsupportedOptionError(f"a length beyond the model's {positions} positions")
        if self._longest_source is not None and int(keep.sum(dim=1).max()) > self._longest_source:
            raise UnsupportedOptionError(f"a source of more than {self._longest_source} tokens")
        host_inputs, host_keep = inputs.cpu(), keep.cpu()
        sources = [row[kept].tolist() for row, kept in zip(host_inputs, host_keep, strict=True)]
        shortlists = None
        if self.shortlist is not None:
            shortlists = [self.shortlist.of_source(source, end) for source in sources]
            fewest = min(map(len, shortlists))
            if 2 * num_beams > fewest:
                raise UnsupportedOptionError(f"{num_beams} beams with a shortlist of {fewest} tokens")
        at_end = config.forced_eos_token_id
        at_end = _single(at_end) if at_end is not None else None
        if at_end is not None and at_end != end:
            raise UnsupportedOptionError(f"`forced_eos_token_id={at_end}`")
        suppressed = _suppressed(config, end)
        for name, tokens in (("decoder_start_token_id", [int(start)]), ("suppress_tokens", suppressed)):
            self._check_targets(name, tokens)
        if end != -1:
            self._check_targets("eos_token_id", [end])
        by_source = [longest] * len(inputs) if limits is None else [min(limit, longest) for limit in limits.tolist()]
        return Request(
            sources=sources,
            limits=by_source,
            forced=[end >= 0 and (limit < longest or at_end is not None) for limit in by_source],
            suppressed=suppressed,
            num_beams=num_beams,
            num_returned=returned,
            least_tokens=_least_tokens(config),
            no_repeat_ngram=int(config.no_repeat_ngram_size or 0),
            start_token=int(start),
            end_token=end,
            pad_token=_padding(pad, end, num_beams),
            length_penalty=1.0 if config.length_penalty is None else float(config.length_penalty),
            early_stopping=EARLY_STOPPING[config.early_stopping],
            scored=scored,
            coverage=False,
            shortlists=shortlists,
        )

    def _keep(
        self, inputs: torch.Tensor, attention_mask: torch.Tensor | None, config: GenerationConfig
    ) -> torch.Tensor:
        """Which of the inputs [B, S] are not padding."""
        if attention_mask is not None:
            return attention_mask.bool()
        pad, end = (
            getattr(self.model.config if getattr(config, name) is None else config, name)
            for name in ("pad_token_id", "eos_token_id")
        )
        return inputs.ne(pad) if pad is not None and pad != _single(end) else torch.ones_like(inputs, dtype=torch.bool)

    def _check_targets(self, name: str, tokens: Sequence[int]) -> None:
        """Refuse tokens that are not in the vocabulary: the native engine reads and writes at their places."""
        outside = [token for token in tokens if not 0 <= token < self._vocabulary]
        if outside:
            raise UnsupportedOptionError(f"`{name}`: {outside[0]}, outside of the vocabulary of {self._vocabulary}")

    @property
    def _vocabulary(self) -> int:
        return len(self.model.get_output_embeddings().weight)


# values that change nothing
_NEUTRAL: dict[str, Any] = {
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


def _with_start(answer: Answer, request: Request) -> torch.Tensor:
    """[B, returned, longest] -> [B * returned, T], with the start token, as long as the longest that was generated."""
    tokens = answer.tokens[..., : int(_lengths(answer, request).max())].flatten(0, 1)
    return torch.cat([torch.full_like(tokens[:, :1], request.start_token), tokens], dim=1)


def _lengths(answer: Answer, request: Request) -> torch.Tensor:
    """The tokens after the start token [B, returned]: to the first end token, which counts, or to the limit."""
    before_end = answer.tokens.ne(request.end_token).cumprod(dim=-1).sum(dim=-1)
    return torch.minimum(before_end + 1, torch.tensor(request.limits, device=before_end.device)[:, None])
