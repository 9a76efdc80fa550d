/* Compares digests first, which is cheap, and names only where they differ. See verify.h. */
#include "ddp/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/status.h"
#include "comm/private.h"

/* What a message reports of a parameter that differs. */
typedef struct shown {
    char name[112];
    uint64_t count, digest;
} shown;

/* The first index at which digests differ between any two ranks; n if none does. The same on all ranks. */
static ls_status first_difference(ls_group *g, const uint64_t *digests, size_t n, size_t *at)
{
    uint64_t *first = malloc((n + 1) * sizeof *first); /* rank 0's */
    if (!first) return ls__fail(LS_ENOMEM, "verify: out of memory");
    memcpy(first, digests, n * sizeof *first);
    ls_status status = ls_broadcast(g, first, n, LS_I64, 0);
    int64_t i = 0;
    while (!status && i < (int64_t)n && first[i] == digests[i]) i++;
    free(first);
    if (!status) status = ls_allreduce(g, &i, 1, LS_I64, LS_MIN);
    *at = (size_t)i;
    return status;
}

/* All ranks' descriptions of a parameter, and the first rank whose description differs from rank 0's. */
static ls_status show_difference(ls_group *g, const shown *mine, shown **all, int *other)
{
    int p = ls_group_size(g);
    *all = malloc((size_t)p * sizeof **all);
    if (!*all) return ls__fail(LS_ENOMEM, "verify: out of memory");
    ls_status status = ls_allgather(g, mine, *all, sizeof *mine, LS_U8);
    *other = 0;
    for (int r = 1; r < p && !status && !*other; r++)
        if (memcmp(&(*all)[0], &(*all)[r], sizeof(shown))) *other = r;
    return status;
}

/* A failed rank's status and message. */
typedef struct failure {
    int32_t status;
    char text[1000];
} failure;

ls_status ls__verify_success(ls_world *world, ls_status own)
{
    ls_group *g = ls_world_group(world);
    int rank = ls_world_rank(world), size = ls_world_size(world);
    failure f = { .status = own };
    if (own) snprintf(f.text, sizeof f.text, "%s", ls_error());
    int64_t first = own ? rank : size;
    ls_status status = ls_allreduce(g, &first, 1, LS_I64, LS_MIN);
    if (status || first == size) return status;
    failure theirs = f;
    status = ls_broadcast(g, &theirs, sizeof theirs, LS_U8, (int)first);
    if (status) return status;
    if (own) return ls__fail(own, "%s", f.text);
    return ls__fail((ls_status)theirs.status, "rank %lld: %s", (long long)first, theirs.text);
}

/* Ranks have different numbers of parameters. */
static ls_status show_numbers(ls_world *world, int64_t n)
{
    int rank = ls_world_rank(world), other = 0;
    int64_t *all = malloc((size_t)ls_world_size(world) * sizeof *all);
    if (!all) return ls__fail(LS_ENOMEM, "verify: out of memory");
    ls_status status = ls_allgather(ls_world_group(world), &n, all, 1, LS_I64);
    while (!status && all[other] == n) other++; /* there is one */
    if (!status)
        status = ls__fail(LS_EMISMATCH,
                          "rank %d has %lld parameters, but rank %d has %lld: all ranks must train the same model",
                          rank, (long long)n, other, (long long)all[other]);
    free(all);
    return status;
}

ls_status ls__verify_spans(ls_world *world, const char *const *names, const size_t *counts, size_t n)
{
    ls_group *g = ls_world_group(world);
    int64_t range[2] = { (int64_t)n, -(int64_t)n };
    uint64_t *digests = NULL;
    shown *all = NULL;
    size_t at = n;
    int other = 0;
    ls_status status = ls_allreduce(g, range, 2, LS_I64, LS_MAX);
    if (status) return status;
    if (range[0] != -range[1]) return show_numbers(world, (int64_t)n);
    digests = malloc((n + 1) * sizeof *digests);
    if (!digests) return ls__fail(LS_ENOMEM, "verify: out of memory");
    for (size_t i = 0; i < n; i++) digests[i] = XXH3_64bits_withSeed(names[i], strlen(names[i]), counts[i]);
    status = first_difference(g, digests, n, &at);
    if (status || at == n) goto done;
    shown mine = { .count = counts[at] };
    snprintf(mine.name, sizeof mine.name, "%s", names[at]);
    status = show_difference(g, &mine, &all, &other);
    if (status) goto done;
    status =
        ls__fail(LS_EMISMATCH,
                 "parameter %zu is '%s' with %llu elements on rank 0, but '%s' with %llu on rank %d: all ranks must "
                 "train the same model",
                 at, all[0].name, (unsigned long long)all[0].count, all[other].name,
                 (unsigned long long)all[other].count, other);
done:
    free(digests);
    free(all);
    return status;
}

ls_status ls__verify_options(ls_world *world, const ls_ddp_options *o)
{
    ls_group *g = ls_world_group(world);
    const struct {
        const char *name;
        int64_t value;
    } mine[] = {
        { "bucket_bytes", (int64_t)o->bucket_bytes },
        { "first_bucket_bytes", (int64_t)o->first_bucket_bytes },
        { "slots", o->slots },
        { "sum_order", o->sum_order },
        { "wire", o->wire },
        { "grads_averaged", o->grads_averaged },
        { "keep_sums", o->keep_sums },
        { "fixed_order", o->fixed_order },
        { "reduce_to_local_root", o->reduce_to_local_root },
        { "no_overlap", o->no_overlap },
        { "n_buffers", (int64_t)o->n_buffers },
        { "buffer_mode", o->buffer_mode },
        { "hook.start", o->hook.start != NULL },
        { "hook.finish", o->hook.finish != NULL },
    };
    enum { N = sizeof mine / sizeof *mine };
    int64_t both[2 * N];
    for (int i = 0; i < N; i++) both[i] = mine[i].value, both[N + i] = -mine[i].value;
    ls_status status = ls_allreduce(g, both, 2 * (size_t)N, LS_I64, LS_MAX);
    for (int i = 0; i < N && !status; i++)
        if (both[i] != -both[N + i])
            status = ls__fail(LS_EMISMATCH,
                              "option %s is %lld on this rank, and from %lld to %lld over the ranks: pass "
                              "the same options on all ranks",
                              mine[i].name, (long long)mine[i].value, (long long)-both[N + i], (long long)both[i]);
    return status;
}

ls_status ls__verify_named(const char *what, const ls_named *named, size_t n)
{
    if (n && !named) return ls__fail(LS_EINVAL, "%s must not be NULL for a count of %zu", what, n);
    for (size_t i = 0; i < n; i++)
        if (named[i].count && !named[i].data)
            return ls__fail(LS_EINVAL, "%s: '%s' (number %zu): data must not be NULL for a count of %zu", what,
                            named[i].name ? named[i].name : "no name", i, named[i].count);
    return LS_OK;
}

ls_status ls_params_broadcast(ls_world *world, const ls_named *params, size_t n, int root)
{
    LS__NEED(world, "world");
    ls_status status = ls__verify_named("ls_params_broadcast: params", params, n); /* all, before any is sent */
    for (size_t i = 0; i < n && !status; i++)
        status = ls_broadcast(ls_world_group(world), params[i].data, params[i].count, LS_F32, root);
    return status;
}

ls_status ls_params_verify(ls_world *world, const ls_named *params, size_t n)
{
    LS__NEED(world, "world");
    ls_status status = ls__verify_named("ls_params_verify: params", params, n);
    if (status) return status;
    ls_group *g = ls_world_group(world);
    uint64_t *digests = malloc((n + 1) * sizeof *digests);
    shown *all = NULL;
    size_t at = n;
    int other = 0;
    if (!digests) return ls__fail(LS_ENOMEM, "verify: out of memory");
    for (size_t i = 0; i < n; i++)
        digests[i] = XXH3_64bits_withSeed(params[i].data, params[i].count * sizeof(float), params[i].count);
    ls__caller before = ls__group_begin_call(g, LS__CALLER_PARAMS_VERIFY);
    status = first_difference(g, digests, n, &at);
    if (status || at == n) goto done;
    shown mine = { .digest = digests[at] };
    status = show_difference(g, &mine, &all, &other);
    if (!status)
        status = ls__fail(LS_EMISMATCH,
                          "parameter '%s' has other values on rank %d than on rank 0; start from the same seed or "
                          "file, or broadcast them first",
                          params[at].name, other);
done:
    ls__group_end_call(g, before);
    free(digests);
    free(all);
    return status;
}
