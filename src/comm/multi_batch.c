/* Batches of messages between nodes. See multi.h. */
#include "comm/multi.h"

#include <stdlib.h>
#include "base/status.h"

void *ls__multi_grow(void *memory, size_t *room, size_t bytes)
{
    if (memory && bytes <= *room) return memory;
    free(memory);
    *room = (bytes / 4096 + 1) * 4096;
    memory = aligned_alloc(64, *room);
    if (!memory) ls__fail(LS_ENOMEM, "no memory for messages of %zu bytes", bytes);
    return memory;
}

ls_status ls__batch_add(ls__message_batch *b, int peer, size_t bytes, uint8_t *data, bool same)
{
    if (!bytes) return LS_OK;
    if (b->count == b->room) {
        int room = b->room ? 2 * b->room : 8;
        ls__message *list = realloc(b->list, (size_t)room * sizeof *list);
        if (!list) return ls__fail(LS_ENOMEM, "no memory for %d messages", room);
        b->list = list;
        b->room = room;
    }
    ls__message *m = &b->list[b->count++];
    *m = (ls__message){ .peer = peer, .bytes = bytes, .data = data };
    if (data) return LS_OK;
    if (same && b->count > 1) {
        m->offset = m[-1].offset;
        return LS_OK;
    }
    m->offset = b->used;
    b->used += (bytes + 63) / 64 * 64;
    return LS_OK;
}

ls_status ls__batch_place(ls__message_batch *b)
{
    if (!b->used) return LS_OK;
    b->memory = ls__multi_grow(b->memory, &b->memory_room, b->used);
    if (!b->memory) return LS_ENOMEM;
    for (int i = 0; i < b->count; i++)
        if (!b->list[i].data) b->list[i].data = b->memory + b->list[i].offset;
    return LS_OK;
}

ls_status ls__batch_send(const ls__multi *m, ls__message_batch *b, ls__tag_kind kind)
{
    ls_status status = LS_OK;
    for (int i = 0; i < b->count && !status; i++) {
        ls__message *x = &b->list[i];
        status = ls__net_send(m->cluster->net, x->data, x->bytes, x->peer, ls__multi_tag(m, kind), false, &x->request);
    }
    return status;
}

ls_status ls__batch_recv(const ls__multi *m, ls__message_batch *b, ls__tag_kind kind)
{
    ls_status status = LS_OK;
    for (int i = 0; i < b->count && !status; i++) {
        ls__message *x = &b->list[i];
        status = ls__net_recv(m->cluster->net, x->data, x->bytes, x->peer, ls__multi_tag(m, kind), &x->request);
    }
    return status;
}

bool ls__batch_done(const ls__message_batch *b)
{
    for (int i = 0; i < b->count; i++)
        if (b->list[i].request.active) return false;
    return true;
}

void ls__batch_free(ls__message_batch *b)
{
    free(b->list);
    free(b->memory);
    *b = (ls__message_batch){ 0 };
}

void ls__batch_reset(ls__message_batch *b)
{
    b->count = 0;
    b->used = 0;
}
