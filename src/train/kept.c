/* Elastic runs. See kept.h; kept_parts.h has the layout of the memory, kept_nodes.c what several nodes need. */
#include "train/kept.h"

#include <fcntl.h>
#include <omp.h>
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
#include "train/kept_parts.h"
#include "train/training.h"

enum { PAGE = 4096 };

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
    k->ready = k->own_ready = atomic_load(&k->job->ready);
    ls_status agreed = ls__kept_nodes_join(t);
    if (agreed) return agreed;
    int slots = atomic_load(&k->job->slots), torch_ranks = atomic_load(&k->job->torch_ranks);
    if (slots) o->slots = slots;
    if (torch_ranks) o->torch_ranks = torch_ranks;
    /* A start that was interrupted left nothing that counts. */
    if (!k->ready && ls__train_is_first(t)) ls__kept_drop_held(k->job, t->parallel.world, true);
    if (!*k->job->run_dir) return LS_OK;
    o->run_dir = k->job->run_dir;
    if (o->run_dir_mode == LS_RUN_DIR_NUMBERED) o->run_dir_mode = LS_RUN_DIR_NEW;
    if (!k->ready) return LS_OK;
    if (ls__train_is_first(t)) ls__kept_sums_review(t);
    t->continued = !ls__train_is_resumed(t);
    o->run_dir_mode = LS_RUN_DIR_RESUME;
    return LS_OK;
}

void ls__train_kept_note_shape(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__kept_is_local_root(t)) return;
    atomic_store(&k->job->torch_ranks, t->options.torch_ranks);
    atomic_store(&k->job->slots, t->options.slots);
}

void ls__train_kept_note_run_dir(const ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    const char *path = t->options.run_dir;
    if (!k || !ls__kept_is_local_root(t) || !path || !*path || *k->job->run_dir) return;
    /* The first character comes last: then the name is complete. */
    snprintf(k->job->run_dir + 1, LS__KEPT_PATH - 1, "%s", path + 1);
    atomic_thread_fence(memory_order_release);
    k->job->run_dir[0] = path[0];
}

/* ---- Memory. */

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

ls_status ls__train_kept_open(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return LS_OK;
    size_t elements = ls_model_elements(t->model), floats = ls__optimizer_state_floats(&t->options.optimizer, elements);
    size_t most = t->options.slots < 512 ? (size_t)t->options.slots : 512; /* ranks */
    size_t slots = most > LS__KEPT_UNDO ? most : LS__KEPT_UNDO;
    size_t versions = pages(sizeof(ls__kept_state)),
           undo = versions + pages(ls__kept_blocks(elements) * sizeof *k->versions);
    size_t values = undo + pages(slots * sizeof(ls__kept_undo)), optimizer = values + pages(elements * sizeof(float));
    size_t row = ls__model_buffer_elements(t->model), buffers = optimizer + pages(floats * sizeof(float) + 64);
    size_t sums = buffers + 2 * pages(row * sizeof(float));
    size_t rows = sums + pages(elements * sizeof(float));
    k->bytes = rows + pages(row * (size_t)t->options.slots * sizeof(float));
    ls_status status = LS_OK;
    if (!k->own_ready && ls__kept_is_local_root(t)) status = ls__kept_allocate(k->fd, k->bytes);
    status = ls__parallel_agree(t, status);
    void *base = NULL;
    if (!status) status = ls__parallel_agree(t, ls__kept_map(k->fd, k->bytes, &base));
    if (status) return status;
    k->state = base;
    k->versions = (_Atomic int64_t *)(void *)((char *)base + versions);
    k->undo = (ls__kept_undo *)(void *)((char *)base + undo);
    k->values = (float *)(void *)((char *)base + values);
    k->optimizer = (float *)(void *)((char *)base + optimizer);
    k->sums = (float *)(void *)((char *)base + sums);
    k->rows = (float *)(void *)((char *)base + rows);
    for (size_t i = 0; i < 2 && row; i++)
        k->buffers[i] = (float *)(void *)((char *)base + buffers + i * pages(row * sizeof(float)));
    if (k->own_ready &&
        (k->state->elements != elements || k->state->state_floats != floats || k->state->buffers != row))
        status = ls__fail(LS_EMISMATCH, "elastic: kept memory belongs to another model or optimizer");
    if (!k->own_ready && ls__kept_is_local_root(t)) { /* a start that was interrupted may have left something */
        memset(k->state, 0, sizeof *k->state);
        memset(k->versions, 0, ls__kept_blocks(elements) * sizeof *k->versions);
        for (size_t i = 0; i < slots; i++) atomic_store(&k->undo[i].block, 0);
        memset(k->optimizer, 0, floats * sizeof(float));
        k->state->elements = elements;
        k->state->state_floats = floats;
        k->state->buffers = row;
        k->state->undo_slots = (int32_t)slots;
    }
    return ls__parallel_agree(t, status);
}

void ls__train_kept_close(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!k) return;
    free(k->parts);
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

bool ls__train_kept_is_continued(const ls_train *t)
{
    return t->kept && atomic_load(&t->kept->job->generation) > 0;
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
    float *array[1 + LS__OPTIM_MAX_STATES];
    int n;
} arrays;

static arrays arrays_of(const ls_train *t)
{
    arrays a = { .array = { t->kept->values }, .n = 1 };
    const char *name;
    float *data = NULL;
    int states = ls_optimizer_state(t->optimizer, -1, &name, &data);
    for (int i = 0; i < states && i < LS__OPTIM_MAX_STATES; i++) {
        ls_optimizer_state(t->optimizer, i, &name, &data);
        a.array[a.n++] = data;
    }
    return a;
}

static size_t length_of(const ls_train *t, size_t block)
{
    size_t left = (size_t)t->kept->state->elements - block * LS__KEPT_BLOCK;
    return left < LS__KEPT_BLOCK ? left : LS__KEPT_BLOCK;
}

static void update_block(ls_train *t, ls__kept_undo *undo, size_t block, float lr, float grad_scale)
{
    struct ls__train_kept *k = t->kept;
    int rank = t->parallel.rank;
    size_t begin = block * LS__KEPT_BLOCK, n = length_of(t, block);
    size_t half = ls__kept_is_next_point(k->job, LS__POINT_HALF_UPDATED) ? n / 2 : 0;
    ls__optim_undo u = { .copy = undo->copy, .copied = &undo->copied };
    ls__kept_point(k->job, LS__POINT_BEFORE_UNDO, rank);
    atomic_store_explicit(&undo->copied, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    ls__kept_point(k->job, LS__POINT_UNDO_EMPTY, rank);
    atomic_store_explicit(&undo->block, (int64_t)block + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* no write to the block comes before it */
    ls__kept_point(k->job, LS__POINT_UNDO_SET, rank);
    for (size_t at = 0; at < n; at = at < half ? half : n) {
        size_t end = at < half ? half : n;
        u.before = at;
        ls_status status = ls__optimizer_update_range(t->optimizer, k->values, k->sums, begin + at, begin + end,
                                                      t->step, lr, grad_scale, &u);
        (void)status; /* the range is the optimizer's own, so it cannot fail */
        if (end < n) ls__kept_point(k->job, LS__POINT_HALF_UPDATED, rank);
    }
    ls__kept_point(k->job, LS__POINT_UPDATED, rank);
    atomic_store_explicit(&k->versions[block], t->step + 1, memory_order_release);
    atomic_thread_fence(memory_order_release); /* the copy is overwritten next */
    ls__kept_point(k->job, LS__POINT_VERSION_SET, rank);
    atomic_store_explicit(&undo->block, 0, memory_order_relaxed);
}

void ls__train_kept_update(ls_train *t, size_t begin, size_t end, float lr, float grad_scale)
{
    struct ls__train_kept *k = t->kept;
    if (begin >= end) return;
    const ls_group *node = t->parallel.node_group;
    int most = k->state->undo_slots / ls_group_size(node),
        threads = t->options.threads < most ? t->options.threads : most;
    ls__kept_undo *undo = &k->undo[ls_group_rank(node) * most];
    int64_t first = (int64_t)(begin / LS__KEPT_BLOCK), last = (int64_t)((end - 1) / LS__KEPT_BLOCK);
#pragma omp parallel for num_threads(threads) schedule(static) if (last > first)
    for (int64_t b = first; b <= last; b++)
        if (atomic_load_explicit(&k->versions[b], memory_order_acquire) != t->step + 1)
            update_block(t, &undo[omp_get_thread_num()], (size_t)b, lr, grad_scale);
}

/* The buffers after `step`, beside those of the step before. */
static void keep_buffers(const ls_train *t, int64_t step)
{
    const struct ls__train_kept *k = t->kept;
    const ls_place *places;
    float *buffers;
    if (!k->buffers[0]) return;
    ls_model_buffers(t->model, &places, &buffers);
    memcpy(k->buffers[step % 2], buffers, (size_t)k->state->buffers * sizeof(float));
}

static void restore_buffers(const ls_train *t)
{
    const struct ls__train_kept *k = t->kept;
    const ls_place *places;
    float *buffers;
    if (!k->buffers[0]) return;
    ls_model_buffers(t->model, &places, &buffers);
    memcpy(buffers, k->buffers[t->step % 2], (size_t)k->state->buffers * sizeof(float));
}

void ls__train_kept_note_step(ls_train *t, float lr, float grad_scale, const ls_train_metrics *m)
{
    struct ls__train_kept *k = t->kept;
    if (!k || !ls__kept_is_local_root(t)) return;
    /* The first rank has taken part in the sums, so it has finished the step before. On its own node that is noted already. */
    atomic_store(&k->state->finished, t->step);
    k->state->lr = lr;
    k->state->grad_scale = grad_scale;
    k->state->metrics = *m;
    k->state->skipped[(t->step + 1) & 1] = t->skipped;
    k->state->skipped_in_a_row[(t->step + 1) & 1] = t->skipped_in_a_row;
    keep_buffers(t, t->step + 1);
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
        ls__kept_undo *undo = &k->undo[r];
        int64_t block = atomic_load(&undo->block) - 1;
        if (block < 0) continue;
        if (atomic_load(&k->versions[block]) != begun)
            for (int i = 0; i < a.n; i++)
                ls__undo_restore(undo->copy, (size_t)atomic_load(&undo->copied), i,
                                 a.array[i] + (size_t)block * LS__KEPT_BLOCK);
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
    const ls__kept_state *s = t->kept->state;
    ls_loader_state at = s->first_data;
    uint64_t steps = t->epoch_steps, all = at.epoch * steps + at.step + (uint64_t)(step - s->first_step);
    at.epoch = all / steps;
    at.step = all % steps;
    return at;
}

ls_status ls__train_kept_resume(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    ls__kept_state *s = k->state;
    enum { CHUNK = 16 * LS__KEPT_BLOCK };
    ls_status status = LS_OK;
    ls__kept_point(k->job, LS__POINT_RECOVERY, t->parallel.rank);
    if (ls__kept_is_local_root(t)) restore_torn(t);
    ls__kept_point(k->job, LS__POINT_RESTORED, t->parallel.rank);
    if ((status = ls_barrier(ls_world_group(t->parallel.world)))) return status;
    int64_t begun = atomic_load(&s->marks.begun), done = atomic_load(&s->marks.done);
    if (begun > done) {
        t->step = begun - 1;
        if (ls_group_size(t->parallel.node_group) > 1)
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
    if ((status = ls__kept_nodes_agree(t))) return status;
    done = t->step = atomic_load(&s->marks.done);
    t->skipped = s->skipped[done & 1];
    t->skipped_in_a_row = s->skipped_in_a_row[done & 1];
    restore_buffers(t);
    t->best = s->best[ls__train_kept_finished(t) & 1];
    /* Another node may not have noted it before it was lost. */
    if ((status = ls_broadcast(ls_world_group(t->parallel.world), &t->best, sizeof t->best, LS_U8, 0))) return status;
    if ((status = ls__kept_rest_find(t))) return status;
    t->data_at = position_of(t, done);
    ls_loader_state next = position_of(t, done + ls__train_kept_has_rest(t));
    status = ls_loader_seek(t->loader, &next);
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
        if (ls__kept_is_local_root(t)) atomic_store(&k->job->ready, 1);
        k->recovered = true; /* that was the step of an earlier generation */
        if (!status) ls__train_kept_finish(t);
        k->recovered = false;
        return status;
    }
    if (ls__kept_is_local_root(t)) {
        ls__kept_state *s = k->state;
        keep_buffers(t, t->step);
        s->first_step = t->step;
        s->first_data = t->data_at;
        s->skipped[t->step & 1] = t->skipped;
        s->best[t->step & 1] = t->best;
        atomic_store(&s->marks.begun, t->step);
        atomic_store(&s->marks.done, t->step);
        atomic_store(&s->finished, t->step);
        atomic_store(&k->job->step, t->step);
        ls__kept_point(k->job, LS__POINT_OPENED, t->parallel.rank);
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
        "{\"generation\":%d,\"time\":%lld.%03ld,\"ranks\":%d,\"step\":%lld,\"why\":\"%s\",\"recovery_ms\":%.1f,"
        "\"kept_slots\":%d}\n",
        atomic_load(&j->generation), (long long)now.tv_sec, now.tv_nsec / 1000000, t->parallel.size, (long long)t->step,
        why, j->lost_at ? (double)(ls_now() - j->lost_at) / 1e6 : 0.0, t->kept->kept_slots);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ssize_t ignored = write(fd, line, (size_t)n);
    (void)ignored;
    close(fd);
    atomic_store(&t->kept->job->noted, 1);
}

static void finish(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    if (!ls__kept_is_local_root(t)) return;
    k->state->best[t->step & 1] = t->best;
    atomic_store(&k->job->step, t->step);
    if (!ls__train_is_first(t)) return; /* other nodes: see ls__train_kept_note_step() */
    atomic_store(&k->state->finished, t->step);
    if (!k->recovered && t->step > k->state->first_step) note_generation(t);
    k->recovered = true;
    ls__kept_point(k->job, LS__POINT_FINISHED, 0);
}

void ls__train_kept_finish(ls_train *t)
{
    if (!t->kept) return;
    bool changed = ls__train_is_first(t) && ls__train_kept_is_continued(t) && !t->kept->recovered;
    finish(t);
    if (t->kept->summed && t->kept->summed == t->step) ls__kept_rest_close(t);
    if (changed) ls__kept_trim(t->parallel.world);
}

/* ---- Other numbers of ranks. */

/* The number that `lockstep resize` left in the run folder; 0: none. The request is accepted: the file is removed. */
static int requested_ranks(const ls_train *t)
{
    char path[LS__KEPT_PATH + 32];
    char text[32] = "";
    if (!t->run.path) return 0;
    snprintf(path, sizeof path, "%s/resize", t->run.path);
    if (access(path, F_OK)) return 0;
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* nothing that is there may make the run wait */
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    bool removed = !unlink(path); /* not a folder, of which there would be a message in every step */
    int ranks = n > 0 ? (int)strtol(text, NULL, 10) : 0;
    if (n <= 0 || (!ranks && *text != '0')) {
        if (removed) ls__log(LS_LOG_WARNING, "%s: not a number of ranks; the run continues unchanged", path);
        return 0;
    }
    if (ls_world_get_info(t->parallel.world).nodes > 1) {
        ls__log(LS_LOG_WARNING, "resize: the run is on several machines; change its hostfile instead");
        return 0;
    }
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
    if (ls__train_is_first(t) && atomic_load(&k->job->change)) change += 1e6;
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
    if (k->changing) atomic_store(&k->job->change, 1); /* for the launcher of this machine */
    if (k->changing && atomic_load(&k->leave)) atomic_fetch_add(&k->job->leaving, 1);
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
    return t->kept && t->kept->changing && !t->stopping && !ls__train_is_over(t);
}

void ls__train_point(const ls_train *t, int point)
{
    if (t->kept) ls__kept_point(t->kept->job, point, t->parallel.rank);
}
