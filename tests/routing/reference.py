"""Routing as the papers print it, in plain Python loops over float64 numbers: what every form is compared with.

One departure from a paper: `dynamic_routing` adds 1e-30 to the sum of C that it divides by, as all our forms do.

Votes are nested lists [N][M][D]; the result is the capsules [M][D] and, for each iteration, the weights [N][M].
"""

import math


def squash(vector):
    squared_norm = sum(x * x for x in vector)
    if squared_norm == 0:
        return [0.0 for _ in vector]
    return [squared_norm / (1 + squared_norm) * x / math.sqrt(squared_norm) for x in vector]


def softmax(values):
    peak = max(values)
    exponentials = [math.exp(value - peak) for value in values]
    return [value / sum(exponentials) for value in exponentials]


def dynamic_routing(votes, num_iterations, normalize_total_input=False, mask=None):
    num_inputs, num_outputs, width = len(votes), len(votes[0]), len(votes[0][0])
    indices = [n for n in range(num_inputs) if mask is None or mask[n]]
    logits = [[0.0] * num_outputs for _ in range(num_inputs)]
    history = []
    for _ in range(num_iterations):
        weights = [softmax(logits[n]) if n in indices else [0.0] * num_outputs for n in range(num_inputs)]
        history.append(weights)
        capsules = []
        for m in range(num_outputs):
            total = [sum(weights[n][m] * votes[n][m][d] for n in indices) for d in range(width)]
            if normalize_total_input:
                total = [x / (sum(weights[n][m] for n in indices) + 1e-30) for x in total]
            capsules.append(squash(total))
        for n in indices:
            for m in range(num_outputs):
                logits[n][m] += sum(capsules[m][d] * votes[n][m][d] for d in range(width))
    return capsules, history


def em_routing(
    votes,
    num_iterations,
    lambdas,
    beta_a=None,
    beta_u=None,
    input_activation=None,
    min_variance=0.0,
    mask=None,
):
    num_inputs, num_outputs, width = len(votes), len(votes[0]), len(votes[0][0])
    indices = [n for n in range(num_inputs) if mask is None or mask[n]]
    beta_a = beta_a or [0.0] * num_outputs
    beta_u = beta_u or [0.0] * num_outputs
    weights = [[1 / num_outputs if n in indices else 0.0] * num_outputs for n in range(num_inputs)]
    history = []
    for iteration in range(num_iterations):
        history.append(weights)
        mean, variance, activation = [], [], []
        for m in range(num_outputs):
            present = [
                weights[n][m] * (input_activation[n][m] if input_activation is not None else 1.0)
                for n in range(num_inputs)
            ]
            mass = sum(present[n] for n in indices)
            mu = [sum(present[n] * votes[n][m][d] for n in indices) / mass for d in range(width)]
            sigma_squared = [
                sum(present[n] * (votes[n][m][d] - mu[d]) ** 2 for n in indices) / mass + min_variance
                for d in range(width)
            ]
            cost = sum((math.log(math.sqrt(s)) + (1 + math.log(2 * math.pi)) / 2) * mass for s in sigma_squared)
            activation.append(1 / (1 + math.exp(-lambdas[iteration] * (beta_a[m] - beta_u[m] * mass - cost))))
            mean.append(mu)
            variance.append(sigma_squared)
        updated = [[0.0] * num_outputs for _ in range(num_inputs)]
        for n in indices:
            for m in range(num_outputs):
                densities = [
                    math.exp(-((votes[n][m][d] - mean[m][d]) ** 2) / (2 * variance[m][d]))
                    / math.sqrt(2 * math.pi * variance[m][d])
                    for d in range(width)
                ]
                updated[n][m] = activation[m] * math.prod(densities)
            total = sum(updated[n])
            updated[n] = [value / total for value in updated[n]]
        weights = updated
    capsules = [[activation[m] * mean[m][d] for d in range(width)] for m in range(num_outputs)]
    return capsules, history


def guided_routing(
    votes, query, query_weight, vote_weight, capsule_weight, score_weight, num_iterations, mask=None, score="printed"
):
    """One query; W_b is applied to the concatenation [z; v; Omega], as the paper writes it."""
    num_inputs, num_outputs, width = len(votes), len(votes[0]), len(votes[0][0])
    indices = [n for n in range(num_inputs) if mask is None or mask[n]]
    joint_weight = [query_weight[k] + vote_weight[k] + capsule_weight[k] for k in range(width)]
    logits = [[0.0] * num_outputs for _ in range(num_inputs)]
    history = []
    for _ in range(num_iterations):
        weights = [softmax(logits[n]) if n in indices else [0.0] * num_outputs for n in range(num_inputs)]
        history.append(weights)
        capsules = [
            squash([sum(weights[n][m] * votes[n][m][d] for n in indices) for d in range(width)])
            for m in range(num_outputs)
        ]
        for n in indices:
            for m in range(num_outputs):
                joint = query + votes[n][m] + capsules[m]
                hidden = [math.tanh(sum(w * x for w, x in zip(row, joint, strict=True))) for row in joint_weight]
                agreement = sum(w * h for w, h in zip(score_weight, hidden, strict=True))
                logits[n][m] += math.tanh(agreement) / math.sqrt(width) if score == "released" else agreement
    return capsules, history


def scoring_network(values, inner_weight, inner_bias, outer_weight, outer_bias):
    hidden = [
        max(0.0, sum(w * x for w, x in zip(r, values, strict=True)) + b)
        for r, b in zip(inner_weight, inner_bias, strict=True)
    ]
    return [
        sum(w * x for w, x in zip(r, hidden, strict=True)) + b for r, b in zip(outer_weight, outer_bias, strict=True)
    ]


def separable_routing(
    votes, capsule_positions=None, inputs=None, scoring=None, mask=None, score_scale=1.0, comparison_scale=1.0
):
    """Votes [T][N][M][D], of each iteration its own."""
    num_inputs, num_outputs, width = len(votes[0]), len(votes[0][0]), len(votes[0][0][0])
    indices = [n for n in range(num_inputs) if mask is None or mask[n]]
    logits = [[0.0] * num_outputs for _ in range(num_inputs)]
    history = []
    for current in votes:
        weights = [softmax(logits[n]) if n in indices else [0.0] * num_outputs for n in range(num_inputs)]
        history.append(weights)
        capsules = [
            squash([sum(weights[n][m] * current[n][m][d] for n in indices) for d in range(width)])
            for m in range(num_outputs)
        ]
        for m in range(num_outputs):
            compared = [comparison_scale * x for x in capsules[m]]
            if capsule_positions is not None:
                compared = [x + p for x, p in zip(compared, capsule_positions[m], strict=True)]
            for n in indices:
                if scoring is None:
                    score = sum(x * v for x, v in zip(compared, current[n][m], strict=True))
                else:
                    ours, theirs = scoring_network(compared, *scoring), scoring_network(inputs[n], *scoring)
                    score = sum(x * y for x, y in zip(ours, theirs, strict=True))
                logits[n][m] += score_scale * score
    return capsules, history


def rms_norm(vector, epsilon):
    root = math.sqrt(sum(x * x for x in vector) / len(vector) + epsilon)
    return [x / root for x in vector]


def weighted_sum(sources, weights):
    """Sources [L][d], and a weight for each, or a list with one for each unit."""
    width = len(sources[0])
    rows = [weight if isinstance(weight, list) else [weight] * width for weight in weights]
    return [sum(row[i] * source[i] for row, source in zip(rows, sources, strict=True)) for i in range(width)]


def depth_attention(sources, query, gain, epsilon):
    scores = []
    for source in sources:
        key = [g * x for g, x in zip(gain, rms_norm(source, epsilon), strict=True)]
        scores.append(sum(w * x for w, x in zip(query, key, strict=True)))
    weights = softmax(scores)
    return weighted_sum(sources, weights), weights


def multiway_dense(sources, inner, outer, offsets, epsilon):
    top = rms_norm(sources[-1], epsilon)
    sums = [sum(w * x for w, x in zip(row, top, strict=True)) for row in inner]
    hidden = [0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in sums]
    rows = zip(outer, offsets, strict=True)
    weights = [sum(w * x for w, x in zip(row, hidden, strict=True)) + b for row, b in rows]
    return weighted_sum(sources, weights), weights


def generalized_residual(sources, direction, offsets, epsilon):
    weights = []
    for source, row in zip(sources, offsets, strict=True):
        score = sum(w * x for w, x in zip(direction, rms_norm(source, epsilon), strict=True))
        weights.append([b + max(score, 0.0) for b in row])
    return weighted_sum(sources, weights), weights
