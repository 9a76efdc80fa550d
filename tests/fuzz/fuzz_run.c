/* Fuzz target: any bytes as a run.json. What is accepted has names for all its files, and no number that an option cannot have. */
#include <math.h>
#include <stdlib.h>
#include "train/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_train_saved *saved;
    if (ls__settings_parse(&saved, "fuzz", (const char *)data, size)) {
        if (saved || !ls_error()[0]) abort();
        return 0;
    }
    const ls_train_options *o = &saved->options;
    for (size_t i = 0; i < o->n_data; i++)
        if (!o->data[i]) abort();
    for (size_t i = 0; i < o->n_val_data; i++)
        if (!o->val_data[i]) abort();
    if (saved->ranks < 1 || o->batch_size < 0 || o->steps < 0 || !isfinite(o->clip) || isnan(o->schedule.lr)) abort();
    ls_train_saved_free(&saved);
    if (saved) abort();
    return 0;
}
