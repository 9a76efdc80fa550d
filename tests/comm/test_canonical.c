/* The canonical sum over ranks on several nodes has the bits of the sum on one. */
#include "check.h"

#include "comm/canonical.h"
#include "kern/reduce.h"
#include "kern/vector.h"

enum { MAX_P = 17, ELEMENTS = 37 };

/* How ranks are placed on nodes: in blocks, in turn, and without any order. */
static int place(int how, int rank, int p)
{
    switch (how) {
    case 0: return 0;
    case 1: return rank;
    case 2: return rank / 2;
    case 3: return rank / 3;
    case 4: return rank % 2;
    case 5: return rank % 3;
    case 6: return rank >= p - 1;
    case 7: return (rank * 7 + rank / 3) % 4;
    default: return -1;
    }
}
enum { PLACES = 8 };

static void covers_are_subtrees_of_one_machine(void **state)
{
    (void)state;
    for (int how = 0; how < PLACES; how++)
        for (int p = 1; p <= MAX_P; p++) {
            int node_of[MAX_P], at = 0;
            ls__subtree subtrees[MAX_P];
            for (int r = 0; r < p; r++) node_of[r] = place(how, r, p);
            int n = ls__canonical_subtrees(node_of, p, false, subtrees);
            for (int i = 0; i < n; i++) {
                assert_int_equal(subtrees[i].first, at);
                for (int r = at; r < at + subtrees[i].count; r++) assert_int_equal(node_of[r], subtrees[i].node);
                at += subtrees[i].count;
            }
            assert_int_equal(at, p);
            if (how == 0) assert_int_equal(n, 1);
            if (how == 2 && p % 2 == 0) assert_int_equal(n, p / 2);
            assert_int_equal(ls__canonical_subtrees(node_of, p, true, subtrees), p);
        }
}

static void steps_finish_the_tree(void **state)
{
    (void)state;
    /* 6 ranks, 3 on each of 2 nodes: tree(6) = ((01)(23))(45). */
    int node_of[] = { 0, 0, 0, 1, 1, 1 };
    ls__subtree subtrees[6];
    ls__canonical_step steps[5];
    assert_int_equal(ls__canonical_subtrees(node_of, 6, false, subtrees), 4);
    ls__canonical_steps(subtrees, 4, 6, steps);
    const int expected[3][2] = { { 1, 2 }, { 0, 1 }, { 0, 3 } };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(steps[i].left, expected[i][0]);
        assert_int_equal(steps[i].right, expected[i][1]);
    }
}

/* Values whose sum depends on the order in which they are added. */
static void fill(ls_dtype type, void *x, int rank, unsigned seed)
{
    for (int i = 0; i < ELEMENTS; i++) {
        seed = seed * 1664525u + 1013904223u;
        double v = ((double)(seed >> 8) / (1 << 24) - 0.5) * (1 << (seed >> 4) % 12) + rank * 0.001;
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        switch (type) {
        case LS_F32: ((float *)x)[i] = f; break;
        case LS_F64: ((double *)x)[i] = v; break;
        case LS_BF16: ((uint16_t *)x)[i] = (uint16_t)(bits >> 16); break;
        case LS_I32: ((int32_t *)x)[i] = (int32_t)seed; break;
        case LS_I64: ((int64_t *)x)[i] = (int64_t)seed << 31; break;
        case LS_U8: ((uint8_t *)x)[i] = (uint8_t)(seed >> 9); break;
        case LS_F16: ls__f32_to_f16((uint16_t *)x + i, &f, 1); break;
        case LS_I8: ((int8_t *)x)[i] = (int8_t)(seed >> 9); break;
        case LS_I16: ((int16_t *)x)[i] = (int16_t)(seed >> 9); break;
        case LS_BOOL: ((uint8_t *)x)[i] = seed >> 9 & 1; break;
        }
    }
}

static void compare(ls_dtype type, ls_op op, int how, int p)
{
    static double data[MAX_P][ELEMENTS], sums[MAX_P][ELEMENTS], got[ELEMENTS], expected[ELEMENTS];
    static float widened[MAX_P * ELEMENTS];
    int node_of[MAX_P];
    ls__subtree subtrees[MAX_P];
    ls__canonical_step steps[MAX_P];
    const void *in[MAX_P];
    void *partials[MAX_P], *out = expected;
    for (int r = 0; r < p; r++) {
        node_of[r] = place(how, r, p);
        fill(type, data[r], r, (unsigned)(r * 977 + how));
        in[r] = data[r];
    }
    ls__reduce_reference(type, op, &out, 1, in, p, ELEMENTS, false);
    int n = ls__canonical_subtrees(node_of, p, !ls__canonical_has_partials(type, op), subtrees);
    ls__canonical_steps(subtrees, n, p, steps);
    for (int i = 0; i < n; i++) {
        void *scratch = malloc(ls__canonical_scratch(subtrees[i].count));
        ls__canonical_partial(type, op, sums[i], in + subtrees[i].first, subtrees[i].count, ELEMENTS, scratch);
        partials[i] = sums[i];
        free(scratch);
    }
    memset(got, 0xee, sizeof got);
    ls__canonical_finish(type, op, got, partials, subtrees, n, steps, p, ELEMENTS, widened);
    if (memcmp(got, expected, ELEMENTS * ls_dtype_size(type)))
        fail_msg("%s, reduction %d, %d ranks, placed %d: other bits than the reference", ls_dtype_name(type), op, p,
                 how);
}

static void bits_are_those_of_one_machine(void **state)
{
    (void)state;
    for (int type = 0; type < LS_DTYPE_COUNT; type++)
        for (int op = 0; op < LS_OP_COUNT; op++)
            for (int how = 0; how < PLACES; how++)
                for (int p = 2; p <= MAX_P; p++) compare(type, op, how, p);
}

/* One rank per node: bfloat16 is sent as bfloat16. */
static void single_ranks_travel_in_their_own_type(void **state)
{
    (void)state;
    ls__subtree one = { .count = 1 }, two = { .count = 2 };
    assert_int_equal(ls__canonical_partial_bytes(LS_BF16, &one, 16), 32);
    assert_int_equal(ls__canonical_partial_bytes(LS_BF16, &two, 16), 64);
    assert_int_equal(ls__canonical_partial_bytes(LS_I64, &two, 16), 128);
    assert_int_equal(ls__canonical_partial_bytes(LS_BF16, &one, 1), 16); /* what comes after it is aligned */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_are_subtrees_of_one_machine),
        cmocka_unit_test(steps_finish_the_tree),
        cmocka_unit_test(bits_are_those_of_one_machine),
        cmocka_unit_test(single_ranks_travel_in_their_own_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
