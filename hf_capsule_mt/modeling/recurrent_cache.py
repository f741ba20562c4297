"""The state of a recurrent decoder as a `Cache` of transformers, so that `generate()` works with it.

A recurrent layer needs only its last state, whatever the number of tokens: (h, c) of an LSTM, (h,) of a GRU. The cache
also holds what a decoder computes once for each sentence, such as a projection of the source.

Legend: B batch, d model width.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin
from transformers.cache_utils import Cache, CacheLayerMixin

from hf_capsule_mt.modeling.cache_names import CACHE_NAME
from hf_capsule_mt.modeling.sentence_cache import SentenceConstants

RecurrentState = tuple[torch.Tensor, ...]  # (h, c) or (h,), each [B, d]
# accepted by `generate(cache_implementation=...)`; "static" fixes the addresses of states, whose size is fixed anyway
CACHE_IMPLEMENTATIONS = (None, "dynamic", "dynamic_full", "static")


class RecurrentStateLayer(CacheLayerMixin):
    """The state of one layer after the tokens seen so far.

    While the past is recorded, the states after earlier tokens stay too, so that `crop` can go back to them:
    speculative decoding drops the tokens that it guessed wrong.
    """

    is_compileable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self) -> None:
        self.record_past = False
        self.reset()

    def reset(self) -> None:
        self.state: RecurrentState | None = None
        self.num_tokens = 0
        self.past: list[tuple[int, RecurrentState | None]] = []  # the states before and after each recorded append

    def append(self, state: RecurrentState, num_tokens: int = 1) -> None:
        """Replace the state by the one after `num_tokens` more tokens."""
        if self.record_past and not self.past:
            self.past.append((self.num_tokens, self.state))
        self.state = state
        self.num_tokens += num_tokens
        if self.record_past:
            self.past.append((self.num_tokens, state))

    def crop(self, tokens_to_remove: int) -> None:
        """Go back by `tokens_to_remove` tokens; transformers passes it as a negative number."""
        target = self.num_tokens - abs(tokens_to_remove)
        if target != self.num_tokens:
            recorded = dict(self.past)
            if target not in recorded:
                raise ValueError(
                    f"`crop` cannot go back from {self.num_tokens} to {target} tokens: states are recorded after "
                    f"{sorted(recorded)} tokens; call `activate_past_recording` first and give the decoder one token "
                    "at a time"
                )
            self.num_tokens, self.state = target, recorded[target]
        self.past = [(num_tokens, state) for num_tokens, state in self.past if num_tokens <= target]

    def change_rows(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Apply a change of the batch dimension to the current state and the recorded ones."""

        def changed(state: RecurrentState | None) -> RecurrentState | None:
            return None if state is None else tuple(change(tensor) for tensor in state)

        self.state = changed(self.state)
        self.past = [(num_tokens, changed(state)) for num_tokens, state in self.past]

    # ---- the interface of a cache layer in transformers
    @property
    def is_initialized(self) -> bool:
        return self.state is not None

    @property
    def is_croppable(self) -> bool:  # type: ignore[override]
        return self.record_past

    @property
    def keys(self) -> torch.Tensor | None:  # type: ignore[override]
        return None if self.state is None else self.state[0]

    @property
    def values(self) -> torch.Tensor | None:  # type: ignore[override]
        """The last tensor of the state; [B, 0] for a layer whose state is one tensor."""
        if self.state is None:
            return None
        return self.state[-1] if len(self.state) > 1 else self.state[0][:, :0]

    def activate_past_recording(self) -> None:
        self.record_past = True

    def get_seq_length(self) -> int:
        return self.num_tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.num_tokens + query_length, 0

    def get_max_length(self) -> int:
        return -1  # no maximum

    get_max_cache_shape = get_max_length  # its older name

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.change_rows(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.change_rows(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.change_rows(lambda tensor: tensor[indices.to(tensor.device)])

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the first `append` sets the state."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a recurrent layer does not have keys and values to update: use `append`")


class StaticRecurrentStateLayer(RecurrentStateLayer):
    """The state at fixed addresses: a compiled step overwrites it, and a CUDA graph can replay the step.

    `num_tokens` is a tensor [] after the first append; a Python `int` would recompile the step for every token.
    """

    is_compileable = True

    def append(self, state: RecurrentState, num_tokens: int = 1) -> None:
        if self.state is None:
            self._store(state)
            self.num_tokens = torch.zeros((), dtype=torch.long, device=state[0].device)  # type: ignore[assignment]
            _fix_address(self.num_tokens)
        else:
            for stored, new in zip(self.state, state, strict=True):
                stored.copy_(new)
        self.num_tokens += num_tokens

    def change_rows(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        if self.state is None:
            return
        changed = tuple(change(tensor) for tensor in self.state)
        if changed[0].shape == self.state[0].shape:
            self.append(changed, 0)
        else:
            self._store(changed)

    def _store(self, state: RecurrentState) -> None:
        """Copy the tensors [B, d] of a state to new memory, whose addresses are then fixed."""
        self.state = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in state)
        for tensor in self.state:
            _fix_address(tensor)

    def activate_past_recording(self) -> None:
        raise ValueError('a static cache cannot record the past; use `cache_implementation="dynamic"`')


def _fix_address(tensor: Any) -> None:
    """Tell compilers that the address stays, as transformers' `StaticLayer` does; a traced prefill cannot do so."""
    if not torch.compiler.is_compiling():
        torch._dynamo.mark_static_address(tensor)


class RecurrentCache(SentenceConstants, Cache):
    """The states of all layers of a recurrent decoder, and the constants of each sentence."""

    layers: list[RecurrentStateLayer]  # type: ignore[assignment]
    _is_user_defined = False  # transformers' mark of a cache that the caller passed to `generate()`

    def __init__(self, num_layers: int, static: bool = False) -> None:
        """`static` keeps the states at fixed addresses, for compiled decoding."""
        layer_class = StaticRecurrentStateLayer if static else RecurrentStateLayer
        super().__init__(layers=[layer_class() for _ in range(num_layers)])

    @property
    def states(self) -> list[RecurrentState] | None:
        """The state of each layer; `None` before the first token."""
        states = [layer.state for layer in self.layers if layer.state is not None]
        return states or None

    @property
    def record_past(self) -> bool:
        """Whether the states after every token are recorded: the decoder must then append one token at a time."""
        return any(layer.record_past for layer in self.layers)

    def append(self, states: Sequence[RecurrentState], num_tokens: int = 1) -> None:
        """Replace the states of all layers by those after `num_tokens` more tokens."""
        for layer, state in zip(self.layers, states, strict=True):
            layer.append(state, num_tokens)


def check_cache(cache: object, num_layers: int) -> RecurrentCache:
    """Return `cache`; raise an error unless it is a `RecurrentCache` of `num_layers` layers."""
    if not isinstance(cache, RecurrentCache):
        raise TypeError(f"`cache` must be a RecurrentCache, got {type(cache).__name__}")
    if len(cache) != num_layers:
        raise ValueError(f"`cache` has {len(cache)} layers, but `decoder_layers` is {num_layers}")
    return cache


def cache_for(decoder: Any, cache: object, use_cache: bool | None) -> RecurrentCache | None:
    """Return `cache`, or a new one if `use_cache` is set, by default by the configuration; else `None`."""
    if cache is not None:
        return check_cache(cache, decoder.config.decoder_layers)
    needs_cache = decoder.config.use_cache if use_cache is None else use_cache
    return RecurrentCache(decoder.config.decoder_layers) if needs_cache else None


class RecurrentGeneration(GenerationMixin):
    """Let `generate()` make a `RecurrentCache` of `config.decoder_layers` layers."""

    @staticmethod
    def create_masks_for_generate(
        *, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Any
    ) -> torch.Tensor | None:
        """Return the part [B, T] of the attention mask for the T new tokens.

        The past is in the states and needs no mask. transformers calls this method if the step will be compiled.
        """
        return None if attention_mask is None else attention_mask[:, -inputs_embeds.shape[1] :]

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Write the cache into `model_kwargs`, as transformers does."""
        num_layers: int = self.config.decoder_layers  # type: ignore[attr-defined]
        implementation, passed_cache = generation_config.cache_implementation, model_kwargs.get(CACHE_NAME)
        if implementation not in CACHE_IMPLEMENTATIONS:
            raise ValueError(
                f'`cache_implementation` "{implementation}" is not for a recurrent model, whose cache has a fixed '
                'size anyway; leave it out, or use "static" to compile the decoding step'
            )
        if passed_cache is not None:
            if implementation is not None:
                raise ValueError("give `cache_implementation` or `cache`, not both")
            check_cache(passed_cache, num_layers)._is_user_defined = True
        elif generation_config.use_cache is not False:
            cache = model_kwargs[CACHE_NAME] = RecurrentCache(num_layers, static=implementation == "static")
            if generation_config.is_assistant:
                cache.activate_past_recording()
