"""Layer aggregation beside the layers of stock models, as a PEFT method."""

import copy
import importlib
import json
import sys

import pytest
import torch
from torch.distributed.fsdp import fully_shard
from transformers import (
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    LlamaModel,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hf_capsule_mt import CapsuleMarianMTModel, to_fast
from tests.adapters.families import CONFIGS, OTHER_NORMS, WIDTH, batch, build
from tests.fixtures.tiny import tiny_model, tiny_tokenizer
from tests.training.small import in_processes

peft = pytest.importorskip("peft", reason="peft is not installed")

from hf_capsule_mt.adapters import CapsuleConfig, aggregate, routing_weights  # noqa: E402 - needs peft

# peft calls it by its old name
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")

METHODS = [
    *("linear", "dynamic_combination", "dynamic_routing", "em", "dense", "depth_attention", "mudd", "grn"),
]
FORMS = [(method, "top") for method in METHODS] + [("dense", "every"), ("depth_attention", "every")]
QUICK = {("marian", "em", "top"), ("t5", "dense", "every"), ("m2m_100", "mudd", "top"), ("llama", "grn", "top")}
CASES = [
    pytest.param(
        *(family, method, where),
        id=f"{family}-{method}-{where}",
        marks=[] if (family, method, where) in QUICK else pytest.mark.slow,
    )
    for family in CONFIGS
    for method, where in FORMS
]


def adapted(family, method, where="top", **settings):
    model = aggregate(build(family), method=method, where=where, dropout=0.0, **settings)
    return model.eval()


def moved(model, size=0.2):
    """The model with other adapter weights, so that all of them matter."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * size)
    return model


@torch.no_grad()
def logits(model, inputs):
    return model(**inputs).logits


def words(model, inputs, **settings):
    source = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    return model.generate(**source, max_new_tokens=8, do_sample=False, **settings)


@pytest.mark.parametrize(("family", "method", "where"), CASES)
def test_any_family_with_any_method(family, method, where, tmp_path):
    base, inputs = build(family), batch(family)
    expected = logits(base, inputs)
    state = {name: value.clone() for name, value in base.state_dict().items()}
    side = "both" if base.config.is_encoder_decoder else "decoder"
    model = aggregate(base, method=method, where=where, side=side, dropout=0.0).eval()
    # it starts at the old function; attention over depth starts at the mean where it makes the inputs, too
    if (method, where) != ("depth_attention", "every"):
        torch.testing.assert_close(logits(model, inputs), expected, rtol=0, atol=0)

    moved(model)
    model(**inputs).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert ".depth_adapter." in name
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name
    changed = logits(model, inputs)
    assert (changed - expected).abs().max() > 1e-3
    cached, uncached = (words(model, inputs, num_beams=3, use_cache=use_cache) for use_cache in (True, False))
    assert torch.equal(cached, uncached)

    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(build(family), tmp_path).eval()
    assert torch.equal(logits(loaded, inputs), changed)
    with model.disable_adapter():
        assert torch.equal(logits(model, inputs), expected)
    plain = model.unload()
    assert plain.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in plain.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in plain.modules())


@pytest.mark.parametrize("family", OTHER_NORMS)
def test_the_last_norm_may_have_any_name(family):
    # frozen, as `aggregate` leaves it: on some processors torch rounds differently where weights need gradients
    base, inputs = build(family).requires_grad_(False), batch(family)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    expected = logits(base, inputs)
    model = aggregate(base, method="em", side="both" if base.config.is_encoder_decoder else None, dropout=0.0).eval()
    assert torch.equal(logits(model, inputs), expected)
    assert (logits(moved(model), inputs) - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("family", "side", "message"),
    [
        ("led", "encoder", r"LEDEncoder must end with its last layer's output \[3, 12, 32\], .* else, \[3, 9, 32\]"),
        ("opt", None, r"OPTDecoder must end with its last layer's output \[3, 9, 32\], .* else, \[3, 9, 16\]"),
        ("prophetnet", "decoder", r"ProphetNetDecoder must end with its last layer's output \[3, 21, 32\]"),
        ("fsmt", "encoder", "FSMTEncoder must have a `config` with `hidden_size`"),
    ],
)
def test_a_stack_with_another_end_is_refused(family, side, message):
    with pytest.raises(ValueError, match=message):
        aggregate(build(family), side=side).eval()(**batch(family))


def test_an_aggregation_of_the_base_is_not_replaced():
    model = aggregate(tiny_model(tiny_tokenizer(), layer_aggregation="linear"), side="encoder").eval()
    with pytest.raises(ValueError, match="CapsuleMarianEncoder must end with its last layer's output"):
        model(input_ids=torch.tensor([[5, 6, 7]]), decoder_input_ids=torch.tensor([[5]]))


@pytest.mark.parametrize("family", ["marian", "llama"])
def test_a_wrapper_of_a_layer_may_copy_or_cast_its_output(family):
    """As DeepSpeed and FSDP do by hooks of theirs, which run after ours."""
    model, inputs = moved(adapted(family, "em")), batch(family)
    expected = logits(model, inputs)
    base = model.get_base_model()
    stack = base.get_encoder() if family == "marian" else base.get_decoder()
    stack.layers[-1].register_forward_hook(lambda layer, args, output: output.double().float())
    stack.layers[-1].register_forward_hook(lambda layer, args, output: output.clone())
    assert torch.equal(logits(model, inputs), expected)


def test_a_layer_that_does_not_run_is_named():
    model = adapted("marian", "em")
    encoder = model.get_base_model().get_encoder()
    encoder.layers = encoder.layers[:-1]
    with pytest.raises(
        ValueError, match="outputs of layers 1 to 3, but has none of 3: either the stack skipped these"
    ):
        model(**batch("marian"))


@pytest.mark.parametrize("family", ["marian", pytest.param("t5", marks=pytest.mark.slow)])
def test_a_stock_trainer_saves_and_resumes_the_adapter_alone(family, tmp_path):
    build(family).save_pretrained(tmp_path / "base")
    inputs = batch(family)
    data = [{key: value[row] for key, value in inputs.items()} for row in (0, 1, 2)] * 4

    def train(steps, resume=None):
        base = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
        arguments = Seq2SeqTrainingArguments(
            tmp_path / "run",
            per_device_train_batch_size=6,
            max_steps=steps,
            learning_rate=2e-2,
            lr_scheduler_type="constant",
            logging_steps=1,
            save_steps=10,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Seq2SeqTrainer(aggregate(base, method="em"), arguments, train_dataset=data)
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    trainer = train(20)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-4:]) < sum(losses[:4])
    checkpoint = tmp_path / "run" / "checkpoint-10"
    assert (checkpoint / "adapter_model.safetensors").exists()
    assert not (checkpoint / "model.safetensors").exists()
    resumed = train(20, str(checkpoint))
    for (name, weight), (_, other) in zip(
        trainer.model.named_parameters(), resumed.model.named_parameters(), strict=True
    ):
        assert torch.equal(weight, other), name


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_is_loaded_by_name(family, tmp_path):
    build(family).save_pretrained(tmp_path / "base")
    base = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base")
    model, inputs = moved(aggregate(base, method="em", num_capsules=4)).eval(), batch(family)
    model.save_pretrained(tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["peft_type"] == "CAPSULE"
    loaded = peft.AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path / "adapter").eval()
    assert torch.equal(logits(loaded, inputs), logits(model, inputs))


@pytest.mark.parametrize("capsules_first", [False, True])
def test_lora_beside_it(capsules_first):
    lora = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"], r=2, init_lora_weights=False)
    capsules = CapsuleConfig(task_type="SEQ_2_SEQ_LM", side="both")
    inputs = batch("marian")
    settings = {"capsules": capsules, "lora": lora} if capsules_first else {"lora": lora, "capsules": capsules}
    model = build("marian")
    for name, config in settings.items():
        model = peft.get_peft_model(model, config, adapter_name=name)
    model = moved(model).eval()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    last = list(settings)[-1]
    assert any(f".{last}." in name for name in trained)
    assert sum(name.endswith("lora_A.lora.weight") for name, _ in model.named_parameters()) == 9
    before = logits(model, inputs)
    if not capsules_first:
        model.base_model.model.merge_adapter()
        torch.testing.assert_close(logits(model, inputs), before, rtol=1e-4, atol=1e-4)


def test_two_adapters_take_turns():
    model, inputs = moved(adapted("marian", "em")), batch("marian")
    first = logits(model, inputs)
    model.add_adapter("second", CapsuleConfig(task_type="SEQ_2_SEQ_LM", method="grn", dropout=0.0))
    assert torch.equal(logits(model, inputs), first)
    model.set_adapter("second")
    moved(model).eval()
    assert not torch.allclose(logits(model, inputs), first)
    model.set_adapter("default")
    assert torch.equal(logits(model, inputs), first)
    model.delete_adapter("second")
    assert list(model.peft_config) == ["default"]


@pytest.mark.parametrize(
    ("method", "side", "where"),
    [("em", "both", "top"), ("grn", "decoder", "top"), ("dense", "both", "every"), ("em", None, "top")],
)
def test_marian_is_merged_into_capsule_marian(method, side, where):
    model, inputs = moved(adapted("marian", method, where, side=side)), batch("marian")
    expected, translated = logits(model, inputs), words(model, inputs, num_beams=3)
    merged = model.merge_and_unload()
    assert type(merged) is CapsuleMarianMTModel
    torch.testing.assert_close(logits(merged, inputs), expected)
    assert torch.equal(words(merged, inputs, num_beams=3), translated)


@pytest.mark.parametrize("update_scale", [1.0, 0.1])
@pytest.mark.parametrize("method", ["linear", "em"])
def test_one_that_replaces_may_start_at_the_top_layer(method, update_scale):
    expected, inputs = logits(build("marian"), batch("marian")), batch("marian")
    settings = {"placement": "replaces", "start": "top", "capsule_input": "all", "init_std": 0.0}
    model = adapted("marian", method, update_scale=update_scale, **settings)
    torch.testing.assert_close(logits(model, inputs), expected, rtol=1e-3, atol=1e-3)
    expected = logits(moved(model), inputs)
    merged = model.merge_and_unload()
    assert merged.config.layer_aggregation_update_scale == update_scale
    torch.testing.assert_close(logits(merged, inputs), expected)


def test_a_student_is_merged_into_one_with_a_layer_aggregation():
    """Its SSRU and positions stay Marian's, and the engine's float32 has the same tokens."""
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    student = tiny_model(tokenizer, decoder_self="ssru", marian_positions=True, dropout=0.0).eval()
    inputs = dict(tokenizer(["The old man buys a red hat.", "No."], padding=True, return_tensors="pt"))
    inputs["labels"] = inputs["input_ids"]
    model = moved(aggregate(student, method="em", side="encoder", dropout=0.0).eval())
    expected, translated = logits(model, inputs), words(model, inputs, num_beams=3)
    merged = model.merge_and_unload()
    assert merged.config.decoder_self == "ssru"
    assert merged.config.layer_aggregation == "em_routing"
    torch.testing.assert_close(logits(merged, inputs), expected)
    assert torch.equal(words(merged, inputs, num_beams=3), translated)
    fast = to_fast(merged).generate(**{key: inputs[key] for key in ("input_ids", "attention_mask")}, max_new_tokens=8)
    assert torch.equal(fast, words(merged, inputs, num_beams=1))


def test_a_second_layer_aggregation_is_not_merged():
    model = aggregate(tiny_model(tiny_tokenizer(), layer_aggregation="linear"), method="em", side="encoder")
    with pytest.raises(ValueError, match=r"got default on a CapsuleMarianMTModel with `layer_aggregation` 'linear'"):
        model.merge_and_unload()


def test_another_family_is_not_merged():
    with pytest.raises(ValueError, match=r"only one adapter on a MarianMTModel can be merged .*got default on a T5"):
        adapted("t5", "dense").merge_and_unload()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize(("method", "where"), [("em", "top"), ("dense", "every")])
def test_gradient_checkpointing_has_the_same_gradients(method, where, use_reentrant):
    gradients = []
    for checkpoints in (False, True):
        model = moved(adapted("marian", method, where))
        if checkpoints:
            model.enable_input_require_grads()
            model.base_model.model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        model.train()
        for module in model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0
        model(**batch("marian")).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.requires_grad])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


def test_half_precision_keeps_the_adapter_in_single():
    base, inputs = build("marian").to(torch.bfloat16), batch("marian")
    expected = logits(base, inputs)
    model = aggregate(base, method="em").eval()
    assert torch.equal(logits(model, inputs), expected)
    assert {parameter.dtype for parameter in model.parameters() if parameter.requires_grad} == {torch.float32}
    assert logits(moved(model), inputs).dtype == torch.bfloat16


@pytest.mark.parametrize("flag", ["output_routing_weights", "output_routing_wieghts"])
def test_a_flag_that_the_base_would_ignore_is_refused(flag):
    message = rf"M2M100ForConditionalGeneration has no argument `{flag}`: .*routing_weights\(model\) as stacks"
    with pytest.raises(TypeError, match=message):
        adapted("m2m_100", "em")(**batch("m2m_100"), **{flag: True})
    assert adapted("m2m_100", "em")(**batch("m2m_100"), output_attentions=True).loss > 0


def test_routing_weights_are_kept_while_asked_for():
    model, inputs = moved(adapted("t5", "em", side="both", num_capsules=4)), batch("t5")
    with routing_weights(model) as stacks:
        logits(model, inputs)
        shapes = {name.split(".")[-2]: stack.routing_weights[-1].shape for name, stack in stacks.items()}
        assert shapes == {"encoder": (3, 9, 3, 4), "decoder": (3, 7, 3, 4)}
        weights = next(iter(stacks.values())).routing_weights[-1]
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 9, 3))
    assert all(stack.routing_weights is None for stack in stacks.values())


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_hidden_states_end_with_the_aggregation(family):
    output = moved(adapted(family, "em"))(**batch(family), output_hidden_states=True)
    assert torch.equal(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)


@pytest.mark.parametrize("family", ["marian", "llama"])
def test_compiles_to_one_graph(family):
    model, inputs = moved(adapted(family, "em")), batch(family)
    compiled = torch.compile(model.base_model.model, backend="eager", fullgraph=True)
    torch.testing.assert_close(logits(compiled, inputs), logits(model, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["m2m_100", "llama"])
def test_a_compiled_step_with_a_static_cache(family):
    side = "decoder" if family == "llama" else "both"
    model, inputs = moved(adapted(family, "em", side=side)), batch(family)
    expected = words(model, inputs)
    base = model.base_model.model
    base.forward = torch.compile(base.forward, backend="eager", fullgraph=True)
    assert torch.equal(words(model, inputs, cache_implementation="static"), expected)


class Int8Linear(torch.nn.Module):
    """A layer whose weights are integers, as those of bitsandbytes."""

    def __init__(self, linear):
        super().__init__()
        self.step = linear.weight.detach().abs().amax() / 127
        codes = (linear.weight.detach() / self.step).round().to(torch.int8)
        self.weight = torch.nn.Parameter(codes, requires_grad=False)
        self.bias = linear.bias

    def forward(self, states):
        return torch.nn.functional.linear(states, self.weight * self.step, self.bias)


def quantised(family):
    model = build(family)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and ".layers." in name:
            model.set_submodule(name, Int8Linear(module))
    return model


@pytest.mark.parametrize("family", ["marian", "m2m_100"])
def test_a_quantised_base(family):
    base, inputs = quantised(family), batch(family)
    expected = logits(base, inputs)
    model = aggregate(base, method="em", side="both", dropout=0.0).eval()
    assert torch.equal(logits(model, inputs), expected)
    model(**inputs).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    moved(model)
    assert torch.equal(words(model, inputs), words(model, inputs, use_cache=False))
    with pytest.raises(ValueError, match=r"got default on a \w+ with quantised weights: a sum"):
        model.merge_and_unload()


def test_data_parallel_is_refused():
    encoder = aggregate(build("marian"), method="em").get_base_model().get_encoder()
    replica = encoder._replicate_for_data_parallel()  # what nn.DataParallel runs in each thread
    with pytest.raises(ValueError, match=r"cannot run under nn\.DataParallel, .*: start a process for each device"):
        replica(input_ids=batch("marian")["input_ids"])


def _sharded_gradients(file):
    """Compare the gradients of two processes with FSDP to those of one without."""
    torch.distributed.init_process_group("gloo")
    inputs = batch("m2m_100")
    plain, sharded = (moved(adapted("m2m_100", "em", side="both")) for _ in range(2))
    plain(**inputs).loss.backward()
    for module in list(sharded.modules()):
        if type(module).__name__ in ("M2M100EncoderLayer", "M2M100DecoderLayer"):
            fully_shard(module)
    fully_shard(sharded)
    sharded(**inputs).loss.backward()
    expected = dict(plain.named_parameters())
    gradients = {name: weight.grad for name, weight in sharded.named_parameters() if weight.requires_grad}
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient.full_tensor(), expected[name].grad)
    file.with_suffix(f".{torch.distributed.get_rank()}").write_text(str(len(gradients)))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_fsdp_has_the_same_gradients(tmp_path):
    assert in_processes(2, _sharded_gradients, tmp_path / "compared") == [0, 0]
    assert [int((tmp_path / f"compared.{rank}").read_text()) > 4 for rank in range(2)] == [True, True]


def test_a_copy_is_independent():
    model, inputs = moved(adapted("marian", "em")), batch("marian")
    expected = logits(model, inputs)
    duplicate = copy.deepcopy(model)
    moved(model)
    assert torch.equal(logits(duplicate, inputs), expected)


def test_layer_drop_is_off(caplog):
    model = aggregate(build("m2m_100"), method="em", side="both").train()
    model(**batch("m2m_100"))
    assert model.get_base_model().model.encoder.layerdrop == 0.0
    assert model.unload().model.encoder.layerdrop == 0.05


def test_layer_drop_of_capsule_marian_is_off_where_an_adapter_stands():
    base = tiny_model(tiny_tokenizer(), encoder_layerdrop=0.99, decoder_layerdrop=0.99)
    model = aggregate(base, method="em", side="encoder").train()
    tokens = torch.tensor([[5, 6, 7]])
    for output_attentions in (False, True):
        output = model(input_ids=tokens, decoder_input_ids=tokens, output_attentions=output_attentions)
    assert len(output.encoder_attentions) == base.config.encoder_layers
    assert base.config.encoder_layerdrop == 0.99
    assert any(base.get_decoder().drops_layer(0.99) for _ in range(10))
    assert any(model.unload().get_encoder().drops_layer(0.99) for _ in range(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "nope"}, "nope"),
        ({"method": "none"}, "`method` of CapsuleConfig must be one of .*'em', .*'grn'"),
        ({"side": "top"}, r"`side` of CapsuleConfig must be one of .* got 'top'"),
        ({"placement": "residual"}, r"`placement` of CapsuleConfig must be one of .* got 'residual'"),
        ({"method": "dense", "where": "every", "placement": "adds"}, 'must be "replaces", got "adds"'),
        ({"where": "every"}, '`where` "every" needs `method` "dense" or "depth_attention", got "em_routing"'),
        ({"method": "em", "where": "every"}, '`where` "every" needs `method` "dense" or "depth_attention", got "em"'),
        ({"num_iterations": 0}, "^`num_iterations` must be at least 1, got 0"),
        ({"num_capsules": 0}, "`num_capsules` of CapsuleConfig must be a positive divisor .* got 0"),
        ({"num_capsules": "2"}, "`num_capsules` of CapsuleConfig must be a positive divisor .* got '2'"),
        ({"start": "top"}, '^`start` "top" needs `capsule_input` "all": with "own"'),
        ({"method": "grn", "update_scale": 0.1}, "^`update_scale` 0.1 needs `method` linear or .* got 'grn'"),
        ({"input_activation": "x"}, "^Field 'input_activation' expected one of .* got x"),
    ],
)
def test_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        CapsuleConfig(**settings)


def test_refuses_models_that_do_not_fit():
    with pytest.raises(ValueError, match=rf"^`num_capsules` \(7\) must divide the stack's width \({WIDTH}\)"):
        aggregate(build("t5"), num_capsules=7)
    with pytest.raises(ValueError, match='`side` "encoder" needs an encoder-decoder, got LlamaForCausalLM: leave'):
        aggregate(build("llama"), side="encoder")
    bert = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    for stack in (bert, LlamaModel(CONFIGS["llama"]())):
        with pytest.raises(ValueError, match=rf"{type(stack).__name__} must have an encoder or a decoder that is one"):
            aggregate(stack, side="encoder")
    with pytest.raises(TypeError, match=r"`model` must be a model of transformers, got 't5-small' \(str\): load it"):
        aggregate("t5-small")
    with pytest.raises(TypeError, match=r"CapsuleConfig has no field `sied`; did you mean `side`\?"):
        aggregate(build("t5"), sied="encoder")
    with pytest.raises(TypeError, match=r"CapsuleConfig has no field `zzz`; there are .*method, side"):
        aggregate(build("t5"), zzz=1)
    for target_modules in (["q_proj"], "all-linear"):
        with pytest.raises(ValueError, match=r"`target_modules` of CapsuleConfig must be left out, .*\.encoder"):
            aggregate(build("marian"), target_modules=target_modules)
    model = MarianMTModel(CONFIGS["marian"]())
    model.model.encoder.layers = torch.nn.ModuleList()
    with pytest.raises(ValueError, match="must have one list of layers named"):
        aggregate(model)


def test_does_not_claim_to_be_mixed():
    """`PeftMixedModel` has a closed list of methods."""
    assert "CAPSULE" not in peft.mapping.PEFT_TYPE_TO_MIXED_MODEL_MAPPING


def test_without_peft_the_error_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("hf_capsule_mt.adapters")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "peft.mapping", None)
    with pytest.raises(ImportError, match=r'comes with the extra `peft`: pip install .* "\.\[peft\]"'):
        importlib.import_module("hf_capsule_mt.adapters")
