"""What every translation model of the package must do, whatever its settings.

A model gets all of it by one class:

    class TestMyModel(ModelChecks):
        family = Family(MyConfig, MyModel, MyForConditionalGeneration, sizes={...})
        mixes = {"plain": {}, "with_a_switch": {"switch": True}}

Weights are drawn anew for every test, biases and gains included: zero biases hide leaks. The quick suite runs the
mixes of `QUICK_MIXES`, the slow one the rest.
"""

import contextlib
import copy
import itertools
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import accelerate
import pytest
import torch
import transformers
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac
from packaging.version import Version
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, CompileConfig, MarianConfig, MarianMTModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_capsule_mt.modeling.cache_names import CACHE_NAME, cache_field
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache
from hf_capsule_mt.routing import common

TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}
PAD, EOS, START = 1, 2, 3
# together they have every seam of every family
QUICK_MIXES = (
    "everything",  # Capsule Marian: layers and heads, by EM routing
    "guided",  # PAST and FUTURE, and their losses
    "ssru_combined",  # all four seams at once
    "rnmt_guided",  # RNMT: PAST and FUTURE
    "capsules",  # CapsNMT: a source in capsules
    "hybrid",  # CapsNMT: and attention beside them
)


@dataclass
class Family:
    """The classes of a model family, and the sizes of a tiny one."""

    config_class: type
    model_class: type
    generation_class: type
    sizes: dict[str, Any]
    has_attentions: bool = True
    has_keys_and_values: bool = True
    pads_left: bool = False
    vocab_size: int = 31
    special_tokens: dict[str, int] = field(
        default_factory=lambda: {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": START}
    )


def randomize(model: nn.Module, std: float = 0.2) -> nn.Module:
    """Draws every parameter anew, apart from the fixed positions, so that no bias is zero and no gain is one."""
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=std)
    for name, buffer in model.named_buffers():
        if "final_logits_bias" in name:
            nn.init.normal_(buffer, std=std)
    return model


@contextlib.contextmanager
def deprecations() -> Iterator[list[str]]:
    """Collect what transformers says of deprecated names, as warnings and in its log, and let it pass."""
    messages: list[str] = []
    logger = logging.getLogger("transformers")
    handlers, handler = logger.handlers, logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logger.handlers = [handler]
        try:
            yield messages
        finally:
            logger.handlers = handlers
            logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
            messages += [str(warning.message) for warning in caught if warning.category is FutureWarning]


def plain_name(name: str) -> str:
    """Return the name of a parameter or a module without the wrappers of activation checkpointing."""
    return name.replace("_checkpoint_wrapped_module.", "").removesuffix("._checkpoint_wrapped_module")


class LogitsOf(nn.Module):
    """A model without a cache that returns its logits alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return self.model(input_ids, attention_mask, decoder_input_ids, use_cache=False).logits


class ModelChecks:
    family: Family
    mixes: dict[str, dict[str, Any]]

    @classmethod
    def parameters(cls) -> list[Any]:
        """Return the mixes as the parameters of a test."""
        return [
            pytest.param(mix, id=name, marks=[] if name in QUICK_MIXES else pytest.mark.slow)
            for name, mix in cls.mixes.items()
        ]

    # ---- a tiny model
    def config(self, mix: dict[str, Any], **changes: Any) -> Any:
        return self.family.config_class(**{**self.family.sizes, **self.family.special_tokens, **mix, **changes})

    def model(self, mix: dict[str, Any], **changes: Any) -> Any:
        """A random model. Untied unless a test asks: with tied embeddings it would mostly repeat its last word."""
        changes = {"tie_word_embeddings": False, **changes}
        model = randomize(self.family.generation_class(self.config(mix, **changes))).eval()
        model.generation_config.forced_eos_token_id = None
        return model

    def batch(self, lengths: tuple[int, ...] = (7, 4, 5), target_length: int = 6) -> dict[str, torch.Tensor]:
        """Sources of ragged length, padded right, and targets."""
        words = torch.arange(START + 1, self.family.vocab_size)
        length = max(lengths)
        input_ids = words[torch.randint(len(words), (len(lengths), length))]
        mask = torch.arange(length) < torch.tensor(lengths)[:, None]
        return {
            "input_ids": input_ids.masked_fill(~mask, PAD),
            "attention_mask": mask.long(),
            "decoder_input_ids": words[torch.randint(len(words), (len(lengths), target_length))],
        }

    def labels(self, lengths: tuple[int, ...] = (6, 3, 5)) -> torch.Tensor:
        labels = torch.randint(START + 1, self.family.vocab_size, (len(lengths), max(lengths)))
        return labels.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], -100)

    def test_a_misspelt_argument_is_refused(self, mix):
        model, batch = self.model(mix), self.batch()
        base, source = model.base_model, self.source(batch)
        encoded = base.encoder(**source)
        target = {"input_ids": batch["decoder_input_ids"], "encoder_hidden_states": encoded.last_hidden_state}
        target |= base.for_decoder(encoded, False, False)
        calls = (
            (model, batch, "output_routing_wieghts", "output_routing_weights"),
            (model, batch, "past_key_value", "past_key_values"),
            (base, batch, "output_routing_wieghts", "output_routing_weights"),
            (base, batch, "retrun_dict", "return_dict"),
            (base.encoder, source, "output_routing_wieghts", "output_routing_weights"),
            (base.decoder, target, "output_hidden_sates", "output_hidden_states"),  # not each decoder routes
        )
        for part, inputs, misspelt, meant in calls:
            with pytest.raises(TypeError, match=f"has no argument `{misspelt}`; did you mean `{meant}`"):
                part(**inputs, **{misspelt: True})
            part(**inputs, tokenizer=None)  # as `generate()` passes on what a model has no use for

    def source(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {key: batch[key] for key in ("input_ids", "attention_mask")}

    # ---- padding, batches and causality
    def test_padding_and_other_sentences_change_nothing(self, mix):
        model, batch = self.model(mix), self.batch()
        expected = model(**batch).logits
        padded_ids = nn.functional.pad(batch["input_ids"], (0, 3), value=PAD)
        mask = nn.functional.pad(batch["attention_mask"], (0, 3))
        torch.testing.assert_close(
            model(**{**batch, "input_ids": padded_ids, "attention_mask": mask}).logits, expected, **TOLERANCE
        )
        garbage = torch.where(
            mask.bool(), padded_ids, torch.randint_like(padded_ids, START + 1, self.family.vocab_size)
        )
        torch.testing.assert_close(
            model(**{**batch, "input_ids": garbage, "attention_mask": mask}).logits, expected, **TOLERANCE
        )
        if self.family.pads_left:
            padded_left = {
                "input_ids": torch.stack([row.roll(3) for row in padded_ids]),
                "attention_mask": torch.stack([row.roll(3) for row in mask]),
            }
            torch.testing.assert_close(model(**{**batch, **padded_left}).logits, expected, **TOLERANCE)
        for row, length in enumerate(batch["attention_mask"].sum(dim=-1)):
            alone = model(
                input_ids=batch["input_ids"][row : row + 1, :length],
                decoder_input_ids=batch["decoder_input_ids"][row : row + 1],
            ).logits
            torch.testing.assert_close(alone, expected[row : row + 1], **TOLERANCE)

    def test_the_decoder_is_causal(self, mix):  # property 38
        model, batch = self.model(mix), self.batch()
        expected = model(**batch).logits
        changed = batch["decoder_input_ids"].clone()
        changed[:, 4:] = START + 1 + (changed[:, 4:] - START) % (self.family.vocab_size - START - 1)
        logits = model(**{**batch, "decoder_input_ids": changed}).logits
        torch.testing.assert_close(logits[:, :4], expected[:, :4], **TOLERANCE)
        assert not torch.allclose(logits[:, 4:], expected[:, 4:], **TOLERANCE)

    # ---- decoding
    def test_stepwise_equals_teacher_forced(self, mix):
        model, batch = self.model(mix), self.batch()
        expected = model(**batch, use_cache=False).logits
        for step_sizes in ((1,) * 6, (3, 1, 2)):
            encoder_outputs = model.get_encoder()(**self.source(batch))
            cache, logits, start = None, [], 0
            for size in step_sizes:
                output = model(
                    encoder_outputs=encoder_outputs,
                    attention_mask=batch["attention_mask"],
                    decoder_input_ids=batch["decoder_input_ids"][:, start : start + size],
                    cache=cache,
                    use_cache=True,
                )
                cache, start = output.cache, start + size
                assert cache.get_seq_length() == start
                logits.append(output.logits)
            torch.testing.assert_close(torch.cat(logits, dim=1), expected, **TOLERANCE)

    @pytest.mark.parametrize(
        "settings",
        [
            {"num_beams": 4, "num_return_sequences": 4},
            {"num_beams": 3, "length_penalty": 0.6, "early_stopping": True, "repetition_penalty": 1.3},
            {"do_sample": True, "num_beams": 2, "top_k": 0},
        ],
        ids=["beam", "beam with settings", "sampling"],
    )
    def test_cached_equals_uncached_decoding(self, mix, settings):
        model, source, outputs = self.model(mix), self.source(self.batch()), []
        settings = {**settings, "max_new_tokens": 8, "return_dict_in_generate": True, "output_logits": True}
        for use_cache in (True, False):
            torch.manual_seed(1)
            outputs.append(model.generate(**source, **settings, use_cache=use_cache))
        assert torch.equal(outputs[0].sequences, outputs[1].sequences)
        torch.testing.assert_close(torch.stack(outputs[0].logits), torch.stack(outputs[1].logits), **TOLERANCE)

    def test_a_batch_decodes_like_its_sentences(self, mix):
        model, source = self.model(mix), self.source(self.batch())
        for settings in ({}, {"num_beams": 3}):
            together = model.generate(**source, **settings, max_new_tokens=8)
            for row, length in enumerate(source["attention_mask"].sum(dim=-1)):
                alone = model.generate(source["input_ids"][row : row + 1, :length], **settings, max_new_tokens=8)
                assert torch.equal(together[row, : alone.shape[1]], alone[0])
                assert (together[row, alone.shape[1] :] == PAD).all()

    @pytest.mark.skipif(
        transformers.__version__.startswith("5.15."),
        reason="assisted decoding of transformers 5.15 fails for every encoder-decoder, Marian included",
    )
    def test_assisted_decoding_equals_greedy(self, mix):
        model, assistant = self.model(mix), self.model(mix)
        source = {key: value[:1] for key, value in self.source(self.batch()).items()}
        expected = model.generate(**source, max_new_tokens=12)
        assert torch.equal(model.generate(**source, max_new_tokens=12, assistant_model=assistant), expected)
        assert torch.equal(model.generate(**source, max_new_tokens=12, assistant_model=copy.deepcopy(model)), expected)
        assert torch.equal(model.generate(**source, max_new_tokens=12, prompt_lookup_num_tokens=2), expected)

    def test_decoding_continues_a_prefix(self, mix):
        model, source = self.model(mix), self.source(self.batch())
        complete = model.generate(**source, max_new_tokens=9, min_new_tokens=9)
        prefix = model.generate(**source, decoder_input_ids=complete[:, :5], max_new_tokens=5, min_new_tokens=5)
        assert torch.equal(prefix, complete)
        begun = model.generate(**source, max_new_tokens=4, min_new_tokens=4, return_dict_in_generate=True)
        continued = model.generate(
            **source,
            decoder_input_ids=begun.sequences,
            decoder_attention_mask=torch.ones_like(begun.sequences),
            max_new_tokens=5,
            min_new_tokens=5,
            **cache_field(getattr(begun, CACHE_NAME)),
        )
        assert torch.equal(continued, complete)

    def test_static_cache(self, mix):
        model, source = self.model(mix), self.source(self.batch())
        beams = {"num_beams": 3, "num_return_sequences": 2}
        begun = {"decoder_input_ids": torch.tensor([[START, 5, 6], [START, 7, PAD], [START, PAD, PAD]])}
        begun["decoder_attention_mask"] = begun["decoder_input_ids"].ne(PAD).long()
        for settings in ({}, beams, begun):
            expected = model.generate(**source, **settings, max_new_tokens=8)
            actual = model.generate(
                **source, **settings, max_new_tokens=8, cache_implementation="static", disable_compile=True
            )
            assert torch.equal(actual, expected)

    def check_cache(self, model: Any, cache: Any, batch_size: int, past_length: int) -> None:
        """What transformers' `_check_past_key_values_for_generate` asserts of the cache of an encoder-decoder."""
        config = model.config
        heads = config.decoder_attention_heads
        width = config.d_model // heads
        assert isinstance(cache, EncoderDecoderCache)
        halves = (
            (cache.self_attention_cache, past_length, width if config.decoder_self == "attention" else 0),
            (cache.cross_attention_cache, 7, width),
        )
        for half, length, value_width in halves:
            assert len(half) == config.decoder_layers
            for layer in half.layers:
                assert layer.keys.shape == (batch_size, heads, length, width)
                assert layer.values.shape == (batch_size, heads, length, value_width)

    def compiled_decoding(self, model: Any, source: dict[str, torch.Tensor], **settings: Any) -> Any:
        """Decode with a static cache, compiled without a code generator, once for all steps."""
        torch._dynamo.reset()
        compile_config = CompileConfig(backend="eager", mode=None, fullgraph=True)
        compile_config._compile_all_devices = True
        with torch._dynamo.config.patch(error_on_recompile=True):
            output = model.generate(**source, **settings, cache_implementation="static", compile_config=compile_config)
        assert hasattr(model, "_compiled_call")
        return output

    def test_every_output_of_compiled_decoding(self, mix):
        """As `test_generate_compilation_all_outputs` of transformers."""
        model, source = self.model(mix), self.source(self.batch())
        if self.family.has_keys_and_values:
            model.set_attn_implementation("eager")
        settings = {
            "max_new_tokens": 5,
            "min_new_tokens": 5,
            "output_attentions": self.family.has_attentions,
            "output_hidden_states": True,
            "output_logits": True,
            "return_dict_in_generate": True,
        }
        expected = model.generate(**source, **settings)
        actual = self.compiled_decoding(model, source, **settings)
        assert torch.equal(actual.sequences, expected.sequences)
        torch.testing.assert_close(torch.stack(actual.logits), torch.stack(expected.logits), **TOLERANCE)
        for steps in ("decoder_hidden_states", "cross_attentions"):
            torch.testing.assert_close(getattr(actual, steps), getattr(expected, steps), **TOLERANCE)
        if self.family.has_keys_and_values:
            cache = getattr(actual, CACHE_NAME)
            self.check_cache(model, cache, 3, cache.get_max_length())
            assert [len(layers) for layers in actual.cross_attentions] == [model.config.decoder_layers] * 5
            assert [len(states) for states in actual.decoder_hidden_states] == [model.config.decoder_layers + 1] * 5

    def test_the_cache_goes_by_both_names(self, mix):
        """In `forward`, in outputs and in `generate()`, whichever name the installed transformers has."""
        model, batch = self.model(mix), self.batch()
        source, tokens = self.source(batch), batch["decoder_input_ids"]
        expected = model(**batch, use_cache=False).logits[:, 3]
        complete = model.generate(**source, max_new_tokens=6, min_new_tokens=6)
        prefix = {"decoder_input_ids": complete[:, :4], "decoder_attention_mask": torch.ones_like(complete[:, :4])}
        for name in ("cache", "past_key_values"):
            with deprecations() as messages:
                for module in (model, model.model):
                    cache = getattr(module(**source, decoder_input_ids=tokens[:, :3], use_cache=True), name)
                    assert cache.get_seq_length() == 3
                    output = module(**source, decoder_input_ids=tokens[:, 3:4], **{name: cache})
                    assert getattr(output, name).get_seq_length() == 4
                    if module is model:
                        torch.testing.assert_close(output.logits[:, 0], expected, **TOLERANCE)
                cache = getattr(model(**source, decoder_input_ids=complete[:, :3], use_cache=True), name)
                continued = model.generate(**source, **prefix, max_new_tokens=3, min_new_tokens=3, **{name: cache})
                assert torch.equal(continued, complete)
            assert bool(messages) == (name != CACHE_NAME and CACHE_NAME == "cache")
        for run in (model, partial(model.generate, max_new_tokens=3)):
            with deprecations(), pytest.raises(ValueError, match="not both"):
                run(**source, decoder_input_ids=tokens, cache=cache, past_key_values=cache)

    def test_the_old_name_of_the_cache_warns_as_marians(self, mix):
        """In the words of the installed transformers: none before 5.24."""
        batch, messages = self.batch(), []
        source, tokens = self.source(batch), batch["decoder_input_ids"]
        sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": self.family.vocab_size}
        marian = MarianMTModel(MarianConfig(**sizes, **self.family.special_tokens))
        for model in (marian.eval(), self.model(mix)):
            with deprecations() as warned:
                for module in (model, model.model):
                    cache = module(**source, decoder_input_ids=tokens[:, :3], use_cache=True).past_key_values
                    module(**source, decoder_input_ids=tokens[:, 3:4], past_key_values=cache)
                encoded = model.get_encoder()(**source)
                states = {"encoder_hidden_states": encoded[0], "capsules": getattr(encoded, "capsules", None)}
                states = {name: states[name] for name in states if states[name] is not None}
                model.get_decoder()(input_ids=tokens, **states, past_key_values=None)
                model.generate(**source, max_new_tokens=3, max_length=None, past_key_values=None)
            classes = (model, model.model, model.get_decoder())
            messages.append(warned)
            for number, module in enumerate(classes):
                messages[-1] = [
                    message.replace(f"`{type(module).__name__}.", f"`{number}.") for message in messages[-1]
                ]
        assert messages[0] == messages[1]
        assert bool(messages[0]) == (CACHE_NAME == "cache")

    def test_a_cache_of_transformers_is_taken(self, mix):
        """A user may pass a plain cache, which cannot hold what a family keeps besides keys and values."""
        if not self.family.has_keys_and_values:
            pytest.skip("a recurrent decoder has a cache of its own")
        model, batch = self.model(mix), self.batch()
        source, tokens = self.source(batch), batch["decoder_input_ids"]
        expected = model(**batch, use_cache=False).logits
        for make in (lambda: DynamicCache(), lambda: EncoderDecoderCache(DynamicCache(), DynamicCache())):
            cache, returned = make(), []
            for position in range(3):
                step = model(**source, decoder_input_ids=tokens[:, position : position + 1], cache=cache)
                torch.testing.assert_close(step.logits[:, 0], expected[:, position], **TOLERANCE)
                assert cache.get_seq_length() == position + 1
                returned.append(step.cache)
            following = model(**source, decoder_input_ids=tokens[:, 3:4], cache=returned[-1]).logits
            torch.testing.assert_close(following[:, 0], expected[:, 3], **TOLERANCE)
        greedy = model.generate(**source, max_new_tokens=6, min_new_tokens=6)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        assert torch.equal(model.generate(**source, max_new_tokens=6, min_new_tokens=6, cache=cache), greedy)

    # ---- losses
    def test_loss_is_the_cross_entropy(self, mix):
        batch, labels = self.batch(), self.labels()
        for label_smoothing, is_training in itertools.product((0.0, 0.1), (False, True)):
            model = self.model(mix, label_smoothing=label_smoothing).train(is_training)
            output = model(**self.source(batch), labels=labels)
            smoothing = label_smoothing if is_training else 0.0
            terms, smoothed = [], []
            for row, position in itertools.product(range(3), range(6)):
                if labels[row, position] != -100:
                    distribution = output.logits[row, position].log_softmax(dim=-1)
                    terms.append(-distribution[labels[row, position]])
                    smoothed.append((1 - smoothing) * terms[-1] - smoothing * distribution.mean())
            torch.testing.assert_close(output.nll_loss, sum(terms) / len(terms), **TOLERANCE)
            guided = sum(part for part in (output.bow_loss, output.bca_loss) if part is not None)
            torch.testing.assert_close(output.loss, sum(smoothed) / len(terms) + guided, **TOLERANCE)

    def test_accumulation_equals_the_large_batch(self, mix):
        model = self.model(mix, label_smoothing=0.1)
        batch, labels = self.source(self.batch()), self.labels()
        count = (labels != -100).sum()
        large = model(**batch, labels=labels, num_items_in_batch=count)
        twice = model(**{k: torch.cat([v, v]) for k, v in batch.items()}, labels=torch.cat([labels, labels]))
        for mean in (model(**batch, labels=labels), twice):
            torch.testing.assert_close(large.loss, mean.loss, **TOLERANCE)
        large.loss.backward()
        expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        total = 0.0
        for row in range(3):
            part = {key: value[row : row + 1] for key, value in batch.items()}
            loss = model(**part, labels=labels[row : row + 1], num_items_in_batch=count).loss
            loss.backward()
            total += loss.item()
        assert total == pytest.approx(large.loss.item(), abs=2e-5)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(parameter.grad, expected[name], atol=2e-5, rtol=1e-3, msg=name)

    # ---- training
    def test_every_parameter_gets_a_gradient(self, mix):
        model = self.model(mix, tie_word_embeddings=True).train()
        model(**self.source(self.batch()), labels=self.labels()).loss.backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, name
                assert parameter.grad.isfinite().all(), name
                assert parameter.grad.abs().max() > 0, name

    def gradients(self, model, **settings):
        """Return the gradients by name, and how often each layer ran, dropout seeded."""
        counts: Counter[str] = Counter()
        hooks = [
            next(layer.children()).register_forward_hook(lambda *_, name=name: counts.update([plain_name(name)]))
            for name, layer in model.named_modules()
            if isinstance(layer, GradientCheckpointingLayer)
        ]
        model.zero_grad()
        torch.manual_seed(5)
        batch, labels = self.source(self.batch()), self.labels()
        torch.manual_seed(5)
        model(**batch, labels=labels, **settings).loss.backward()
        for hook in hooks:
            hook.remove()
        return {plain_name(name): p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, counts

    @pytest.mark.parametrize(("use_reentrant", "output_routing_weights"), [(True, False), (False, True)])
    def test_activation_checkpointing_has_the_same_gradients(self, mix, use_reentrant, output_routing_weights):
        model = self.model(mix).train()
        expected, once = self.gradients(model, output_routing_weights=output_routing_weights)
        names = (
            "activation_checkpointing_enable",
            "gradient_checkpointing_enable",
        )  # from transformers 5.23 on, before
        next(getattr(model, name) for name in names if hasattr(model, name))({"use_reentrant": use_reentrant})
        grads, twice = self.gradients(model, output_routing_weights=output_routing_weights)
        assert once == dict.fromkeys(once, 1)
        assert twice == dict.fromkeys(once, 2)  # each layer is recomputed, and kept nothing
        assert grads.keys() == expected.keys()
        for name in grads:
            torch.testing.assert_close(grads[name], expected[name], msg=name)

    def test_accelerates_activation_checkpointing_has_the_same_gradients(self, mix):
        """As `fsdp_config` asks for it; without dropout, which accelerate would not repeat."""
        config = self.config(mix)
        without_dropout = {name: 0.0 for name in vars(config) if name.endswith("dropout")}
        model = self.model(mix, **without_dropout).train()
        expected, once = self.gradients(model)
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
        wrapped = fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)
        grads, calls = self.gradients(wrapped)
        wraps_layers = Version(accelerate.__version__) >= Version("1.15")  # 1.10 wraps the parts of a layer
        assert calls == dict.fromkeys(once, 2 if wraps_layers else 1)
        assert grads.keys() == expected.keys()
        for name in grads:
            torch.testing.assert_close(grads[name], expected[name], msg=name)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_and_autocast(self, mix, dtype):
        model = self.model(mix).train()
        with torch.autocast("cpu", dtype=dtype):
            output = model(**self.source(self.batch()), labels=self.labels())
        output.loss.backward()
        assert output.loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        model = model.eval().to(dtype)
        logits = model(**self.batch()).logits
        assert logits.dtype == dtype
        assert logits.isfinite().all()
        model.generate(**self.source(self.batch()), max_new_tokens=4, num_beams=2)

    # ---- accelerators
    def test_an_accelerator_computes_the_same_and_never_waits(self, mix, monkeypatch):
        """Its way through the model, on the CPU; and on the meta device, whose tensors have no values to be read."""
        model, batch = self.model(mix), self.batch()
        labelled = {**self.source(batch), "labels": self.labels()}
        logits, loss = model(**batch).logits, model(**labelled).loss
        monkeypatch.setattr(common, "HOST", "another device")
        torch.testing.assert_close((model(**batch).logits, model(**labelled).loss), (logits, loss), **TOLERANCE)
        model = model.to("meta")
        source, tokens = self.source(batch), batch["decoder_input_ids"].to("meta")
        source = {name: tensor.to("meta") for name, tensor in source.items()}
        model.train()(**source, labels=labelled["labels"].to("meta")).loss.backward()
        encoded, cache = model.eval().get_encoder()(**source), None
        for token in tokens[:, :3].split(1, dim=1):
            cache = model(
                attention_mask=source["attention_mask"],
                encoder_outputs=encoded,
                decoder_input_ids=token,
                cache=cache,
                use_cache=True,
            ).cache
            cache.reorder_cache(torch.zeros(3, dtype=torch.long, device="meta"))

    # ---- checkpoints
    def test_save_and_load(self, mix, tmp_path):
        model, batch = self.model(mix), self.batch()
        expected = model(**batch).logits
        model.save_pretrained(tmp_path / "whole")
        model.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
        assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
        for folder in ("whole", "sharded"):
            loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / folder, output_loading_info=True)
            assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            assert type(loaded) is type(model)
            assert loaded.config == model.config
            frozen, still_frozen = (
                {n for n, p in m.named_parameters() if not p.requires_grad} for m in (model, loaded)
            )
            assert frozen == still_frozen
            torch.testing.assert_close(loaded.eval()(**batch).logits, expected, atol=1e-5, rtol=1e-5)
        assert transformers.GenerationMixin in type(model).__bases__  # which tools look for
        base = AutoModel.from_pretrained(tmp_path / "whole").eval()
        assert type(base) is self.family.model_class
        torch.testing.assert_close(
            base(**batch).last_hidden_state, model.model(**batch).last_hidden_state, atol=1e-5, rtol=1e-5
        )
        assert AutoConfig.from_pretrained(tmp_path / "whole") == model.config

    def test_inputs_without_a_batch(self):
        model, batch = self.model({}), self.batch()
        source, target = self.source(batch), batch["decoder_input_ids"]
        for call in (model, model.generate):
            with pytest.raises(
                ValueError, match=r"`input_ids` of \w+Encoder must be \[batch, tokens\], got \[7\]: .*e, give"
            ):
                call(source["input_ids"][0])
            with pytest.raises(
                ValueError, match=r"`input_ids` of \w+Encoder must be \[batch, tokens\], got \[1, 3, 7\]$"
            ):
                call(source["input_ids"][None])
            with pytest.raises(ValueError, match=r"attention.mask.* must be \[.*\], got \[7\]"):
                call(source["input_ids"][:1], attention_mask=source["attention_mask"][0])
        with pytest.raises(ValueError, match=r"`input_ids` of \w+Decoder must be \[batch, tokens\], got \[6\]"):
            model(**source, decoder_input_ids=target[0])
        embeddings = model.get_input_embeddings()(source["input_ids"])
        for wrong in (embeddings[0], embeddings[..., 1:]):
            with pytest.raises(ValueError, match=r"`inputs_embeds` of \w+Encoder must be \[batch, tokens, \d+\], got"):
                model(inputs_embeds=wrong, decoder_input_ids=target)

    @pytest.mark.parametrize("tied", [True, False])
    def test_embeddings_tied_and_untied_are_saved_and_resized(self, mix, tied, tmp_path):
        model, batch = self.model(mix, tie_word_embeddings=tied), self.batch()
        is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert is_tied == tied
        with torch.no_grad():
            expected = model(**batch).logits
        model.save_pretrained(tmp_path)
        loaded = self.family.generation_class.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(loaded(**batch).logits, expected, atol=1e-5, rtol=1e-5)
        old = self.family.vocab_size
        model.resize_token_embeddings(old + 5)
        assert {side.embed_tokens.num_embeddings for side in (model.get_encoder(), model.get_decoder())} == {old + 5}
        logits = model(**batch).logits
        assert logits.shape[-1] == old + 5
        torch.testing.assert_close(logits[..., :old], expected, **TOLERANCE)
        model(**self.source(batch), labels=self.labels()).loss.backward()
        model.resize_token_embeddings(old)
        torch.testing.assert_close(model(**batch).logits, expected, **TOLERANCE)

    # ---- what models show

    def test_routing_weights_are_probabilities(self, mix):
        model, batch = self.model(mix), self.batch()
        for training in (False, True):
            output = model.train(training)(**batch, output_routing_weights=True)
            assert set(output.routing_weights) == self.expected_routings(mix)
            for routing, iterations in output.routing_weights.items():
                for weights in iterations:
                    total = weights.sum(dim=-1)
                    is_kept = total > 0.5  # 0 where an input is padding
                    torch.testing.assert_close(total[is_kept], torch.ones_like(total[is_kept]), msg=routing)
                    assert (weights >= 0).all()
        silent = model.eval()(**batch)
        assert silent.routing_weights is None
        torch.testing.assert_close(model(**batch, output_routing_weights=True).logits, silent.logits, **TOLERANCE)

    @pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=["greedy", "beam"])
    def test_generate_returns_routing_weights(self, mix, settings):
        model, source = self.model(mix), self.source(self.batch())
        with pytest.raises(ValueError, match="return_dict_in_generate"):
            model.generate(**source, max_new_tokens=2, output_routing_weights=True)
        output = model.generate(
            **source, **settings, max_new_tokens=5, return_dict_in_generate=True, output_routing_weights=True
        )
        assert set(output.routing_weights) == self.expected_routings(mix)
        repeats = settings.get("num_return_sequences", 1)
        repeated = {key: value.repeat_interleave(repeats, dim=0) for key, value in source.items()}
        forced = model(**repeated, decoder_input_ids=output.sequences[:, :-1], output_routing_weights=True)
        for routing, iterations in forced.routing_weights.items():
            for expected, actual in zip(iterations, output.routing_weights[routing], strict=True):
                torch.testing.assert_close(actual, expected, **TOLERANCE)

    def test_generate_returns_the_routing_weights_of_its_decoding(self, mix):
        model, source = self.model(mix), self.source(self.batch())
        settings = {"max_new_tokens": 3, "return_dict_in_generate": True, "output_routing_weights": True}
        prompt = {"decoder_input_ids": torch.tensor([[PAD, 5], [5, 6], [6, 7]])}
        prompt["decoder_attention_mask"] = prompt["decoder_input_ids"].ne(PAD).long()
        encoded = {
            "encoder_outputs": model.get_encoder()(**source, output_routing_weights=True),
            "attention_mask": source["attention_mask"],
        }
        for inputs in ({"input_ids": source["input_ids"]}, source | prompt, encoded):
            output = model.generate(**inputs, **settings, num_beams=3, num_return_sequences=2)
            target = output.sequences[:, :-1]
            source_inputs = (
                source if inputs is encoded else {key: inputs[key] for key in source.keys() & inputs.keys()}
            )
            forced = {key: value.repeat_interleave(2, dim=0) for key, value in source_inputs.items()}
            if "decoder_attention_mask" in inputs:
                forced["decoder_attention_mask"] = torch.ones_like(target)
                forced["decoder_attention_mask"][:2, 1] = 0
            expected = model(**forced, decoder_input_ids=target, output_routing_weights=True).routing_weights
            assert set(output.routing_weights) == set(expected)
            for routing, iterations in expected.items():
                for actual, weights in zip(output.routing_weights[routing], iterations, strict=True):
                    torch.testing.assert_close(actual, weights, **TOLERANCE)

    def test_a_size_without_the_special_tokens_is_refused(self, mix):
        model = self.model(mix)
        with pytest.raises(
            ValueError, match=r"to 3 tokens would exclude `decoder_start_token_id` \(3\): keep at least 4"
        ):
            model.resize_token_embeddings(3)
        assert model.config.vocab_size == model.get_encoder().num_tokens == self.family.vocab_size

    def expected_routings(self, mix: dict[str, Any]) -> set[str]:
        """The names of the routings that a model with these settings has."""
        raise NotImplementedError

    # ---- compilation
    def test_compiles_without_a_graph_break(self, mix):
        # short, because loops are unrolled: the second pass through each shows what a further one would
        names = [name for name in vars(self.config(mix)) if name.endswith("num_iterations")]
        model, batch = self.model(mix, **dict.fromkeys(names, 2)), self.batch((3, 2), target_length=2)
        torch._dynamo.reset()  # so many mixes of one class would reach the limit of recompilations
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        batch["labels"] = self.labels((2, 1))
        expected, actual = model(**batch), compiled(**batch, use_cache=False)
        for name in ("logits", "loss", "nll_loss", "bow_loss", "bca_loss"):
            if expected.get(name) is not None:
                torch.testing.assert_close(actual[name], expected[name], **TOLERANCE)

    @pytest.mark.slow
    def test_exports_with_any_batch_and_any_lengths(self, mix):
        model, batch = self.model(mix).eval(), self.batch()
        rows, source, target = (torch.export.Dim(name, max=40) for name in ("rows", "source", "target"))
        shapes = {
            "input_ids": {0: rows, 1: source},
            "attention_mask": {0: rows, 1: source},
            "decoder_input_ids": {0: rows, 1: target},
        }
        with torch.no_grad():
            program = torch.export.export(LogitsOf(model), (), batch, dynamic_shapes=shapes).module()
            for lengths, target_length in (((7, 4, 5), 6), ((3, 9), 4)):
                batch = self.batch(lengths, target_length)
                torch.testing.assert_close(program(**batch), model(**batch).logits, **TOLERANCE)


class RecurrentChecks(ModelChecks):
    """For families whose decoder is recurrent: padding among the words of a target leaves its state alone."""

    def test_hidden_states_and_attentions(self, mix):
        model, batch = self.model(mix), self.batch()
        output = model(**batch, output_hidden_states=True, output_attentions=True)
        torch.testing.assert_close(output.logits, model(**batch).logits, **TOLERANCE)
        assert len(output.encoder_hidden_states) == model.config.encoder_layers + 1
        assert len(output.decoder_hidden_states) == model.config.decoder_layers + 1
        assert torch.equal(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)
        if getattr(model.config, "source_attention", True):
            (attentions,) = output.cross_attentions
            assert attentions.shape == (3, 1, 6, 7)
            assert (attentions[1, :, :, 4:] == 0).all()
            torch.testing.assert_close(attentions.sum(dim=-1), torch.ones(3, 1, 6))
        else:
            assert output.cross_attentions is None

    def test_inputs_that_do_not_fit(self):
        model, batch = self.model({}), self.batch()
        with pytest.raises(ValueError, match=r"the source is empty: it has the shape \[3, 0\]"):
            model(**{**batch, "input_ids": torch.zeros(3, 0, dtype=torch.long), "attention_mask": None})
        with pytest.raises(ValueError, match=r"Caps\w+Decoder got sequences of no tokens, shape \[3, 0, \d+\]"):
            model(**{**batch, "decoder_input_ids": torch.zeros(3, 0, dtype=torch.long)})
        mask = batch["attention_mask"].clone()
        mask[1] = 0
        for call in (model, model.generate):
            with pytest.raises(ValueError, match=r"all padding in row\(s\) \[1\]"):
                call(input_ids=batch["input_ids"], attention_mask=mask)
        with pytest.raises(ValueError, match=r"`attention_mask` of Caps\w+Encoder must be \[3, 7\], got \[3, 6\]"):
            model(**{**batch, "attention_mask": batch["attention_mask"][:, :6]})
        with pytest.raises(ValueError, match="exactly one of `input_ids` and `inputs_embeds`"):
            model(**self.source(batch))
        with pytest.raises(ValueError, match="`cache` has 7 layers, but `decoder_layers` is 2"):
            model(**batch, cache=RecurrentCache(7))

    @pytest.mark.skipif(
        Version(accelerate.__version__) < Version("1.15"),
        reason="accelerate 1.10 refuses to put a whole model on the disk",
    )
    def test_weights_may_stay_on_the_disk(self, mix, tmp_path):
        """accelerate loads the weights of a layer while it is called, so no weight may be read from outside."""
        model, batch = self.model(mix), self.batch()
        model.save_pretrained(tmp_path / "model")
        on_disk = self.family.generation_class.from_pretrained(
            tmp_path / "model", device_map={"": "disk"}, offload_folder=tmp_path / "offloaded"
        )
        torch.testing.assert_close(on_disk.eval()(**batch).logits, model(**batch).logits)

    def test_positions_cannot_be_resized(self):
        for module in (model := self.model({}), model.model, model.get_encoder(), model.get_decoder()):
            with pytest.raises(NotImplementedError, match=rf"{type(module).__name__} does not have position emb"):
                module.get_position_embeddings()
            with pytest.raises(NotImplementedError, match=rf"{type(module).__name__} does not have position emb"):
                module.resize_position_embeddings(64)

    def test_padding_among_the_words_of_the_target(self, mix):
        model, batch = self.model(mix), self.batch()
        expected = model(**batch).logits.flatten(0, 1)
        keep = torch.tensor([[0, 1, 1, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1]])
        padded = torch.randint(START + 1, self.family.vocab_size, (3, 9))
        padded[keep.bool()] = batch["decoder_input_ids"].flatten()
        source = {
            "encoder_outputs": model.get_encoder()(**self.source(batch)),
            "attention_mask": batch["attention_mask"],
        }
        cache, parts = None, []
        for start, end in ((0, 2), (2, 6), (6, 7), (7, 9)):
            target = {"decoder_input_ids": padded[:, start:end], "decoder_attention_mask": keep[:, :end]}
            output = model(**source, **target, cache=cache, use_cache=True)
            cache = output.cache
            parts.append(output.logits)
        with_padding = model(**source, decoder_input_ids=padded, decoder_attention_mask=keep).logits
        for logits in (with_padding, torch.cat(parts, dim=1)):
            torch.testing.assert_close(logits[keep.bool()], expected, **TOLERANCE)

    @pytest.mark.parametrize("use_cache", [True, False])
    def test_continues_prefixes_padded_left(self, mix, use_cache):
        model, source, lengths = self.model(mix), self.source(self.batch()), (5, 2, 3)
        complete = model.generate(**source, max_new_tokens=8, min_new_tokens=8)
        prefixes, mask = torch.full((3, 5), PAD), torch.zeros(3, 5, dtype=torch.long)
        for row, length in enumerate(lengths):
            prefixes[row, 5 - length :] = complete[row, :length]
            mask[row, 5 - length :] = 1
        settings = {"max_new_tokens": 3, "min_new_tokens": 3, "use_cache": use_cache}
        continued = model.generate(**source, decoder_input_ids=prefixes, decoder_attention_mask=mask, **settings)
        for row, length in enumerate(lengths):
            assert torch.equal(continued[row, 5:], complete[row, length : length + 3])


class TwoVocabulariesChecks(ModelChecks):
    """For families that may have a vocabulary for each side."""

    def test_separate_vocabularies(self, mix, tmp_path):
        model = self.model(mix, share_encoder_decoder_embeddings=False, decoder_vocab_size=23)
        batch = self.batch()
        batch["decoder_input_ids"] = batch["decoder_input_ids"] % 23
        logits = model(**batch).logits
        assert logits.shape[-1] == 23
        assert model.model.encoder.embed_tokens.weight.shape[0] == 31
        model.save_pretrained(tmp_path)
        loaded = self.family.generation_class.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(loaded(**batch).logits, logits, atol=1e-5, rtol=1e-5)
        model.resize_decoder_token_embeddings(29)
        resized = model(**batch).logits
        torch.testing.assert_close(resized[..., :23], logits, **TOLERANCE)
        assert resized.shape[-1] == model.config.decoder_vocab_size == 29
