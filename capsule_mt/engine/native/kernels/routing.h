/* Routing by agreement, and the score of guided routing; legend in kernels.h. */
#ifndef CAPSULE_MT_ROUTING_H
#define CAPSULE_MT_ROUTING_H

#include "../kernels.h"
#include "vectors.h"

/* A sum of weights below this has lost digits to `exp_of_low`, whose smallest value is 1e-38. */
#define MIN_MASS 1e-30f

/* Weights of the N inputs for LANES capsules from `c` on, by their logarithms and divided by the largest; returns their
 * sum. */
OUTLINE vf relative_weights(const em_routing_t *routing, long c, const float *logits, const float *log_totals,
                            float *weights) {
    long n = routing->num_inputs, m = routing->num_outputs;
    vf top = all(-INFINITY), total = all(0.f);
    for (long i = 0; i < n; i++) {
        vf log_weight = load(logits + i * m + c) - all(log_totals[i]);
        if (routing->activations) log_weight += log_of(max_of(load(routing->activations + i * m + c), all(1e-20f)));
        store(weights + i * m + c, log_weight);
        top = max_of(top, log_weight);
    }
    for (long i = 0; i < n; i++) {
        vf weight = exp_of_low(load(weights + i * m + c) - top);
        store(weights + i * m + c, weight);
        total += weight;
    }
    return total;
}

/* Capsules of width 1, of whole vectors: M Gaussians. `weights` [N, M] times the `scales` of the inputs are the softmax of
 * `logits` [N, M], and `log_totals` the logarithms of its denominators. */
static void em_routing_narrow(const em_routing_t *routing) {
    const vf smallest = all(1e-20f), ones = all(1.f), half = all(0.5f);
    const float *votes = routing->votes, *activation = routing->activations;
    float *capsules = routing->capsules;
    long iterations = routing->iterations, n = routing->num_inputs, m = routing->num_outputs;
    float *logits = routing->scratch, *weights = logits + n * m, *constant = weights + n * m;
    float *half_precision = constant + m, *scales = half_precision + m, *log_totals = scales + n;
    for (long i = 0; i < n * m; i++) weights[i] = 1;
    for (long i = 0; i < n; i++) scales[i] = 1 / (float)m;
    for (long t = 0; t < iterations; t++) {
        for (long c = 0; c < m; c += LANES) {
            vf mass = all(0.f), mean = all(0.f), variance = all(0.f);
            for (long i = 0; i < n; i++) {
                vf weight = load(weights + i * m + c) * all(scales[i]);
                if (activation) weight *= max_of(load(activation + i * m + c), smallest);
                store(weights + i * m + c, weight);
                mass += weight;
                mean += weight * load(votes + i * m + c);
            }
            vf total = mass;
            if (t && lanes_above(-mass, -MIN_MASS)) {
                total = relative_weights(routing, c, logits, log_totals, weights);
                mean = all(0.f);
                for (long i = 0; i < n; i++) mean += load(weights + i * m + c) * load(votes + i * m + c);
            }
            vf by_total = ones / total;
            mean *= by_total;
            for (long i = 0; i < n; i++) {
                vf difference = load(votes + i * m + c) - mean;
                variance += load(weights + i * m + c) * difference * difference;
            }
            variance = variance * by_total + all(routing->min_variance);
            vf log_variance = log_of(variance);
            vf cost = half * (log_variance + all(2.8378770664093453f)) * mass; /* 1 + log 2 pi */
            vf z = all(routing->lambdas[t]) * (load(routing->beta_a + c) - load(routing->beta_u + c) * mass - cost);
            vf active = ones / (ones + exp_of(-z));
            store(capsules + c, t == iterations - 1 ? active * mean : mean);
            if (t == iterations - 1) continue;
            vf log_active = choose(z < all(-80.f), z, log_of(active)); /* `active` itself ends at 1e-38 */
            store(constant + c, log_active - half * log_variance);
            store(half_precision + c, half / variance);
        }
        for (long i = 0; i < n && t < iterations - 1; i++) {
            vf top = all(-INFINITY), total = all(0.f);
            for (long c = i * m, k = 0; k < m; c += LANES, k += LANES) {
                vf difference = load(votes + c) - load(capsules + k);
                vf logit = load(constant + k) - difference * difference * load(half_precision + k);
                store(logits + c, logit);
                top = max_of(top, logit);
            }
            float largest = largest_of(top);
            for (long c = i * m; c < (i + 1) * m; c += LANES) {
                vf weight = exp_of_low(load(logits + c) - all(largest));
                store(weights + c, weight);
                total += weight;
            }
            scales[i] = 1 / sum_of(total);
            log_totals[i] = largest + logf(sum_of(total));
        }
    }
}

static void em_routing(const em_routing_t *routing) {
    const float *votes = routing->votes, *activation = routing->activations;
    long iterations = routing->iterations, n = routing->num_inputs, m = routing->num_outputs, d = routing->width;
    float *capsules = routing->capsules;
    if (d == 1 && m % LANES == 0) {
        em_routing_narrow(routing);
        return;
    }
    /* Logarithms of the weights: with several dimensions a density can be too small for a float. */
    float *log_weights = routing->scratch, *shares = log_weights + n * m;
    float *variance = shares + n * m, *constant = variance + m * d;
    for (long i = 0; i < n * m; i++) {
        log_weights[i] = -logf((float)m);
        if (activation) log_weights[i] += logf(fmaxf(activation[i], 1e-20f));
    }
    for (long t = 0; t < iterations; t++) {
        for (long c = 0; c < m; c++) {
            float top = -INFINITY, total = 0, cost = 0, log_determinant = 0;
            for (long i = 0; i < n; i++) top = fmaxf(top, log_weights[i * m + c]);
            for (long i = 0; i < n; i++) total += shares[i * m + c] = expf(log_weights[i * m + c] - top);
            float mass = expf(top) * total;
            for (long k = 0; k < d; k++) {
                float mean = 0, spread = 0;
                for (long i = 0; i < n; i++) mean += shares[i * m + c] / total * votes[(i * m + c) * d + k];
                for (long i = 0; i < n; i++) {
                    float difference = votes[(i * m + c) * d + k] - mean;
                    spread += shares[i * m + c] / total * difference * difference;
                }
                spread += routing->min_variance;
                capsules[c * d + k] = mean;
                variance[c * d + k] = spread;
                log_determinant += logf(spread);
                cost += 0.5f * (logf(spread) + 2.8378770664093453f);
            }
            float z = routing->lambdas[t] * (routing->beta_a[c] - routing->beta_u[c] * mass - cost * mass);
            float log_active = z > 0 ? -log1pf(expf(-z)) : z - log1pf(expf(z));
            constant[c] = log_active - 0.5f * log_determinant;
            if (t == iterations - 1)
                for (long k = 0; k < d; k++) capsules[c * d + k] *= expf(log_active);
        }
        if (t == iterations - 1) return;
        for (long i = 0; i < n; i++) {
            float top = -INFINITY, total = 0, *logits = log_weights + i * m;
            for (long c = 0; c < m; c++) {
                float distance = 0;
                for (long k = 0; k < d; k++) {
                    float difference = votes[(i * m + c) * d + k] - capsules[c * d + k];
                    distance += difference * difference / variance[c * d + k];
                }
                logits[c] = constant[c] - 0.5f * distance;
                top = fmaxf(top, logits[c]);
            }
            for (long c = 0; c < m; c++) total += expf(logits[c] - top);
            for (long c = 0; c < m; c++) {
                logits[c] -= top + logf(total);
                if (activation) logits[c] += logf(fmaxf(activation[i * m + c], 1e-20f));
            }
        }
    }
}

static void squash(float *capsule, long width) {
    vf squares = all(0.f);
    FOR_VECTORS(i, width) squares += GET(capsule, i, width, 0.f) * GET(capsule, i, width, 0.f);
    float square = sum_of(squares), factor = sqrtf(square + 1e-9f) / (1 + square);
    FOR_VECTORS(i, width) PUT(capsule, i, width, GET(capsule, i, width, 0.f) * all(factor));
}

/* Added to the sum of an output's weights, as hf_capsule_mt/routing/dynamic.py does. */
#define TOTAL_EPSILON 1e-30f

static void dynamic_routing(const dynamic_routing_t *routing) {
    const float *votes = routing->votes;
    long iterations = routing->iterations, n = routing->num_inputs, m = routing->num_outputs, d = routing->width;
    float *capsules = routing->capsules, *logits = routing->scratch, *weights = logits + n * m;
    for (long i = 0; i < n * m; i++) {
        logits[i] = 0;
        weights[i] = 1.f / (float)m;
    }
    for (long t = 0; t < iterations; t++) {
        for (long c = 0; c < m; c++) {
            float total = 0;
            for (long k = 0; k < d; k++) capsules[c * d + k] = 0;
            for (long i = 0; i < n; i++) {
                total += weights[i * m + c];
                for (long k = 0; k < d; k++) capsules[c * d + k] += weights[i * m + c] * votes[(i * m + c) * d + k];
            }
            if (routing->normalize)
                for (long k = 0; k < d; k++) capsules[c * d + k] /= total + TOTAL_EPSILON;
            squash(capsules + c * d, d);
        }
        if (t == iterations - 1) return;
        for (long i = 0; i < n; i++)
            for (long c = 0; c < m; c++)
                for (long k = 0; k < d; k++) logits[i * m + c] += capsules[c * d + k] * votes[(i * m + c) * d + k];
        memcpy(weights, logits, (size_t)(n * m) * 4);
        softmax(weights, n, m);
    }
}

/* From x = -43.5 to 44; the products of two such numbers may overflow or underflow, where tanh is 1 or -1 anyway. */
static void exp_twice(float *values, long count) {
    FOR_VECTORS(i, count) PUT(values, i, count, exp_of(2 * GET(values, i, count, 0.f)));
}

static float tanh_score(const float *e, const float *f, const float *weight, float weight_sum, long width) {
    vf sum = all(0.f);
    FOR_VECTORS(i, width)
        sum += GET(weight, i, width, 0.f) / (all(1.f) + GET(e, i, width, 0.f) * GET(f, i, width, 0.f));
    return weight_sum - 2 * sum_of(sum);
}

static void add_scaled(float *sums, const float *values, float weight, long count) {
    FOR_VECTORS(i, count) PUT(sums, i, count, GET(sums, i, count, 0.f) + all(weight) * GET(values, i, count, 0.f));
}

#endif
