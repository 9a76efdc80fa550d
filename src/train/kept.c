/* Elastic runs. See kept.h.
 *
 * The program's part of kept memory: `state` below, then the blocks' versions, the undo slots, the weights, the optimizer's state and the
 * sums, each on a page of its own. */
#include "train/kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "comm/parallel_for.h"
#include "comm/private.h"
#include "kern/optim.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "train/checkpoint.h"
#include "train/training.h"

enum {
    BLOCK =
        16384, /* elements with one version: a block of weights and state fits the L2 cache together with its copy */
    MAX_STATES = LS__OPTIM_MAX_STATES,
    PAGE = 4096,
};

/* What a rank restores if another died while it changed a block. */
typedef struct undo_slot {
    _Atomic int64_t block; /* 1 + its number; 0: none is being changed */
    float copy[1 + MAX_STATES][BLOCK];
} undo_slot;

typedef struct state {
    ls__update_marks marks;
    _Atomic int64_t finished; /* the last step whose metrics are written */
    /* What the update of the step after marks.done needs, written before it begins; then what is known of that step. */
    float lr, grad_scale;
    ls_train_metrics metrics;
    int64_t skipped;
    int32_t skipped_in_a_row;
    int64_t first_step; /* the run's step when the state was made, and its position in the data */
    ls_loader_state first_data;
    double peak_gflops;
    uint64_t elements, state_floats;
    int32_t undo_slots;
} state;

struct ls__train_kept {
    ls__kept *job;
    int fd;
    bool ready;         /* an earlier generation has left a state */
    bool recovered;     /* this generation has finished a step */
    _Atomic bool leave; /* this rank got SIGTERM */
    bool changing;
    size_t bytes;
    state *state;              /* the mapping begins with it */
    _Atomic int64_t *versions; /* by block: the step that it was updated in */
    undo_slot *undo;
    float *values, *optimizer, *sums;
};

/* ---- Joining. */

ls_status ls__train_kept_join(ls_train *t)
{
    int fd = ls__world_kept_fd(t->parallel.world);
    if (fd <= 0) return LS_OK;
    struct ls__train_kept *k = calloc(1, sizeof *k);
    if (!k) return ls__fail(LS_ENOMEM, "train: out of memory");
    ls_status status = ls__kept_attach(fd, &k->job);
    if (status) {
        free(k);
        return status;
    }
    t->kept = k;
    k->fd = fd;
    ls__kept_point(k->job, LS__POINT_OPENING, t->parallel.rank);
    ls_train_options *o = &t->options;
    if (o->update != LS_UPDATE_SHARDED || o->wire != LS_WIRE_F32 || o->sum_order != LS_SUM_ORDER_CANONICAL)
        return ls__fail(LS_EINVAL, "elastic: needs the sharded update, wire float32 and the canonical sum order");
    if (o->profile || o->barriers)
        return ls__fail(LS_EINVAL,
                        "elastic: cannot be combined with profile or barriers, which need a fixed number of ranks");
    if (ls_world_node_count(t->parallel.world) > 1)
        return ls__fail(LS_EUNSUPPORTED, "elastic: the ranks must be on one node");
    k->ready = atomic_load(&k->job->ready);
    int slots = atomic_load(&k->job->slots), torch_ranks = atomic_load(&k->job->torch_ranks);
    if (slots) o->slots = slots;
    if (torch_ranks) o->torch_ranks = torch_ranks;
    if (!*k->job->run_dir) return LS_OK;
    o->run_dir = k->job->run_dir;
    if (o->run_dir_mode == LS_RUN_DIR_NUMBERED) o->run_dir_mode = LS_RUN_DIR_NEW;
    if (!k->ready) return LS_OK; /* a start that was interrupted left nothing that counts as a run */
    o->run_dir_mode = LS_RUN_DIR_RESUME;
    return LS_OK;
}

void ls__train_kept_note_shape(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__train_is_first(t)) return;
    atomic_store(&k->job->torch_ranks, t->options.torch_ranks);
    atomic_store(&k->job->slots, t->options.slots);
}

void ls__train_kept_note_run_dir(const ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__train_is_first(t) || !t->run.path || *k->job->run_dir) return;
    /* The first character comes last: then the name is complete. */
    snprintf(k->job->run_dir + 1, LS__KEPT_PATH - 1, "%s", t->run.path + 1);
    atomic_thread_fence(memory_order_release);
    k->job->run_dir[0] = t->run.path[0];
}

/* ---- Memory. */

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t blocks_of(size_t elements)
{
    return (elements + BLOCK - 1) / BLOCK;
}

ls_status ls__train_kept_open(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return LS_OK;
    size_t elements = ls_model_elements(t->model), floats = ls__optimizer_state_floats(&t->options.optimizer, elements);
    size_t slots = t->options.slots < 512 ? (size_t)t->options.slots : 512;
    size_t versions = pages(sizeof(state)), undo = versions + pages(blocks_of(elements) * sizeof *k->versions);
    size_t values = undo + pages(slots * sizeof(undo_slot)), optimizer = values + pages(elements * sizeof(float));
    size_t sums = optimizer + pages(floats * sizeof(float) + 64);
    k->bytes = sums + pages(elements * sizeof(float));
    ls_status status = LS_OK;
    if (!k->ready && ls__train_is_first(t)) status = ls__kept_allocate(k->fd, k->bytes);
    status = ls__parallel_agree(t, status);
    void *base = NULL;
    if (!status) status = ls__parallel_agree(t, ls__kept_map(k->fd, k->bytes, &base));
    if (status) return status;
    k->state = base;
    k->versions = (_Atomic int64_t *)(void *)((char *)base + versions);
    k->undo = (undo_slot *)(void *)((char *)base + undo);
    k->values = (float *)(void *)((char *)base + values);
    k->optimizer = (float *)(void *)((char *)base + optimizer);
    k->sums = (float *)(void *)((char *)base + sums);
    if (k->ready && (k->state->elements != elements || k->state->state_floats != floats))
        status = ls__fail(LS_EMISMATCH, "elastic: kept memory belongs to another model or optimizer");
    if (!k->ready && ls__train_is_first(t)) { /* a start that was interrupted may have left something */
        memset(k->state, 0, sizeof *k->state);
        memset(k->versions, 0, blocks_of(elements) * sizeof *k->versions);
        for (size_t i = 0; i < slots; i++) atomic_store(&k->undo[i].block, 0);
        memset(k->optimizer, 0, floats * sizeof(float));
        k->state->elements = elements;
        k->state->state_floats = floats;
        k->state->undo_slots = (int32_t)slots;
    }
    return ls__parallel_agree(t, status);
}

void ls__train_kept_close(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return;
    if (k->state) munmap(k->state, k->bytes);
    ls__kept_detach(&k->job);
    free(k);
    t->kept = NULL;
}

float *ls__train_kept_values(const ls_train *t)
{
    return t->kept->values;
}

float *ls__train_kept_state(const ls_train *t)
{
    return t->kept->optimizer;
}

float *ls__train_kept_sums(const ls_train *t)
{
    return t->kept->sums;
}

struct ls__update_marks *ls__train_kept_marks(const ls_train *t)
{
    return &t->kept->state->marks;
}

bool ls__train_kept_is_ready(const ls_train *t)
{
    return t->kept && t->kept->ready;
}

int64_t ls__train_kept_finished(const ls_train *t)
{
    return atomic_load(&t->kept->state->finished);
}

double *ls__train_kept_peak(const ls_train *t)
{
    return &t->kept->state->peak_gflops;
}

/* ---- The update. */

typedef struct arrays {
    float *array[1 + MAX_STATES];
    int n;
} arrays;

static arrays arrays_of(const ls_train *t)
{
    arrays a = { .array = { t->kept->values }, .n = 1 };
    const char *name;
    float *data = NULL;
    int states = ls_optimizer_state(t->optimizer, -1, &name, &data);
    for (int i = 0; i < states && i < MAX_STATES; i++) {
        ls_optimizer_state(t->optimizer, i, &name, &data);
        a.array[a.n++] = data;
    }
    return a;
}

static size_t length_of(const ls_train *t, size_t block)
{
    size_t left = (size_t)t->kept->state->elements - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

static void update_block(ls_train *t, const arrays *a, size_t block, float lr, float grad_scale)
{
    struct ls__train_kept *k = t->kept;
    int rank = t->parallel.rank;
    undo_slot *undo = &k->undo[rank];
    size_t begin = block * BLOCK, n = length_of(t, block);
    ls__kept_point(k->job, LS__POINT_BEFORE_UNDO, rank);
    for (int i = 0; i < a->n; i++) memcpy(undo->copy[i], a->array[i] + begin, n * sizeof(float));
    ls__kept_point(k->job, LS__POINT_UNDO_COPIED, rank);
    atomic_store_explicit(&undo->block, (int64_t)block + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* no write to the block comes before it */
    ls__kept_point(k->job, LS__POINT_UNDO_SET, rank);
    size_t half = ls__kept_is_next_point(k->job, LS__POINT_HALF_UPDATED) ? n / 2 / 16 * 16 : 0;
    const float *sums = k->sums;
    ls_status status = LS_OK; /* the range is the optimizer's own, so it cannot fail */
    if (half)
        status =
            ls__optimizer_update_range(t->optimizer, k->values, sums, begin, begin + half, t->step, lr, grad_scale);
    if (half) ls__kept_point(k->job, LS__POINT_HALF_UPDATED, rank);
    status =
        ls__optimizer_update_range(t->optimizer, k->values, sums, begin + half, begin + n, t->step, lr, grad_scale);
    (void)status;
    ls__kept_point(k->job, LS__POINT_UPDATED, rank);
    atomic_store_explicit(&k->versions[block], t->step + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst); /* the copy is overwritten next */
    ls__kept_point(k->job, LS__POINT_VERSION_SET, rank);
    atomic_store_explicit(&undo->block, 0, memory_order_relaxed);
}

void ls__train_kept_update(ls_train *t, size_t begin, size_t end, float lr, float grad_scale)
{
    struct ls__train_kept *k = t->kept;
    arrays a = arrays_of(t);
    for (size_t b = begin / BLOCK; b * BLOCK < end; b++)
        if (atomic_load_explicit(&k->versions[b], memory_order_acquire) != t->step + 1)
            update_block(t, &a, b, lr, grad_scale);
}

void ls__train_kept_note_step(ls_train *t, float lr, float grad_scale, const ls_train_metrics *m)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__train_is_first(t)) return;
    k->state->lr = lr;
    k->state->grad_scale = grad_scale;
    k->state->metrics = *m;
    k->state->skipped = t->skipped;
    k->state->skipped_in_a_row = t->skipped_in_a_row;
}

void ls__train_kept_skip(ls_train *t)
{
    if (!t->kept) return;
    /* In this order: begun after done means that there is nothing to complete. */
    atomic_store(&t->kept->state->marks.done, t->step + 1);
    atomic_store(&t->kept->state->marks.begun, t->step + 1);
}

/* ---- Recovery. */

static void restore_torn(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    int64_t begun = atomic_load(&k->state->marks.begun);
    arrays a = arrays_of(t);
    for (int r = 0; r < k->state->undo_slots; r++) {
        undo_slot *undo = &k->undo[r];
        int64_t block = atomic_load(&undo->block) - 1;
        if (block < 0) continue;
        if (atomic_load(&k->versions[block]) != begun)
            for (int i = 0; i < a.n; i++)
                memcpy(a.array[i] + (size_t)block * BLOCK, undo->copy[i], length_of(t, (size_t)block) * sizeof(float));
        atomic_store(&undo->block, 0);
    }
}

static void complete_chunk(void *user, const void *const *data, size_t begin, size_t end)
{
    ls_train *t = user;
    (void)data;
    ls__train_kept_update(t, begin, end, t->kept->state->lr, t->kept->state->grad_scale);
}

static ls_loader_state position_of(const ls_train *t, int64_t step)
{
    const state *s = t->kept->state;
    ls_loader_state at = s->first_data;
    uint64_t steps = t->epoch_steps, all = at.epoch * steps + at.step + (uint64_t)(step - s->first_step);
    at.epoch = all / steps;
    at.step = all % steps;
    return at;
}

ls_status ls__train_kept_resume(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    state *s = k->state;
    enum { CHUNK = 16 * BLOCK };
    ls_status status = LS_OK;
    ls__kept_point(k->job, LS__POINT_RECOVERY, t->parallel.rank);
    if (ls__train_is_first(t)) restore_torn(t);
    ls__kept_point(k->job, LS__POINT_RESTORED, t->parallel.rank);
    if ((status = ls_barrier(ls_world_group(t->parallel.world)))) return status;
    int64_t begun = atomic_load(&s->marks.begun), done = atomic_load(&s->marks.done);
    t->skipped = s->skipped;
    t->skipped_in_a_row = s->skipped_in_a_row;
    if (begun > done) {
        t->step = begun - 1;
        if (t->parallel.size > 1)
            status =
                ls__parallel_for(t->parallel.node_group, NULL, (size_t)s->elements, LS_F32, CHUNK, complete_chunk, t);
        else
            complete_chunk(t, NULL, 0, (size_t)s->elements);
        if (status) return status;
        done = begun;
        atomic_store(&s->marks.done, done);
    } else if (done > begun) {
        atomic_store(&s->marks.begun, done);
    }
    ls__kept_point(k->job, LS__POINT_COMPLETED, t->parallel.rank);
    t->step = done;
    t->data_at = position_of(t, done);
    status = ls_loader_seek(t->loader, &t->data_at);
    return ls__parallel_agree(t, status);
}

ls_status ls__train_kept_start(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return LS_OK;
    if (k->ready) {
        ls_status status = LS_OK;
        if (t->step > k->state->first_step) {
            ls_train_metrics m = k->state->metrics;
            status = ls__train_finish(t, &m, ls__train_kept_finished(t) < t->step);
        }
        status = ls__parallel_agree(t, status);
        k->recovered = true; /* that was the step of an earlier generation */
        if (!status) ls__train_kept_finish(t);
        k->recovered = false;
        return status;
    }
    if (ls__train_is_first(t)) {
        state *s = k->state;
        s->first_step = t->step;
        s->first_data = t->data_at;
        s->skipped = t->skipped;
        atomic_store(&s->marks.begun, t->step);
        atomic_store(&s->marks.done, t->step);
        atomic_store(&s->finished, t->step);
        atomic_store(&k->job->step, t->step);
        ls__kept_point(k->job, LS__POINT_OPENED, 0);
        atomic_store(&k->job->ready, 1);
    }
    return ls_barrier(ls_world_group(t->parallel.world));
}

/* One line for each generation, written when it has finished its first step. */
static void note_generation(const ls_train *t)
{
    const ls__kept *j = t->kept->job;
    char path[LS__KEPT_PATH + 32], line[600], why[256];
    if (!t->run.path) return;
    snprintf(path, sizeof path, "%s/generations.jsonl", t->run.path);
    snprintf(why, sizeof why, "%s", j->why);
    for (char *c = why; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '\'';
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int n = snprintf(
        line, sizeof line,
        "{\"generation\":%d,\"time\":%lld.%03ld,\"ranks\":%d,\"step\":%lld,\"why\":\"%s\",\"recovery_ms\":%.1f}\n",
        atomic_load(&j->generation), (long long)now.tv_sec, now.tv_nsec / 1000000, t->parallel.size, (long long)t->step,
        why, j->lost_at ? (double)(ls_now() - j->lost_at) / 1e6 : 0.0);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ssize_t ignored = write(fd, line, (size_t)n);
    (void)ignored;
    close(fd);
}

void ls__train_kept_finish(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__train_is_first(t)) return;
    atomic_store(&k->state->finished, t->step);
    atomic_store(&k->job->step, t->step);
    if (!k->recovered && t->step > k->state->first_step) note_generation(t);
    k->recovered = true;
    ls__kept_point(k->job, LS__POINT_FINISHED, 0);
}

/* ---- Other numbers of ranks. */

/* The number that `lockstep resize` left in the run folder; 0: none. The request is accepted: the file is removed. */
static int requested_ranks(const ls_train *t)
{
    char path[LS__KEPT_PATH + 32];
    int ranks = 0;
    if (!t->run.path) return 0;
    snprintf(path, sizeof path, "%s/resize", t->run.path);
    if (access(path, F_OK)) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    if (fscanf(f, "%d", &ranks) != 1) ranks = 0;
    fclose(f);
    unlink(path);
    if (ranks >= 1 && ranks <= t->options.slots && ranks <= 512) return ranks;
    ls__log(LS_LOG_WARNING, "resize to %d ranks: must be from 1 to the %d slots; the run continues unchanged", ranks,
            t->options.slots);
    return 0;
}

double ls__train_kept_change(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    double change = atomic_load(&k->leave) ? 1 : 0;
    int ranks = ls__train_is_first(t) ? requested_ranks(t) : 0;
    if (ranks && ranks != t->parallel.size) {
        atomic_store(&k->job->wanted, ranks);
        change += 1e6;
    }
    return change;
}

void ls__train_kept_agree(ls_train *t, double sum)
{
    struct ls__train_kept *k = t->kept;
    k->changing = sum > 0;
    if (!k->changing || !ls__train_is_first(t)) return;
    int leaving = (int)(sum >= 1e6 ? sum - 1e6 : sum);
    atomic_store(&k->job->leaving, leaving);
}

void ls__train_leave_job(ls_train *t)
{
    if (!t->kept || atomic_load(&t->kept->job->stopping))
        ls_train_stop(t);
    else
        atomic_store(&t->kept->leave, true);
}

bool ls__train_is_changing(const ls_train *t)
{
    return t->kept && t->kept->changing && !t->stopping;
}

void ls__train_point(const ls_train *t, int point)
{
    if (t->kept) ls__kept_point(t->kept->job, point, t->parallel.rank);
}
