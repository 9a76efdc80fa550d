/* Buffers of a model that is trained on several ranks: running statistics of batch norms.
 *
 * Unless norms are synchronized (together.c), each micro-batch is normalized by its own statistics, so gradients do not depend on
 * which rank computes it. Forward stores the statistics in the row of its slot; at the end of a step all ranks get all rows and
 * count them in the order of slots, if the step is not skipped. So buffers, too, are the same bits on any number of ranks, and
 * equal on all of them. */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "nn/model.h"
#include "train/training.h"

ls_status ls__statistics_open(ls_train *t)
{
    size_t row = ls__model_buffer_elements(t->model), rows = (size_t)t->options.slots;
    if (!row) return LS_OK;
    t->statistics = calloc(rows, row * sizeof *t->statistics);
    if (!t->statistics) return ls__fail(LS_ENOMEM, "train: no memory for the statistics of %zu slots", rows);
    /* Where ranks share weights, one of them has read the folder that the run starts from. */
    const ls_place *places;
    float *buffers;
    ls_model_buffers(t->model, &places, &buffers);
    return ls_broadcast(ls_world_group(t->parallel.world), buffers, row, LS_F32, 0);
}

void ls__statistics_close(ls_train *t)
{
    free(t->statistics);
    t->statistics = NULL;
}

void ls__statistics_slot(ls_train *t, int slot)
{
    if (!t->statistics) return;
    size_t row = ls__model_buffer_elements(t->model);
    if (slot == t->parallel.first) memset(t->statistics, 0, (size_t)t->options.slots * row * sizeof *t->statistics);
    ls__model_set_statistics(t->model, t->statistics + (size_t)slot * row);
}

/* Rows of other ranks are 0, so the sum is exact. */
ls_status ls__statistics_gather(ls_train *t)
{
    size_t count = ls__model_buffer_elements(t->model) * (size_t)t->options.slots;
    if (!t->statistics || t->parallel.size == 1) return LS_OK;
    return ls_allreduce(ls_world_group(t->parallel.world), t->statistics, count, LS_F32, LS_SUM);
}

void ls__statistics_count(ls_train *t)
{
    const ls_place *places;
    float *buffers;
    size_t n = ls_model_buffers(t->model, &places, &buffers);
    size_t row = ls__model_buffer_elements(t->model);
    for (int slot = 0; t->statistics && slot < t->options.slots; slot++) {
        const float *own = t->statistics + (size_t)slot * row;
        ls__model_add_statistics(t->model, own);
        if (t->options.sync_norm && own[places[n - 1].offset] != 0) return; /* other slots have the same */
    }
}
