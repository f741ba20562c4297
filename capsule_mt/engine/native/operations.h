/* What the files of the operations share: ../operations.def documents each operation. */
#ifndef CAPSULE_MT_OPERATIONS_H
#define CAPSULE_MT_OPERATIONS_H

#include "run.h"

/* For `team_share`: the cost of a number of a key, and of one that an exponential is taken of. */
#define COST_OF_KEY 16
#define COST_OF_EXPONENTIAL 32

/* What the threads of a loop share. */
typedef struct {
    run_t *run;
    const operation_t *op;
    char *scratch;
    int64_t scratch_size; /* of each thread */
} loop_t;

/* ---- operations.c */

/* y [rows, outputs] = activation of the linear map of x [rows, inputs]; `memory` for what `round_inputs` writes. */
void multiply(run_t *run, const linear_t *linear, const float *x, int64_t rows, float *y, int activation, void *memory);
/* A LINEAR of rows; with a shortlist, the logits are of its candidates alone. */
void map_rows(run_t *run, const operation_t *op, const float *x, int64_t rows, float *y);

/* ---- attention.c */

void attend_words(run_t *run, const operation_t *op);
void attend_source(run_t *run, const operation_t *op);
void attend_past(run_t *run, const operation_t *op);
void attend_additively(run_t *run, const operation_t *op);

/* ---- recurrent.c */

void lstm_words(run_t *run, const operation_t *op);
void gru_words(run_t *run, const operation_t *op);
void lstm_step(run_t *run, const operation_t *op);
void gru_step(run_t *run, const operation_t *op);
void ssru_step(run_t *run, const operation_t *op);
void mean_past(run_t *run, const operation_t *op);

/* ---- routing.c */

void em_routing(run_t *run, const operation_t *op);
void dynamic_routing(run_t *run, const operation_t *op);
void guided_start(run_t *run, const operation_t *op);
void guided_routing(run_t *run, const operation_t *op);
void separable_routing(run_t *run, const operation_t *op);

/* ---- logits.c */

/* Finds the largest logit of each row of the head without writing the logits, where only that is needed and it is faster;
 * returns whether it did. */
int find_best_tokens(run_t *run, const operation_t *op, const linear_t *head, const float *x, int64_t rows);

#endif
