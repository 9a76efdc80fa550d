/* A dataset that lockstep does not know: fill in an ls_dataset, and the loader does the rest.
 *
 *     cc dataset.c -o dataset $(pkg-config --cflags --libs lockstep)
 *     lockstep run -n 2 --no-prefix -- ./dataset      the same output with 1, 2 or 4 ranks
 *
 * A sample is a point (two float32) and its class (one int32). Here it is computed from its number; a real dataset reads it
 * from a file or a data base. Worker threads build the batches ahead of time, in an order that depends on the seed alone. */
#include <stdio.h>
#include <lockstep/comm.h>
#include <lockstep/data.h>
#include <lockstep/ddp.h>

enum { SAMPLES = 1000, BATCH_SIZE = 8, SLOTS = 4, EPOCHS = 2 };
enum { POINT, CLASS };

/* Called from several worker threads at once, so it only reads what they share. */
static ls_status get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const float *scale = self;
    (void)worker; /* what worker_open() made for this worker; not needed here */
    if (sample >= SAMPLES) return ls_error_set(LS_EINVAL, "sample %llu of %d", (unsigned long long)sample, SAMPLES);
    float *point = row->fields[POINT];
    int32_t *class = row->fields[CLASS];
    point[0] = *scale * (float)(sample % 32);
    point[1] = *scale * (float)(sample / 32);
    *class = point[0] > point[1];
    row->tokens = 1; /* the sample's weight in a mean */
    row->length = 1;
    return LS_OK;
}

/* One epoch: how many samples there were, and a sum over them that depends on their order. */
static ls_status epoch(ls_world *world, ls_loader *loader)
{
    int64_t samples = 0, ones = 0, order = 0;
    uint64_t number = 0;
    int first, own; /* slots of this rank */
    ls_status status = ls_slots_of_rank(SLOTS, ls_world_size(world), ls_world_rank(world), &first, &own);
    if (status) return status;
    uint64_t batches = ls_loader_steps(loader) * (uint64_t)own;
    for (uint64_t i = 0; i < batches; i++) {
        ls_batch *batch = NULL;
        if ((status = ls_loader_next(loader, &batch))) return status;
        const int32_t *classes = batch->fields[CLASS];
        for (size_t r = 0; r < batch->batch_size; r++) {
            int64_t place = (int64_t)((batch->step * SLOTS + (uint64_t)batch->slot) * BATCH_SIZE + r);
            ones += classes[r];
            order += (place + 1) * (int64_t)batch->samples[r];
        }
        samples += (int64_t)batch->batch_size;
        number = batch->epoch;
    }
    int64_t sums[3] = { samples, ones, order };
    status = ls_allreduce(ls_world_group(world), sums, 3, LS_I64, LS_SUM);
    if (!status && ls_world_rank(world) == 0)
        printf("epoch %llu: %lld samples, %lld of class 1, checksum of the order %lld\n", (unsigned long long)number,
               (long long)sums[0], (long long)sums[1], (long long)sums[2]);
    return status;
}

int main(void)
{
    float scale = 0.5f;
    ls_dataset dataset = { .count = SAMPLES,
                           .n_fields = 2,
                           .fields = { { .name = "point", .type = LS_F32, .count = 2 },
                                       { .name = "class", .type = LS_I32, .count = 1 } },
                           .self = &scale,
                           .get = get };
    ls_world *world = NULL;
    ls_loader *loader = NULL;
    ls_status status = ls_world_open(&world, NULL);
    if (!status)
        status = ls_loader_open(&loader, &dataset,
                                &(ls_loader_options){ .workers = 2,
                                                      .batch_size = BATCH_SIZE,
                                                      .slots = SLOTS,
                                                      .rank = ls_world_rank(world),
                                                      .world_size = ls_world_size(world),
                                                      .seed = 7,
                                                      .epochs = EPOCHS });
    for (int i = 0; i < EPOCHS && !status; i++) status = epoch(world, loader);
    if (status) fprintf(stderr, "dataset: %s: %s\n", ls_status_text(status), ls_error());
    ls_loader_free(&loader);
    ls_world_free(&world);
    return status ? 1 : 0;
}
