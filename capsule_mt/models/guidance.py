"""PAST and FUTURE (Zheng et al. 2019) between the decoder's states and the vocabulary, in every family that has it."""

from capsule_mt.models.parts import Writers
from capsule_mt.models.settings import MAX_ITERATIONS, ModelSettings

METHODS = ("none", "guided")


def guide(writers: Writers, settings: ModelSettings, source: int, hidden: int) -> int:
    """Add PAST and FUTURE, if the model has them, to the decoder's states; return the buffer of the result."""
    if settings.choice("guided_routing", "none", METHODS) == "none":
        return hidden
    settings.choice("guided_score", "printed", ("printed",))
    words, sources, step, _ = writers
    name, program = "model.decoder.guidance", step.program
    width, inner = settings.number("guided_capsule_dim", 256), settings.number("guided_ffn_dim", 512)
    num_guided = 2 * settings.number("guided_num_capsules", 2)
    # the redundant capsules take what is neither PAST nor FUTURE; only routing reads them
    capsules = num_guided + settings.number("guided_num_redundant_capsules", 8, minimum=0)
    iterations = settings.number("guided_num_iterations", 3, maximum=MAX_ITERATIONS)
    votes = words.apply(source, f"{name}.votes", outputs=capsules * width, bias=False)
    start = sources.run("GUIDED_START", sources.new(capsules * width), votes=votes, capsules=capsules, width=width)
    gathered = step.new(num_guided * width)
    if iterations == 1:
        step.run("COPY", gathered, source=start, count=num_guided * width)
    else:
        projected = words.apply(votes, f"{name}.vote_projection", outputs=width, bias=False, fold=capsules)
        words.run("EXP_TWICE", projected)
        start = sources.apply(start, f"{name}.capsule_projection", outputs=width, bias=False, fold=capsules)
        step.run(
            "GUIDED_ROUTING",
            gathered,
            query=step.apply(hidden, f"{name}.query_projection", outputs=width, bias=False),
            votes=votes,
            projected=projected,
            start=start,
            map=step.parts.linear(f"{name}.capsule_projection", width, width, bias=False),
            score=step.parts.vector(f"{name}.score.weight", 1, width),
            capsules=capsules,
            width=width,
            iterations=iterations,
            kept=num_guided,
        )
    joined = step.apply(step.concatenate(hidden, gathered), f"{name}.fc1", outputs=inner, activation="relu")
    return step.run("ADD", step.apply(joined, f"{name}.fc2", outputs=program.width(hidden)), addend=hidden)
