/* Evaluation while training: the mean loss over the validation data, and the metrics of the task.
 *
 * Micro-batch i is computed by rank i mod size. Its numbers are in a row of their own, zero on the other ranks; so all ranks get
 * all rows, and add them in the same order. Each sample is in one micro-batch, and none is there twice. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "train/training.h"

/* What a micro-batch adds: its loss, its weight, the bytes of its text, and what the task counts. */
enum { LOSS, WEIGHT, BYTES, COUNTS };

static ls_status run_batch(ls_train *t, ls__micro_batch *b, double *row)
{
    ls_tensor *loss = NULL;
    int32_t *predictions = NULL;
    const ls__scoring *scoring = t->task->scoring;
    if (scoring) {
        predictions = calloc((size_t)b->targets + 1, sizeof *predictions);
        if (!predictions) return ls__fail(LS_ENOMEM, "evaluation: out of memory");
        b->model.predictions = predictions;
    }
    ls_status status = ls__train_forward(t, 0, &b->model, true, &loss);
    if (!status) {
        row[LOSS] = (double)loss->data[0] * b->weight;
        row[WEIGHT] = b->weight;
        row[BYTES] = b->bytes;
        if (scoring) scoring->count(&t->options, b, predictions, row + COUNTS);
    }
    free(predictions);
    return status;
}

/* `n` micro-batches; rows (n, width), and one more, which receives their sum. */
static ls_status run_all(ls_train *t, size_t n, size_t width, double *rows)
{
    ls_status status = LS_OK;
    for (size_t i = 0; i < n && !status; i++) {
        ls__micro_batch batch;
        status = ls__train_load_val(t, i == 0, &batch);
        if (status || (int)(i % (size_t)t->parallel.size) != t->parallel.rank || !batch.model.batch_size) continue;
        status = run_batch(t, &batch, rows + i * width);
        if (t->eval_progress && !t->parallel.rank) t->eval_progress(t->eval_user, i + 1, n);
    }
    if (!status) status = ls_allreduce(ls_world_group(t->parallel.world), rows, n * width, LS_F64, LS_SUM);
    for (size_t i = 0; i < n * width && !status; i++) rows[n * width + i % width] += rows[i];
    return status;
}

ls_status ls__train_evaluate(ls_train *t, ls__evaluation *out)
{
    if (!t->val_loader) return ls__fail(LS_ESTATE, "there is no validation data; set val_data or val_fraction");
    uint64_t all = ls_loader_steps(t->val_loader), wanted = (uint64_t)t->options.eval_batches;
    size_t n = (size_t)(wanted < all ? wanted : all), width = COUNTS;
    if (t->task->scoring) width += t->task->scoring->n_counts(&t->options);
    double *rows = calloc(n + 1, width * sizeof *rows);
    ls_status status = rows ? run_all(t, n, width, rows) : ls__fail(LS_ENOMEM, "evaluation: out of memory");
    if (!status) {
        const double *total = rows + n * width;
        *out = (ls__evaluation){ .weight = total[WEIGHT] };
        if (total[WEIGHT] > 0) out->loss = total[LOSS] / total[WEIGHT];
        if (t->task->scoring)
            t->task->scoring->score(&t->options, total + COUNTS, out->metrics);
        else
            out->metrics[0] = total[BYTES] > 0 ? total[LOSS] / total[BYTES] / M_LN2 : NAN;
    }
    free(rows);
    return status;
}

ls_status ls_train_eval(ls_train *t, double *loss)
{
    ls__evaluation e = { 0 };
    LS__NEED(t, "train");
    LS__NEED(loss, "loss");
    ls_status status = ls__train_evaluate(t, &e);
    *loss = e.loss;
    return status;
}
