"""PEFT's tuner of the method "CAPSULE", and `aggregate`, which is `get_peft_model` with it."""

import dataclasses
import difflib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peft import PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTuner
from torch import nn
from transformers import PreTrainedModel

from hf_capsule_mt.adapters.beside_stack import BesideStack
from hf_capsule_mt.adapters.config import CapsuleConfig
from hf_capsule_mt.adapters.merging import merged_model
from hf_capsule_mt.adapters.registration import PREFIX
from hf_capsule_mt.adapters.stacks import stacks_of
from hf_capsule_mt.modeling.keywords import ALIKE

# where a stack has its adapters
ATTRIBUTE = "depth_adapter"
# how the models of this package are asked for routing weights
FLAG = "output_routing_weights"


class CapsuleModel(BaseTuner):
    """Puts a `BesideStack` on each stack that an adapter's configuration names.

    Its private methods are those that PEFT asks of a tuner.
    """

    prefix = PREFIX
    tuner_layer_cls = BesideStack
    target_module_mapping: dict[str, list[str]] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model; refuse what asks for routing weights where the model would ignore it."""
        asked = difflib.get_close_matches(FLAG, kwargs, n=1, cutoff=ALIKE)
        if asked and FLAG not in inspect.signature(self.model.forward).parameters:
            raise TypeError(
                f"{type(self.model).__name__} has no argument `{asked[0]}`: an adapter keeps its routing weights "
                "inside `with hf_capsule_mt.adapters.routing_weights(model) as stacks:`"
            )
        return super().forward(*args, **kwargs)

    def _prepare_adapter_config(self, peft_config: Any, model_config: dict[str, Any]) -> Any:
        return peft_config

    @staticmethod
    def _check_target_module_exists(peft_config: Any, key: str) -> bool:
        return key in peft_config.target_modules

    def inject_adapter(self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any) -> None:
        config: Any = self.peft_config[adapter_name]
        is_encoder_decoder = model.config.is_encoder_decoder  # type: ignore[union-attr]
        names = stacks_of(model, config.side_of(is_encoder_decoder))
        check_target_modules(config.target_modules, names)
        config.target_modules = names
        super().inject_adapter(model, adapter_name, *args, **kwargs)

    def _create_and_replace(  # type: ignore[override] # of the rest, nothing is used
        self, peft_config: CapsuleConfig, adapter_name: str, target: nn.Module, *args: Any, **kwargs: Any
    ) -> None:
        """Replace nothing: the adapter hangs on the stack."""
        if not hasattr(target, ATTRIBUTE):
            setattr(target, ATTRIBUTE, BesideStack(target))
        beside: Any = getattr(target, ATTRIBUTE)
        beside.update_layer(adapter_name, peft_config)
        device = next(target.parameters()).device
        if "meta" not in (device.type, next(beside.parameters()).device.type):
            beside.to(device)
        if adapter_name not in self.active_adapters:
            beside.set_requires_grad(adapter_name, False)

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f".capsule_layers.{adapter_name}.", ".capsule_layers.")

    def _unload_and_optionally_merge(  # type: ignore[override] # annotated as None there, but it returns the model
        self,
        merge: bool = True,
        progressbar: bool = True,
        safe_merge: bool = False,
        adapter_names: list[str] | None = None,
    ) -> nn.Module:
        names = adapter_names or self.active_adapters
        result = merged_model(self.model, self.peft_config, names, ATTRIBUTE) if merge else None
        for module in list(self.model.modules()):
            if isinstance(getattr(module, ATTRIBUTE, None), BesideStack):
                getattr(module, ATTRIBUTE).detach(module)
                delattr(module, ATTRIBUTE)
        if hasattr(self.model, "peft_config"):
            del self.model.peft_config
        return self.model if result is None else result


def check_target_modules(target_modules: Any, names: list[str]) -> None:
    """Refuse `target_modules` of the caller; those of a saved adapter are the same stacks, perhaps in a wrapper."""
    given = [target_modules] if isinstance(target_modules, str) else target_modules or []
    if given and {name.split(".")[-1] for name in given} != {name.split(".")[-1] for name in names}:
        raise ValueError(
            f"`target_modules` of CapsuleConfig must be left out, got {target_modules!r}: an adapter hangs on whole "
            f"stacks, here on {' and '.join(names)}, and `side` chooses them"
        )


def aggregate(model: Any, method: str = "em", **settings: Any) -> PeftModel:
    """Let a stack of a transformers model combine the outputs of all its layers; all else is frozen.

    The same as `get_peft_model(model, CapsuleConfig(method=method, ...))` with the model's `task_type`: save, load,
    push and train it as any adapter of PEFT.

    Args:
        model: an encoder-decoder or a decoder-only model of transformers.
        method: how; "em" is EM routing between layers.
        **settings: the other fields of `CapsuleConfig`.
    """
    if not isinstance(model, (PreTrainedModel, PeftModel)):
        raise TypeError(
            f"`model` must be a model of transformers, got {model!r:.80} ({type(model).__name__}): load it first, "
            "for example by `AutoModelForSeq2SeqLM.from_pretrained(name)`"
        )
    names = [field.name for field in dataclasses.fields(CapsuleConfig)]
    for name in settings.keys() - names:
        matches = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean `{matches[0]}`?" if matches else f"there are {', '.join(names)}"
        raise TypeError(f"CapsuleConfig has no field `{name}`; {hint}")
    task = "SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM"
    return get_peft_model(model, CapsuleConfig(**{"task_type": task, **settings, "method": method}))


@contextmanager
def routing_weights(model: nn.Module) -> Iterator[dict[str, BesideStack]]:
    """Keep routing weights while the context lasts: `stacks[name].routing_weights`, one tensor for each iteration."""
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, BesideStack)}
    try:
        for beside in stacks.values():
            beside.keeps_weights = True
        yield stacks
    finally:
        for beside in stacks.values():
            beside.keeps_weights, beside.routing_weights = False, None
