/* Worlds on several nodes over a carrier of the caller's, and groups that only their members open there. Ranks are threads; each has a
 * thread that carries its messages. */
#include "nodes.h"
#include "suite.h"

enum { RANKS = 8, KEYS = 256 };

/* ---- A store in this process. */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n;
    struct {
        char key[80];
        char value[2048];
    } list[KEYS];
} stored = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static ls_status set(void *user, const char *key, const void *value, size_t bytes)
{
    (void)user;
    pthread_mutex_lock(&stored.lock);
    bool fits = stored.n < KEYS && bytes <= sizeof stored.list[0].value;
    if (fits) {
        snprintf(stored.list[stored.n].key, sizeof stored.list[0].key, "%s", key);
        memcpy(stored.list[stored.n++].value, value, bytes);
        pthread_cond_broadcast(&stored.changed);
    }
    pthread_mutex_unlock(&stored.lock);
    return fits ? LS_OK : LS_EIO;
}

static ls_status get(void *user, const char *key, void *value, size_t bytes, int timeout_ms)
{
    (void)user, (void)timeout_ms;
    pthread_mutex_lock(&stored.lock);
    for (int i = 0;; i++) {
        while (i == stored.n) pthread_cond_wait(&stored.changed, &stored.lock);
        if (strcmp(stored.list[i].key, key)) continue;
        memcpy(value, stored.list[i].value, bytes);
        break;
    }
    pthread_mutex_unlock(&stored.lock);
    return LS_OK;
}

static const ls_store store = { .set = set, .get = get };

/* ---- A carrier between threads. */

typedef struct parcel {
    struct parcel *next;
    int to;
    const void *data;
    size_t bytes;
    void *message;
} parcel;

typedef struct mover {
    int rank;
    ls_network *network;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    parcel *first;
    bool ends;
} mover;

static mover movers[RANKS];
static pthread_barrier_t all_open, all_closed;
static _Atomic int lost = -1; /* no more messages from and to this rank */

static void *move(void *arg)
{
    mover *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->first && !m->ends) pthread_cond_wait(&m->changed, &m->lock);
        parcel *p = m->first;
        if (!p) break;
        m->first = p->next;
        pthread_mutex_unlock(&m->lock);
        if (p->to == lost || m->rank == lost) {
            ls_network_failed(m->network, p->to, "cable cut");
        } else {
            ls_network_received(movers[p->to].network, m->rank, p->data, p->bytes);
            ls_network_sent(m->network, p->message);
        }
        free(p);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static ls_status mover_open(void *user, ls_network *network)
{
    mover *m = user;
    m->network = network;
    pthread_barrier_wait(&all_open);
    return ls__thread_start(&m->thread, "mover", move, m);
}

static ls_status mover_send(void *user, int to, const void *data, size_t bytes, void *message)
{
    mover *m = user;
    parcel *p = malloc(sizeof *p), **link = &m->first;
    if (!p) return LS_ENOMEM;
    *p = (parcel){ .to = to, .data = data, .bytes = bytes, .message = message };
    pthread_mutex_lock(&m->lock);
    while (*link) link = &(*link)->next;
    *link = p;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return LS_OK;
}

static void mover_close(void *user, bool healthy)
{
    mover *m = user;
    (void)healthy;
    pthread_mutex_lock(&m->lock);
    m->ends = true;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_barrier_wait(&all_closed); /* until then others may bring something */
}

static ls_status open_mover(ls__net **out, int rank, int size)
{
    mover *m = &movers[rank];
    *m = (mover){ .rank = rank };
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    ls_carrier carrier = { .name = "threads", .user = m, .open = mover_open, .send = mover_send, .close = mover_close };
    return ls__net_open_store(out, &store, &carrier, rank, size);
}

static void on_carrier(const char *places, rank_fn run, void *arg)
{
    pthread_barrier_init(&all_open, NULL, (unsigned)strlen(places));
    pthread_barrier_init(&all_closed, NULL, (unsigned)strlen(places));
    stored.n = 0;
    nodes_net = open_mover;
    on_nodes(places, run, arg, (ls_world_options){ .timeout_ms = 10000 });
    pthread_barrier_destroy(&all_open);
    pthread_barrier_destroy(&all_closed);
}

/* ---- Tests. */

static int run_suite(ls_world *world, void *arg, char *why)
{
    need(ls_world_get_info(world).nodes > 1, "%d nodes", ls_world_get_info(world).nodes);
    return suite_run(world, arg, why);
}

static void collectives_over_a_carrier(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 50011, SIZE_MAX };
    static const char *const places[] = { "01", "0011", "01201" };
    for (int i = 0; i < 3; i++) on_carrier(places[i], run_suite, &(suite_options){ .counts = sizes, .quick = 1 });
}

static int open_groups(ls_world *world, void *arg, char *why)
{
    static const int members[][3] = { { 2, 0, -1 }, { 0, 1, 3 }, { 3, 2, -1 } };
    int me = ls_world_rank(world);
    ls_group *groups[3] = { NULL };
    (void)arg;
    for (int i = 0; i < 3; i++) {
        int n = members[i][2] < 0 ? 2 : 3, place = -1;
        for (int k = 0; k < n; k++)
            if (members[i][k] == me) place = k;
        if (place < 0) continue;
        char key[16];
        snprintf(key, sizeof key, "group%d", i);
        need_ok(ls_group_open(world, members[i], n, &store, key, &groups[i]));
        need(ls_group_size(groups[i]) == n && ls_group_rank(groups[i]) == place, "rank %d: group %d is wrong", me, i);
    }
    for (int times = 0; times < 3; times++)
        for (int i = 0; i < 3; i++) {
            if (!groups[i]) continue;
            int n = ls_group_size(groups[i]);
            int64_t x[2000], sum = 0;
            for (int k = 0; k < n; k++) sum += 1 << members[i][k];
            for (int k = 0; k < 2000; k++) x[k] = 1 << me;
            need_ok(ls_allreduce(groups[i], x, 2000, LS_I64, LS_SUM));
            need(x[0] == sum && x[1999] == sum, "rank %d: group %d: %lld, not %lld", me, i, (long long)x[1999],
                 (long long)sum);
        }
    for (int i = 0; i < 3; i++) ls_group_free(&groups[i]);
    need_ok(ls_barrier(ls_world_group(world)));
    return 0;
}

static void members_open_groups_on_several_nodes(void **state)
{
    (void)state;
    on_carrier("0011", open_groups, NULL);
    on_carrier("0101", open_groups, NULL);
}

static int lose(ls_world *world, void *arg, char *why)
{
    ls_group *g = ls_world_group(world);
    (void)arg;
    int64_t x = 1;
    ls_status status = LS_OK;
    need_ok(ls_barrier(g));
    for (int i = 0; i < 10 && !status; i++) {
        status = ls_allreduce(g, &x, 1, LS_I64, LS_SUM);
        /* Rank 1 has left the barrier if it took part in this. */
        if (ls_world_rank(world) == 0) lost = 1;
    }
    need(status, "rank %d: all calls succeeded", ls_world_rank(world));
    if (ls_world_rank(world) == 0)
        need(strstr(ls_error(), "the connection to rank 1 is lost: cable cut"), "%s", ls_error());
    return 0;
}

static void a_lost_connection_is_named(void **state)
{
    (void)state;
    on_carrier("01", lose, NULL);
    lost = -1;
}

static void bad_arguments(void **state)
{
    (void)state;
    ls_world *world;
    ls_carrier half = { .open = mover_open };
    check_fails(ls_world_open(&world, &(ls_world_options){ .store = &store, .size = 2, .carrier = &half }), LS_EINVAL,
                "carrier with open, send and close");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_over_a_carrier),
        cmocka_unit_test(members_open_groups_on_several_nodes),
        cmocka_unit_test(a_lost_connection_is_named),
        cmocka_unit_test(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
