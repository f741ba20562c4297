"""The program of RNMT: GRUs, a conditional GRU with attention to the source, and optionally PAST and FUTURE."""

from capsule_mt.engine.program import Program
from capsule_mt.models.guidance import guide
from capsule_mt.models.parts import TIED, ModuleWriter, Parts, Writers
from capsule_mt.models.recurrent import attend, bidirectional_layer, gru_step, hidden_width, logits, lookup
from capsule_mt.models.settings import ModelSettings
from capsule_mt.models.weights import Weights


def rnmt_program(settings: ModelSettings, weights: Weights) -> tuple[Program, Parts]:
    """Return the program of an RNMT, and the weights that it uses."""
    parts = Parts(weights)
    width, vocabulary = hidden_width(settings), settings.number("vocab_size", 32000)
    narrow = settings.number("embedding_size", width)
    is_shared = settings.flag("share_encoder_decoder_embeddings", True)
    targets = vocabulary if is_shared else settings.number("decoder_vocab_size", vocabulary)
    program = Program(vocabulary=targets, embeddings=vocabulary)
    words, sources, step, states = writers = Writers.for_program(parts, program)
    encoder, decoder, head = TIED[1:]
    tied_tables = TIED if is_shared else ()

    def embed(writer: ModuleWriter, table: str, num_tokens: int, side: str) -> int:
        return writer.normalise(lookup(writer, table, num_tokens, narrow), -1, f"model.{side}.embed_layer_norm")

    hidden = embed(words, parts.tied(encoder, *tied_tables), vocabulary, "encoder")
    for index in range(settings.number("encoder_layers", 2)):
        hidden = bidirectional_layer(words, hidden, f"model.encoder.layers.{index}", "layer_norm", "gru", width)
    mean = sources.run("MEAN_WORDS", sources.new(width), words=hidden)
    num_layers = settings.number("decoder_layers", 2)
    first = sources.apply(mean, "model.decoder.first_states", outputs=num_layers * width, activation="tanh")
    layer_states = [
        states.run("COPY", states.new(width), source=first, once=1, start=index * width, count=width)
        for index in range(num_layers)
    ]
    word = embed(step, parts.tied(decoder, *(tied_tables or (head,))), targets, "decoder")
    name = "model.decoder.attention_layer"
    intermediate = gru_step(step, f"{name}.recurrence.word_gru", word, layer_states[0], step.new(width))
    context = attend(writers, hidden, intermediate, f"{name}.recurrence.attention")
    gru_step(step, f"{name}.recurrence.context_gru", context, intermediate, layer_states[0])
    joined = step.concatenate(layer_states[0], context, word)
    top = step.normalise(
        step.apply(joined, f"{name}.readout", outputs=width, activation="tanh"), -1, f"{name}.layer_norm"
    )
    for index, state in enumerate(layer_states[1:]):
        layer = f"model.decoder.layers.{index}"
        gru_step(step, f"{layer}.gru", top, state, state, "_l0")
        top = step.normalise(step.copy(state), top, f"{layer}.layer_norm")
    top = guide(writers, settings, hidden, top)
    table = parts.tied(head, *((tied_tables or (decoder,)) if settings.flag("tie_word_embeddings", True) else ()))
    program.logits = logits(step, top, "project_out", table, targets, narrow)
    return program, parts
