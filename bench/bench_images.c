/* One rank's training step of a ResNet: how long it takes.
 *
 *     bench_images [--model resnet20] [--batch 128] [--size 32] [--classes 10] [--steps 6] [--threads 1] [--profile 1]
 *
 * Prints one JSON line in the words of bench/peers/torch_images.py; --profile prints time per operation as well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/random.h"
#include "lockstep/nn.h"
#include "tensor/hooks.h"

#define CHECK(call)                              \
    do {                                         \
        if (call) {                              \
            fprintf(stderr, "%s\n", ls_error()); \
            exit(1);                             \
        }                                        \
    } while (0)

enum { COSTS = 64, MOST_STEPS = 100 };

/* Time by kind of operation and size of its result. */
typedef struct cost {
    char name[64];
    double ms, flops;
} cost;
static cost costs[COSTS];

static void add_cost(void *user, const ls__op_cost *p)
{
    char name[64];
    (void)user;
    snprintf(name, sizeof name, "%.20s %lld x %lld %s", p->op, (long long)(p->dims == 4 ? p->shape[1] : 0),
             (long long)p->shape[p->dims - 1], p->backward ? "backward" : "forward");
    for (int i = 0; i < COSTS; i++) {
        if (costs[i].name[0] && strcmp(costs[i].name, name)) continue;
        memcpy(costs[i].name, name, sizeof name);
        costs[i].ms += (double)p->ns * 1e-6;
        costs[i].flops += p->flops;
        return;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int batch = 128, size = 32, classes = 10, steps = 6, threads = 1, profile = 0;
    const char *model = "resnet20";
    struct {
        const char *name;
        int *value;
    } options[] = { { "--batch", &batch }, { "--size", &size },       { "--classes", &classes },
                    { "--steps", &steps }, { "--threads", &threads }, { "--profile", &profile } };
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t o = 0;
        while (o < sizeof options / sizeof *options && strcmp(argv[i], options[o].name)) o++;
        if (o < sizeof options / sizeof *options)
            *options[o].value = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--model"))
            model = argv[i + 1];
    }
    if (steps < 1 || steps > MOST_STEPS) return 2;
    ls_model_options o;
    ls_model *m;
    ls_tape *t;
    ls_optimizer *optimizer;
    ls_param *params;
    const ls_place *places;
    int64_t start = ls_now();
    CHECK(ls_model_preset(model, &o));
    o.resnet.size = size;
    o.resnet.classes = classes;
    CHECK(ls_model_open(&m, &o));
    CHECK(ls_model_bind(m, NULL, NULL, true));
    CHECK(ls_model_init(m, 1));
    CHECK(ls_tape_open(&t, &(ls_tape_options){ .threads = threads }));
    size_t n_places = ls_model_places(m, &places), elements = ls_model_elements(m);
    CHECK(ls_optimizer_open(&optimizer, places, n_places, 0, elements,
                            &(ls_optimizer_options){ .kind = LS_SGD, .threads = threads }));
    size_t count = (size_t)batch * (size_t)size * (size_t)size * 3;
    float *x = malloc(count * sizeof *x);
    int32_t *y = malloc((size_t)batch * sizeof *y);
    if (!x || !y) return 1;
    double times[MOST_STEPS + 2], ready = (double)(ls_now() - start) * 1e-9;
    float loss = 0;
    int n = ls_model_params(m, &params);
    for (int step = 0; step < steps + 2; step++) { /* the first two are not counted */
        ls__random_fill_normal(x, count, 0, 1, 2, (uint64_t)step, 0);
        for (int i = 0; i < batch; i++)
            y[i] = (int32_t)(ls__random_u32(3, (uint64_t)step, (uint64_t)i) % (uint32_t)classes);
        if (profile && step == 2) ls__tape_on_profile(t, add_cost, NULL);
        int64_t begin = ls_now();
        CHECK(ls_tape_begin(t, params, n, NULL));
        ls_tensor *l = ls_model_loss(m, t, &(ls_model_batch){ .batch_size = batch, .inputs = x, .targets = y });
        CHECK(ls_tape_backward(t, l));
        loss = l->data[0];
        ls_optimizer_update(optimizer, ls_model_values(m), ls_model_grads(m), step, 0.01f);
        times[step] = (double)(ls_now() - begin) * 1e-9;
    }
    qsort(times + 2, (size_t)steps, sizeof *times, by_value);
    for (int i = 0; i < COSTS && costs[i].name[0]; i++)
        fprintf(stderr, "%-40s %9.2f ms %8.1f GFLOP/s\n", costs[i].name, costs[i].ms / steps,
                costs[i].flops / costs[i].ms * 1e-6);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"peer\": \"lockstep %s\", \"step_s\": %.4f, \"min_s\": %.4f, \"images_per_s\": %.1f, \"peak_mb\": %ld, "
           "\"start_s\": %.2f, \"loss\": %.4f}\n",
           ls_version(), times[2 + steps / 2], times[2], batch / times[2 + steps / 2], usage.ru_maxrss / 1024, ready,
           (double)loss);
    return 0;
}
