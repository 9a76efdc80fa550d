/* Elastic runs on several nodes. See kept_parts.h.
 *
 * Each node has all of the state, in its own kept memory, and updates it by itself from the same sums. When a generation begins,
 * every node that has a state has made it that of the end of a step; these steps differ by one at most, if the update was under way
 * on some. Nodes that are behind, or have nothing because they are new, get the state of the one that is furthest, over the
 * network. So no step is lost that a node has made.
 *
 * Nodes at the same step must have the same bits: checksums are compared. One that differs from the others gets their state; if it
 * cannot be known which is right, the run ends. While a node receives the state it has none, so that it is not believed if that is
 * interrupted. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/log.h"
#include "base/status.h"
#include "comm/private.h"
#include "train/kept_parts.h"

/* ---- What the first generation has decided. */

typedef struct decided {
    int32_t ready, slots, torch_ranks;
    char run_dir[LS__KEPT_PATH];
} decided;

ls_status ls__kept_nodes_join(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    int size = t->parallel.size;
    if (ls_world_get_info(t->parallel.world).nodes == 1) return LS_OK;
    decided *mine = calloc(1, sizeof *mine), *all = malloc((size_t)size * sizeof *all), *from = NULL;
    ls_status status = mine && all ? LS_OK : ls__fail(LS_ENOMEM, "train: out of memory");
    if (mine) {
        mine->ready = k->own_ready;
        mine->slots = atomic_load(&k->job->slots);
        mine->torch_ranks = atomic_load(&k->job->torch_ranks);
        memcpy(mine->run_dir, k->job->run_dir, sizeof mine->run_dir - 1);
    }
    if (!status) status = ls_allgather(ls_world_group(t->parallel.world), mine, all, sizeof *mine, LS_U8);
    /* All of it from one node: one that has a state, or else one that knows something. */
    for (int pass = 0; pass < 2 && !status && !from; pass++)
        for (int r = 0; r < size && !from; r++)
            if (pass ? all[r].slots != 0 : all[r].ready != 0) from = &all[r];
    if (from) {
        k->ready = from->ready;
        if (ls__kept_is_local_root(t) && !k->own_ready) {
            from->run_dir[LS__KEPT_PATH - 1] = 0;
            atomic_store(&k->job->slots, from->slots);
            atomic_store(&k->job->torch_ranks, from->torch_ranks);
            memcpy(k->job->run_dir, from->run_dir, LS__KEPT_PATH);
        }
    }
    free(mine);
    free(all);
    /* The other ranks of the node read it. */
    return status ? status : ls_barrier(t->parallel.node_group);
}

/* ---- One state. */

typedef struct claim {
    int64_t is_root; /* a local root; the others claim nothing */
    int64_t done;    /* -1: none */
    uint64_t hash;
} claim;

static uint64_t hash_state(const ls_train *t)
{
    const struct ls__train_kept *k = t->kept;
    const ls__kept_state *s = k->state;
    uint64_t h = XXH3_64bits(k->values, (size_t)s->elements * sizeof(float));
    h = XXH3_64bits_withSeed(k->optimizer, (size_t)s->state_floats * sizeof(float), h);
    if (s->buffers) h = XXH3_64bits_withSeed(k->buffers[t->step % 2], (size_t)s->buffers * sizeof(float), h);
    return h;
}

/* The rank whose state counts: at the furthest step, that of most nodes. -1: as many nodes have another. */
static int choose(const claim *all, int n)
{
    int best = -1, most = 0;
    bool tie = false;
    int64_t done = -1;
    for (int r = 0; r < n; r++)
        if (all[r].done > done) done = all[r].done;
    for (int r = 0; r < n; r++) {
        if (all[r].done != done) continue;
        int votes = 0;
        for (int q = 0; q < n; q++) votes += all[q].done == done && all[q].hash == all[r].hash;
        if (votes > most) {
            best = r;
            most = votes;
            tie = false;
        } else if (votes == most && all[r].hash != all[best].hash) {
            tie = true;
        }
    }
    return tie ? -1 : best;
}

/* The state goes from the first rank of the group to the others. */
static ls_status send_state(ls_train *t, ls_group *group)
{
    struct ls__train_kept *k = t->kept;
    ls__kept_state *s = k->state;
    bool receives = ls_group_rank(group) != 0;
    int32_t slots = s->undo_slots;
    if (receives) atomic_store(&k->job->ready, 0);
    ls_status status = ls_broadcast(group, s, sizeof *s, LS_U8, 0);
    if (!status) status = ls_broadcast(group, k->values, (size_t)s->elements, LS_F32, 0);
    if (!status) status = ls_broadcast(group, k->optimizer, (size_t)s->state_floats, LS_F32, 0);
    for (int i = 0; i < 2 && s->buffers && !status; i++)
        status = ls_broadcast(group, k->buffers[i], (size_t)s->buffers, LS_F32, 0);
    if (!receives) return status;
    int64_t done = atomic_load(&s->marks.done);
    s->undo_slots = slots;
    atomic_store(&s->marks.begun, done);
    for (size_t b = 0; b < ls__kept_blocks((size_t)s->elements); b++) atomic_store(&k->versions[b], done);
    for (int i = 0; i < slots; i++) atomic_store(&k->undo[i].block, 0);
    return status;
}

ls_status ls__kept_nodes_agree(ls_train *t)
{
    struct ls__train_kept *k = t->kept;
    ls_group *world = ls_world_group(t->parallel.world), *group = NULL;
    int size = t->parallel.size, source, behind = 0, other = 0;
    if (ls_world_get_info(t->parallel.world).nodes == 1) return LS_OK;
    claim mine = { .is_root = ls__kept_is_local_root(t), .done = -1 }, *all = malloc((size_t)size * sizeof *all);
    if (mine.is_root && k->own_ready) {
        mine.done = atomic_load(&k->state->marks.done);
        mine.hash = hash_state(t);
    }
    ls_status status =
        all ? ls_allgather(world, &mine, all, sizeof mine, LS_U8) : ls__fail(LS_ENOMEM, "train: out of memory");
    if (status) {
        free(all);
        return status;
    }
    source = choose(all, size);
    for (int r = 0; r < size && source >= 0; r++) {
        bool differs = all[r].done == all[source].done && all[r].hash != all[source].hash;
        behind += all[r].is_root && (differs || all[r].done != all[source].done);
        other += differs;
    }
    if (source < 0)
        status =
            ls__fail(LS_EMISMATCH,
                     "elastic: machines have different weights after the same step, and no majority says which are "
                     "right; resume the run from its last checkpoint");
    else if (other && ls__train_is_first(t))
        ls__log(LS_LOG_WARNING, "elastic: %d machine%s had other weights after step %lld than most; replaced by theirs",
                other, other == 1 ? "" : "s", (long long)all[source].done);
    if (!status && behind) {
        bool takes_part = mine.is_root && (t->parallel.rank == source || mine.done != all[source].done ||
                                           mine.hash != all[source].hash);
        status = ls_group_split(world, takes_part ? 0 : -1, t->parallel.rank == source ? -1 : t->parallel.rank, &group);
        if (!status && group) status = send_state(t, group);
        ls_group_free(&group);
    }
    free(all);
    /* Whether the last step's metrics are written, the first rank knows best; and all ranks must do the same about it. */
    int64_t finished = atomic_load(&k->state->finished);
    if (!status) status = ls_barrier(world);
    if (!status) status = ls_broadcast(world, &finished, 1, LS_I64, 0);
    if (!status && mine.is_root) atomic_store(&k->state->finished, finished);
    return status ? status : ls_barrier(world);
}
