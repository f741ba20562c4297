"""Triton kernels of EM routing, dynamic routing and additive scores, forward and backward. Importing needs Triton.

A program of a routing kernel holds the votes of one position in registers: it reads them once, runs all iterations,
and writes the capsules, or the gradient by the votes. The backward kernels keep nothing of the forward pass and
compute each iteration anew. Tiles have sizes that are powers of two; what lies beyond N, M and D is masked.

Legend: P positions, N input capsules, M output capsules, D width of an output capsule; of scores T queries, N keys.
"""

# the arguments of a kernel are Triton's, which has no types for them
# mypy: ignore-errors

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e30)
SQUASH_EPSILON = tl.constexpr(1e-9)
SMALLEST_ACTIVATION = tl.constexpr(1e-20)  # as in routing/em_chunked.py


@triton.jit
def _log_softmax(logits, outputs_exist):
    """log C [N, M] of logits [N, M], over the outputs."""
    logits = tl.where(outputs_exist[None, :], logits, LOWEST)
    shifted = logits - tl.max(logits, axis=1)[:, None]
    return shifted - tl.log(tl.sum(tl.exp(shifted), axis=1))[:, None]


@triton.jit
def _shares(log_mass, keep):
    """R / sum_n R [N, M] and log sum_n R [M] of log R [N, M], without dividing by a tiny sum."""
    log_mass = tl.where(keep[:, None], log_mass, LOWEST)
    peak = tl.max(log_mass, axis=0)
    weight = tl.where(keep[:, None], tl.exp(log_mass - peak[None, :]), 0.0)
    total = tl.maximum(tl.sum(weight, axis=0), 1.0)  # at least 1, unless the mask keeps nothing
    return weight / total[None, :], peak + tl.log(total)


@triton.jit
def _log_sigmoid(logit):
    return tl.minimum(logit, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(logit)))


@triton.jit
def _load_votes(votes, mask, position, n, m, d, N, M, D, HAS_MASK: tl.constexpr):
    """The votes [N, M, D] of a position in float32, zero where there are none, and the inputs to keep [N]."""
    keep = n < N
    if HAS_MASK:
        keep = keep & (tl.load(mask + tl.cast(position, tl.int64) * N + n, mask=keep, other=0) != 0)
    exists = keep[:, None, None] & (m < M)[None, :, None] & (d < D)[None, None, :]
    places = _places(position, n, m, d, N, M, D)
    return tl.load(votes + places, mask=exists, other=0.0).to(tl.float32), keep


@triton.jit
def _places(position, n, m, d, N, M, D):
    return tl.cast(position, tl.int64) * N * M * D + n[:, None, None] * M * D + m[None, :, None] * D + d[None, None, :]


@triton.jit
def _store_votes(votes, values, position, n, m, d, N, M, D):
    exists = (n < N)[:, None, None] & (m < M)[None, :, None] & (d < D)[None, None, :]
    tl.store(votes + _places(position, n, m, d, N, M, D), values.to(votes.dtype.element_ty), mask=exists)


@triton.jit
def _capsule_places(position, m, d, M, D):
    return tl.cast(position, tl.int64) * M * D + m[:, None] * D + d[None, :]


@triton.jit
def _load_log_activation(activation, position, n, m, N, M, HAS_ACTIVATION: tl.constexpr):
    """log A [N, M]; zero without an input activation."""
    log_activation = tl.zeros([n.shape[0], m.shape[0]], tl.float32)
    if HAS_ACTIVATION:
        exists = (n < N)[:, None] & (m < M)[None, :]
        places = tl.cast(position, tl.int64) * N * M + n[:, None] * M + m[None, :]
        values = tl.load(activation + places, mask=exists, other=1.0).to(tl.float32)
        log_activation = tl.log(tl.maximum(values, SMALLEST_ACTIVATION))
    return log_activation


# ---- EM
@triton.jit
def _em_m_step(
    values, log_assignment, log_activation, keep, width_exists, beta_a, beta_u, temperature, min_variance, constant
):
    """Fit the Gaussians: the shares [N, M], the mass [M], mu and sigma [M, D], log sigma / 2 and the logit of a."""
    share, log_mass = _shares(log_assignment + log_activation, keep)
    mass = tl.exp(log_mass)
    mean = tl.sum(share[:, :, None] * values, axis=0)
    offset = values - mean[None, :, :]
    variance = tl.sum(share[:, :, None] * offset * offset, axis=0) + min_variance
    half_log_variance = 0.5 * tl.sum(tl.where(width_exists[None, :], tl.log(variance), 0.0), axis=1)
    logit = temperature * (beta_a - (beta_u + half_log_variance + 0.5 * constant) * mass)
    return share, mass, mean, variance, half_log_variance, logit


@triton.jit
def _em_log_assignment(
    values, log_activation, keep, outputs_exist, width_exists, beta_a, beta_u, M, min_variance, constant,
    TEMPERATURES: tl.constexpr, ITERATIONS: tl.constexpr,
):  # fmt: skip
    """log C [N, M] after some iterations."""
    log_assignment = tl.zeros([values.shape[0], values.shape[1]], tl.float32)
    log_assignment = tl.where(outputs_exist[None, :], log_assignment - tl.log(tl.cast(M, tl.float32)), LOWEST)
    for iteration in tl.static_range(ITERATIONS):
        _, _, mean, variance, half_log_variance, logit = _em_m_step(
            values, log_assignment, log_activation, keep, width_exists, beta_a, beta_u, TEMPERATURES[iteration],
            min_variance, constant,
        )  # fmt: skip
        offset = values - mean[None, :, :]
        distance = tl.sum(offset * offset * (0.5 / variance)[None, :, :], axis=2)  # [N, M]
        log_assignment = _log_softmax((_log_sigmoid(logit) - half_log_variance)[None, :] - distance, outputs_exist)
    return log_assignment


@triton.jit
def em_forward(
    votes, mask, activation, beta_a, beta_u, capsules, P, N, M, D, min_variance, constant,
    TEMPERATURES: tl.constexpr, ITERATIONS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_ACTIVATION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Votes [P, N, M, D], mask [P, N], activation [P, N, M] and betas [M] -> capsules [P, M, D]."""
    n, m, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    outputs_exist, width_exists = m < M, d < D
    a = tl.load(beta_a + m, mask=outputs_exist, other=0.0)
    u = tl.load(beta_u + m, mask=outputs_exist, other=0.0)
    for position in range(tl.program_id(0), P, tl.num_programs(0)):
        values, keep = _load_votes(votes, mask, position, n, m, d, N, M, D, HAS_MASK)
        log_activation = _load_log_activation(activation, position, n, m, N, M, HAS_ACTIVATION)
        log_assignment = _em_log_assignment(
            values, log_activation, keep, outputs_exist, width_exists, a, u, M, min_variance, constant, TEMPERATURES,
            ITERATIONS - 1,
        )  # fmt: skip
        _, _, mean, _, _, logit = _em_m_step(
            values, log_assignment, log_activation, keep, width_exists, a, u, TEMPERATURES[ITERATIONS - 1],
            min_variance, constant,
        )  # fmt: skip
        result = tl.sigmoid(logit)[:, None] * mean
        exists = outputs_exist[:, None] & width_exists[None, :]
        places = _capsule_places(position, m, d, M, D)
        tl.store(capsules + places, result.to(capsules.dtype.element_ty), mask=exists)


@triton.jit
def em_backward(
    votes, mask, activation, beta_a, beta_u, grad_capsules, grad_votes, grad_activation, grad_beta_a, grad_beta_u,
    P, N, M, D, min_variance, constant,
    TEMPERATURES: tl.constexpr, ITERATIONS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_ACTIVATION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The gradients by votes and activation, and each program's sum of those by the betas [programs, M]."""
    n, m, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    outputs_exist, width_exists = m < M, d < D
    a = tl.load(beta_a + m, mask=outputs_exist, other=0.0)
    u = tl.load(beta_u + m, mask=outputs_exist, other=0.0)
    grad_a = tl.zeros([BLOCK_M], tl.float32)
    grad_u = tl.zeros([BLOCK_M], tl.float32)
    for position in range(tl.program_id(0), P, tl.num_programs(0)):
        values, keep = _load_votes(votes, mask, position, n, m, d, N, M, D, HAS_MASK)
        log_activation = _load_log_activation(activation, position, n, m, N, M, HAS_ACTIVATION)
        exists = outputs_exist[:, None] & width_exists[None, :]
        places = _capsule_places(position, m, d, M, D)
        grad_result = tl.load(grad_capsules + places, mask=exists, other=0.0).to(tl.float32)
        grad_values = tl.zeros([BLOCK_N, BLOCK_M, BLOCK_D], tl.float32)
        grad_logits = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)  # by the logits of the next iteration's C
        grad_log_activation = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
        for iteration in tl.static_range(ITERATIONS - 1, -1, -1):
            log_assignment = _em_log_assignment(
                values, log_activation, keep, outputs_exist, width_exists, a, u, M, min_variance, constant,
                TEMPERATURES, iteration,
            )  # fmt: skip
            share, mass, mean, variance, half_log_variance, logit = _em_m_step(
                values, log_assignment, log_activation, keep, width_exists, a, u, TEMPERATURES[iteration],
                min_variance, constant,
            )  # fmt: skip
            offset = values - mean[None, :, :]
            precision = 1.0 / variance
            if iteration == ITERATIONS - 1:  # the capsules are a mu
                grad_mean = grad_result * tl.sigmoid(logit)[:, None]
                grad_log_output = tl.sum(grad_mean * mean, axis=1)
                grad_variance = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
            else:  # logits = log a - sum_d (log sigma + (V - mu)^2 / sigma) / 2
                product = grad_logits[:, :, None] * offset
                grad_mean = tl.sum(product, axis=0) * precision
                second_moment = tl.sum(product * offset, axis=0)
                grad_log_output = tl.sum(grad_logits, axis=0)
                grad_variance = 0.5 * precision * (precision * second_moment - grad_log_output[:, None])
                grad_values -= product * precision[None, :, :]

            # log a = logsigmoid(lambda (beta_a - (beta_u + sum_d (log sigma + 1 + log 2 pi) / 2) mass))
            gate = grad_log_output * TEMPERATURES[iteration] * tl.sigmoid(-logit)
            gated_mass = gate * mass
            grad_a += gate
            grad_u -= gated_mass
            grad_variance -= 0.5 * gated_mass[:, None] * precision

            # mu = sum_n share V, sigma = sum_n share (V - mu)^2 + min_variance
            grad_values += share[:, :, None] * (grad_mean[None, :, :] + 2.0 * offset * grad_variance[None, :, :])
            if iteration > 0 or HAS_ACTIVATION:
                grad_variance = tl.where(width_exists[None, :], grad_variance, 0.0)
                spread = tl.sum(grad_variance * (variance - min_variance), axis=1)
                common = -gated_mass * (u + half_log_variance + 0.5 * constant) - spread
                inner = (grad_mean[None, :, :] + offset * grad_variance[None, :, :]) * offset
                grad_log_weight = share * (tl.sum(inner, axis=2) + common[None, :])
                grad_log_activation += grad_log_weight
                total = tl.sum(grad_log_weight, axis=1)
                grad_logits = grad_log_weight - tl.exp(log_assignment) * total[:, None]
        _store_votes(grad_votes, grad_values, position, n, m, d, N, M, D)
        if HAS_ACTIVATION:
            places = tl.cast(position, tl.int64) * N * M + n[:, None] * M + m[None, :]
            exists = (n < N)[:, None] & outputs_exist[None, :]
            given = tl.load(activation + places, mask=exists, other=1.0).to(tl.float32)
            grad = tl.where(given < SMALLEST_ACTIVATION, 0.0, grad_log_activation * tl.exp(-log_activation))
            tl.store(grad_activation + places, grad.to(grad_activation.dtype.element_ty), mask=exists)
    tl.store(grad_beta_a + tl.program_id(0) * M + m, grad_a, mask=outputs_exist)
    tl.store(grad_beta_u + tl.program_id(0) * M + m, grad_u, mask=outputs_exist)


# ---- dynamic
@triton.jit
def _dynamic_step(values, log_assignment, keep, NORMALIZE: tl.constexpr):
    """The weights [N, M] of the votes, the total input S and its squared norm, and the capsules [M, D]."""
    if NORMALIZE:
        weight, _ = _shares(log_assignment, keep)
    else:
        weight = tl.where(keep[:, None], tl.exp(log_assignment), 0.0)
    total_input = tl.sum(weight[:, :, None] * values, axis=0)
    squared_norm = tl.sum(total_input * total_input, axis=1)
    scale = tl.sqrt(squared_norm + SQUASH_EPSILON) / (1.0 + squared_norm)
    return weight, total_input, squared_norm, total_input * scale[:, None]


@triton.jit
def _dynamic_log_assignment(
    values, keep, outputs_exist, NORMALIZE: tl.constexpr, ITERATIONS: tl.constexpr
):  # fmt: skip
    """log C [N, M] after some iterations."""
    logits = tl.zeros([values.shape[0], values.shape[1]], tl.float32)
    for _ in tl.static_range(ITERATIONS):
        log_assignment = _log_softmax(logits, outputs_exist)
        _, _, _, capsules = _dynamic_step(values, log_assignment, keep, NORMALIZE)
        logits += tl.sum(values * capsules[None, :, :], axis=2)
    return _log_softmax(logits, outputs_exist)


@triton.jit
def dynamic_forward(
    votes, mask, capsules, P, N, M, D,
    ITERATIONS: tl.constexpr, NORMALIZE: tl.constexpr, HAS_MASK: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Votes [P, N, M, D] and mask [P, N] -> capsules [P, M, D]."""
    n, m, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    outputs_exist, width_exists = m < M, d < D
    for position in range(tl.program_id(0), P, tl.num_programs(0)):
        values, keep = _load_votes(votes, mask, position, n, m, d, N, M, D, HAS_MASK)
        log_assignment = _dynamic_log_assignment(values, keep, outputs_exist, NORMALIZE, ITERATIONS - 1)
        _, _, _, result = _dynamic_step(values, log_assignment, keep, NORMALIZE)
        exists = outputs_exist[:, None] & width_exists[None, :]
        places = _capsule_places(position, m, d, M, D)
        tl.store(capsules + places, result.to(capsules.dtype.element_ty), mask=exists)


@triton.jit
def dynamic_backward(
    votes, mask, grad_capsules, grad_votes, P, N, M, D,
    ITERATIONS: tl.constexpr, NORMALIZE: tl.constexpr, HAS_MASK: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The gradient by votes [P, N, M, D] of that by capsules [P, M, D]."""
    n, m, d = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    outputs_exist, width_exists = m < M, d < D
    for position in range(tl.program_id(0), P, tl.num_programs(0)):
        values, keep = _load_votes(votes, mask, position, n, m, d, N, M, D, HAS_MASK)
        exists = outputs_exist[:, None] & width_exists[None, :]
        places = _capsule_places(position, m, d, M, D)
        grad_result = tl.load(grad_capsules + places, mask=exists, other=0.0).to(tl.float32)
        grad_values = tl.zeros([BLOCK_N, BLOCK_M, BLOCK_D], tl.float32)
        grad_logits = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)  # by the logits of the following iteration
        for iteration in tl.static_range(ITERATIONS - 1, -1, -1):
            log_assignment = _dynamic_log_assignment(values, keep, outputs_exist, NORMALIZE, iteration)
            weight, total_input, squared_norm, capsules = _dynamic_step(values, log_assignment, keep, NORMALIZE)
            if iteration < ITERATIONS - 1:  # the logits of the following iteration = these + Omega . V
                grad_result = tl.sum(grad_logits[:, :, None] * values, axis=0)
                grad_values += grad_logits[:, :, None] * capsules[None, :, :]

            # Omega = squash(sum_n weight V)
            norm = tl.sqrt(squared_norm + SQUASH_EPSILON)
            scale = norm / (1.0 + squared_norm)
            slope = (0.5 / norm - scale) / (1.0 + squared_norm)  # d scale / d |s|^2
            along = tl.sum(total_input * grad_result, axis=1)
            grad_input = grad_result * scale[:, None] + 2.0 * total_input * (slope * along)[:, None]
            grad_values += weight[:, :, None] * grad_input[None, :, :]
            if iteration > 0:  # the logits of the first one are constant
                grad_weight = tl.sum(values * grad_input[None, :, :], axis=2)
                if NORMALIZE:
                    grad_weight -= tl.sum(weight * grad_weight, axis=0)[None, :]
                grad_weight *= weight
                total = tl.sum(grad_weight, axis=1)
                grad_logits += grad_weight - tl.exp(log_assignment) * total[:, None]
        _store_votes(grad_votes, grad_values, position, n, m, d, N, M, D)


# ---- scores
@triton.jit
def _gates(query, keys):
    """r = sigmoid(-2 (q + k)) [T, N, D], of which tanh(q + k) is 1 - 2 r, with the slope 4 r (1 - r)."""
    return tl.sigmoid(-2.0 * (query[:, None, :] + keys[None, :, :]))


@triton.jit
def _load_rows(pointer, row, rows, d, length, D):
    """The rows of one sentence [rows, D], zero beyond its length."""
    exists = (rows < length)[:, None] & (d < D)[None, :]
    places = tl.cast(row, tl.int64) * length * D + rows[:, None] * D + d[None, :]
    return tl.load(pointer + places, mask=exists, other=0.0)


@triton.jit
def scores_forward(
    query, keys, weight, scores, T, N, D, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Queries [R, T, D], keys [R, N, D] and w [D] -> w . tanh(q + k) [R, T, N]."""
    row = tl.program_id(0)
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    result = tl.zeros([BLOCK_T, BLOCK_N], tl.float32)
    for start in range(0, D, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        w = tl.load(weight + d, mask=d < D, other=0.0)
        gates = _gates(_load_rows(query, row, t, d, T, D), _load_rows(keys, row, n, d, N, D))
        result += tl.sum(w[None, None, :] * (1.0 - 2.0 * gates), axis=2)
    places = tl.cast(row, tl.int64) * T * N + t[:, None] * N + n[None, :]
    tl.store(scores + places, result, mask=(t < T)[:, None] & (n < N)[None, :])


@triton.jit
def scores_backward(
    query, keys, weight, grad_scores, grad_query, grad_keys, grad_weight, T, N, D,
    OF_KEYS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The gradient by queries, and each program's part of that by w [R, programs, D]; or, OF_KEYS, that by keys."""
    row, block = tl.program_id(0), tl.program_id(1)
    d = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    w = tl.load(weight + d, mask=d < D, other=0.0)
    if OF_KEYS:
        n = block * BLOCK_N + tl.arange(0, BLOCK_N)
        k = _load_rows(keys, row, n, d, N, D)
        grad = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
        for start in range(0, T, BLOCK_T):
            t = start + tl.arange(0, BLOCK_T)
            g = _load_rows(grad_scores, row, t, n, T, N)[:, :, None]
            gates = _gates(_load_rows(query, row, t, d, T, D), k)
            grad += tl.sum(g * gates * (1.0 - gates), axis=0)
        places = tl.cast(row, tl.int64) * N * D + n[:, None] * D + d[None, :]
        tl.store(grad_keys + places, 4.0 * w[None, :] * grad, mask=(n < N)[:, None] & (d < D)[None, :])
    else:
        t = block * BLOCK_T + tl.arange(0, BLOCK_T)
        q = _load_rows(query, row, t, d, T, D)
        grad = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
        grad_w = tl.zeros([BLOCK_D], tl.float32)
        for start in range(0, N, BLOCK_N):
            n = start + tl.arange(0, BLOCK_N)
            g = _load_rows(grad_scores, row, t, n, T, N)[:, :, None]
            gates = _gates(q, _load_rows(keys, row, n, d, N, D))
            grad += tl.sum(g * gates * (1.0 - gates), axis=1)
            grad_w += tl.sum(tl.sum(g * (1.0 - 2.0 * gates), axis=1), axis=0)
        places = tl.cast(row, tl.int64) * T * D + t[:, None] * D + d[None, :]
        tl.store(grad_query + places, 4.0 * w[None, :] * grad, mask=(t < T)[:, None] & (d < D)[None, :])
        tl.store(grad_weight + (row * tl.num_programs(1) + block) * D + d, grad_w, mask=d < D)
