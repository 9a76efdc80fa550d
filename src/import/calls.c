/* See calls.h. */
#include "import/calls.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool ls__argument(const ls__trace_event *e, const char *key, ls__text *out)
{
    return e->args.bytes && ls__scan_find(e->args.at, e->args.at + e->args.bytes, key, out);
}

/* Numbers of a text like "[0, 1, 5]". */
static void read_ranks(ls__text text, uint32_t **ranks, uint32_t *count)
{
    const char *p = text.at, *end = text.at + text.bytes;
    uint32_t room = 0;
    *ranks = NULL;
    *count = 0;
    for (; p < end; p++) {
        if (!isdigit((unsigned char)*p)) continue;
        uint64_t value = 0;
        for (; p < end && isdigit((unsigned char)*p); p++)
            if (value < 1 << 24) value = value * 10 + (uint64_t)(*p - '0');
        if (*count == room) {
            room = room ? 2 * room : 8;
            uint32_t *more = reallocarray(*ranks, room, sizeof *more);
            if (!more) return;
            *ranks = more;
        }
        (*ranks)[(*count)++] = (uint32_t)value;
    }
}

/* A group by its name and ranks; UINT32_MAX: out of memory. */
uint32_t ls__group_of(ls__trace *t, ls__text name, ls__text ranks)
{
    uint64_t key = XXH3_64bits_withSeed(name.at ? name.at : "", name.bytes, 1);
    uint32_t *list = NULL, count = 0;
    if (ranks.bytes) read_ranks(ranks, &list, &count);
    if (count) key = XXH3_64bits_withSeed(list, count * sizeof *list, key);
    if (!key) key = 1;
    for (size_t i = 0; i < t->groups.count; i++)
        if (t->groups.at[i].key == key) {
            free(list);
            return (uint32_t)i;
        }
    ls__trace_group g = {
        .name = strndup(name.at ? name.at : "", name.bytes), .ranks = list, .count = count, .key = key
    };
    if (!g.name || !LS__ADD(&t->groups, g)) {
        free(g.name);
        free(list);
        return UINT32_MAX;
    }
    return (uint32_t)t->groups.count - 1;
}

/* "[0, ..., 7]" is how long lists are cut: then only the number of ranks is sure. */
bool ls__ranks_are_cut(ls__text ranks)
{
    return ls__text_contains(ranks, "...");
}

/* Reads the arguments of record_param_comms or of an NCCL kernel. False: it is not a collective that counts. */
bool ls__call_read(ls__trace *t, const ls__trace_event *e, ls__call *call)
{
    ls__text text, ranks = { 0 };
    int64_t in = 0, out = 0, size = 0;
    bool sends;
    if (!ls__argument(e, "Collective name", &text)) return true; /* older versions: no arguments */
    int kind = ls__collective_of(text, &sends);
    if (kind < 0) return false; /* "wait", "init" ... */
    call->kind = (uint8_t)kind;
    call->sends = sends;
    if (ls__argument(e, "In msg nelems", &text)) ls__text_integer(text, &in);
    if (ls__argument(e, "Out msg nelems", &text)) ls__text_integer(text, &out);
    if (ls__argument(e, "dtype", &text)) size = ls__dtype_bytes(text);
    int64_t most = in > 0 ? in : out;
    call->bytes = most > 0 && most < INT64_MAX / 32 ? most * size : 0;
    if (ls__argument(e, "Seq", &text) && !ls__text_integer(text, &call->sequence)) call->sequence = -1;
    ls__text name = { 0 };
    if (ls__argument(e, "Process Group Name", &text))
        name = text;
    else if (ls__argument(e, "Process Group ID", &text))
        name = text;
    if (ls__argument(e, "Process Group Ranks", &text) && !ls__ranks_are_cut(text)) ranks = text;
    call->group = ls__group_of(t, name, ranks);
    if (call->group == UINT32_MAX) return false;
    ls__trace_group *g = &t->groups.at[call->group];
    if (!g->count && ls__argument(e, "Group size", &text) && ls__text_integer(text, &size) && size > 0 &&
        size <= 1 << 16)
        g->count = (uint32_t)size;
    return true;
}

/* Where shapes were recorded: of the first two arguments, which are the outputs and inputs, or both in one, the inputs' size. Outputs are
 * the larger ones if blocks are gathered, and else the smaller ones, if any. */
int64_t ls__call_bytes(const ls__trace_event *e, int kind)
{
    bool gathers = kind == LS_COLLECTIVE_ALLGATHER || kind == LS_COLLECTIVE_GATHER;
    ls__text dims, types;
    int64_t size = 0, most = 0, sum = 0, product = 1;
    int depth = 0, seen = 0;
    bool some = false;
    if (!ls__argument(e, "Input Dims", &dims) || !ls__argument(e, "Input type", &types)) return 0;
    for (const char *p = types.at, *end = p + types.bytes; p < end && !size; p++) {
        ls__text type;
        if (*p != '"' || !(p = ls__scan_string(p + 1, end, &type))) continue;
        size = ls__dtype_bytes(type);
        p--;
    }
    for (const char *p = dims.at, *end = p + dims.bytes; p < end && seen < 2; p++) {
        if (*p == '[') {
            depth++;
            product = 1;
            some = false;
        } else if (*p == ']') {
            if (some) sum += product;
            some = false;
            if (--depth == 1) { /* an argument ends */
                if (!most || (sum && (gathers ? sum < most : sum > most))) most = sum;
                sum = 0;
                seen++;
            }
        } else if (isdigit((unsigned char)*p)) {
            int64_t value = 0;
            for (; p < end && isdigit((unsigned char)*p); p++)
                if (value < INT64_C(1) << 40) value = value * 10 + (*p - '0');
            p--;
            if (__builtin_mul_overflow(product, value, &product) || product > INT64_C(1) << 50) return 0;
            some = true;
        }
    }
    return most < INT64_MAX / 16 ? most * (size ? size : 4) : 0;
}
