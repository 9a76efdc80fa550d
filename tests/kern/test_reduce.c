/* Every version of the reduce that this CPU runs against the reference: types, operations, lengths, alignments, numbers
 * of inputs and outputs, in place and not, streamed and not. All comparisons are of bits. */
#include <math.h>
#include "kern/reduce.h"
#include "kern/table.h"
#include "kern/values.h"

enum { MAX_P = 520, ROOM = 300032 }; /* ROOM: a multiple of 64 */

static const char *const op_names[LS_OP_COUNT] = { "sum", "mean", "min", "max", "prod", "and", "or", "xor" };

typedef struct problem {
    ls_dtype type;
    ls_op op;
    int p, outs;
    size_t count;
    size_t shift;  /* elements by which buffers are off a 64-byte boundary, each by another amount */
    bool in_place; /* output k is input k */
    bool stream;
} problem;

static uint8_t *buffers[2 * MAX_P]; /* inputs, then outputs */

static uint8_t *buffer(int i)
{
    if (!buffers[i]) buffers[i] = aligned_alloc(64, ROOM);
    return buffers[i];
}

/* Element 0 of buffer i, off the boundary by shift and by i, but never off the element. */
static void *place(const problem *q, int i)
{
    return buffer(i) + (q->shift ? (q->shift + (size_t)i) % 16 : 0) * ls_dtype_size(q->type);
}

static void solve(const problem *q, const ls__kernels *k, const void *const *saved, uint8_t *result)
{
    void *in[MAX_P], *out[MAX_P];
    size_t size = ls_dtype_size(q->type), bytes = q->count * size;
    for (int i = 0; i < q->p; i++) {
        in[i] = place(q, i);
        memcpy(in[i], saved[i], bytes);
    }
    for (int i = 0; i < q->outs; i++) {
        out[i] = q->in_place ? in[i] : place(q, MAX_P + i);
        if (!q->in_place) memset(out[i], 0xa5, bytes + 64);
    }
    if (k)
        k->reduce[q->type](q->op, out, q->outs, (const void *const *)in, q->p, q->count, q->stream);
    else
        ls__reduce_reference(q->type, q->op, out, q->outs, (const void *const *)in, q->p, q->count, q->stream);
    char where[160];
    snprintf(where, sizeof where, "%s %s %s p %d outs %d shift %zu%s%s", k ? k->name : "reference",
             ls_dtype_name(q->type), op_names[q->op], q->p, q->outs, q->shift, q->in_place ? " in place" : "",
             q->stream ? " streamed" : "");
    if (!k && q->outs) memcpy(result, out[0], bytes);
    for (int i = 0; i < q->outs; i++) {
        check_same_bits(out[i], result, q->count, size, where);
        if (!q->in_place) /* nothing after the end was touched */
            for (size_t b = 0; b < 64; b++) assert_int_equal(((uint8_t *)out[i])[bytes + b], 0xa5);
    }
    for (int i = q->in_place ? q->outs : 0; i < q->p; i++) check_same_bits(in[i], saved[i], q->count, size, where);
}

/* The reference and all versions, on the same inputs. */
static void check_with(const problem *q, const void *const *saved)
{
    static uint8_t result[ROOM];
    solve(q, NULL, saved, result);
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++) solve(q, k, saved, result);
}

static void check(problem q)
{
    static uint8_t *saved[MAX_P];
    for (int i = 0; i < q.p; i++) {
        if (!saved[i]) saved[i] = aligned_alloc(64, ROOM);
        fill_numbers(q.type, saved[i], q.count);
    }
    check_with(&q, (const void *const *)saved);
}

static void every_type_and_op_at_odd_lengths_and_alignments(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 1023, 1024, 1025, 2500 };
    static const int ps[] = { 1, 2, 3, 4, 5, 8, 11 };
    for (ls_dtype type = 0; type < LS_DTYPE_COUNT; type++)
        for (ls_op op = 0; op < LS_OP_COUNT; op++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (size_t i = 0; i < sizeof ps / sizeof *ps; i++) {
                    problem q = { .type = type, .op = op, .p = ps[i], .outs = ps[i], .count = counts[c] };
                    q.shift = random_bits() % 16;
                    q.in_place = random_bits() & 1;
                    q.stream = random_bits() & 1;
                    check(q);
                }
}

static void every_number_of_inputs_and_outputs(void **state)
{
    (void)state;
    for (int p = 1; p <= 20; p++)
        for (int outs = 0; outs <= p; outs++)
            for (int way = 0; way < 4; way++) {
                check((problem){ LS_F32, LS_SUM, p, outs, 77, 3, way & 1, way & 2 });
                check((problem){ LS_BF16, LS_MEAN, p, outs, 77, 5, way & 1, way & 2 });
                check((problem){ LS_F16, LS_SUM, p, outs, 77, 5, way & 1, way & 2 });
            }
    static const int many[] = { 31, 33, 64, 100, 127, 128, 255, 256, 257, 511, 512 };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        for (ls_dtype type = 0; type < LS_DTYPE_COUNT; type++) {
            check((problem){ type, LS_SUM, many[i], many[i], 50, 1, true, false });
            check((problem){ type, LS_MEAN, many[i], 1, 1100, 0, false, true });
        }
}

/* Long enough for every loop, also for those that work at several places at a time, and a remainder. */
static void long_arrays(void **state)
{
    (void)state;
    for (ls_dtype type = 0; type < LS_DTYPE_COUNT; type++)
        for (int p = 2; p <= 5; p++)
            for (int way = 0; way < 4; way++) {
                size_t count = 36000 / ls_dtype_size(type) + 5;
                check((problem){ type, LS_SUM, p, way & 1 ? p : 1, count, 3, way & 2, false });
                check((problem){ type, LS_MEAN, p, way & 1 ? p : 1, 3 * count, 0, way & 2, false });
            }
}

/* An output that is another input than its own number. */
static void outputs_may_be_inputs_in_any_order(void **state)
{
    (void)state;
    static float a[3][1500], expected[1500];
    for (int p = 2; p <= 3; p++) {
        const void *in[3] = { a[0], a[1], a[2] };
        void *reference_out[1] = { expected }, *out[2] = { a[1], a[0] };
        const ls__kernels *k;
        for (int v = 0; (k = ls__kernels_at(v)); v++) {
            for (int i = 0; i < 3; i++) fill_numbers(LS_F32, a[i], 1500);
            ls__reduce_reference(LS_F32, LS_SUM, reference_out, 1, in, p, 1500, false);
            k->reduce[LS_F32](LS_SUM, out, 2, in, p, 1500, true);
            check_same_bits(a[0], expected, 1500, 4, k->name);
            check_same_bits(a[1], expected, 1500, 4, k->name);
        }
    }
}

/* Infinities, denormals, both zeros, the largest numbers; and a NaN in at most one input, as its payload then has but
 * one way to go. */
static void special_values_give_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t f32[] = { 0x7f800000, 0xff800000, 1,          0x80000001, 0x807fffff, 0,
                                    0x80000000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0x00800000, 0xbf800001 };
    static const uint32_t nans[] = { 0x7fc00000, 0xffc12345, 0x7f800001, 0x7fffffff, 0xff80ffff };
    static uint32_t bits[8][400];
    static uint64_t wide[8][400];
    static uint16_t half[8][400];
    for (int p = 2; p <= 8; p++)
        for (ls_op op = 0; op < LS_OP_COUNT; op++) {
            const void *a[8], *b[8], *c[8];
            for (int r = 0; r < p; r++) {
                for (size_t i = 0; i < 400; i++) {
                    bits[r][i] = f32[random_bits() % (sizeof f32 / sizeof *f32)];
                    /* One NaN, and no infinities besides: their difference would be another NaN. */
                    if (i % 2)
                        bits[r][i] = (int)(i / 2) % p == r ? nans[random_bits() % 5] : f32[2 + random_bits() % 5];
                    half[r][i] = (uint16_t)(bits[r][i] >> 16);
                    float f;
                    memcpy(&f, &bits[r][i], sizeof f);
                    double d = f;
                    memcpy(&wide[r][i], &d, sizeof d);
                }
                a[r] = bits[r], b[r] = wide[r], c[r] = half[r];
            }
            check_with(&(problem){ LS_F32, op, p, p, 400, 1, true, false }, a);
            check_with(&(problem){ LS_F64, op, p, p, 400, 1, false, true }, b);
            check_with(&(problem){ LS_BF16, op, p, p, 400, 1, true, false }, c);
        }
}

static void the_documented_cases(void **state)
{
    (void)state;
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++) {
        int32_t i32[2][1] = { { INT32_MAX }, { 1 } };
        int64_t i64[2][1] = { { INT64_MAX }, { INT64_MAX } };
        uint8_t u8[3][1] = { { 200 }, { 100 }, { 1 } };
        int32_t minus[3][1] = { { -5 }, { -2 }, { -1 } };
        float zeros[2][1] = { { 0.0f }, { -0.0f } }, nan[3][1] = { { 1 }, { NAN }, { 2 } };
#define REDUCE(type, op, p, x, result)                                                                              \
    k->reduce[type](op, (void *[]){ result }, 1, (const void *[]){ (x)[0], (x)[1], (p) > 2 ? (x)[2] : NULL }, p, 1, \
                    false)
        REDUCE(LS_I32, LS_SUM, 2, i32, i32[0]);
        assert_int_equal(i32[0][0], INT32_MIN); /* wraps */
        REDUCE(LS_I64, LS_MEAN, 2, i64, i64[0]);
        assert_true(i64[0][0] == INT64_MAX); /* a mean does not overflow */
        uint8_t sum;
        REDUCE(LS_U8, LS_SUM, 3, u8, &sum);
        assert_int_equal(sum, 301 - 256);
        REDUCE(LS_U8, LS_MEAN, 3, u8, &sum);
        assert_int_equal(sum, 100);
        REDUCE(LS_U8, LS_PROD, 3, u8, &sum);
        assert_int_equal(sum, 200 * 100 % 256);
        REDUCE(LS_I32, LS_MEAN, 3, minus, minus[0]);
        assert_int_equal(minus[0][0], -2); /* -8 / 3, towards zero */
        float f;
        REDUCE(LS_F32, LS_MIN, 2, zeros, &f);
        assert_false(signbit(f)); /* the first of equals */
        REDUCE(LS_F32, LS_MAX, 2, zeros, &f);
        assert_false(signbit(f));
        REDUCE(LS_F32, LS_MIN, 3, nan, &f);
        assert_true(isnan(f));
        REDUCE(LS_F32, LS_MAX, 3, nan, &f);
        assert_true(isnan(f));
#undef REDUCE
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_op_at_odd_lengths_and_alignments),
        cmocka_unit_test(every_number_of_inputs_and_outputs),
        cmocka_unit_test(long_arrays),
        cmocka_unit_test(outputs_may_be_inputs_in_any_order),
        cmocka_unit_test(special_values_give_the_same_bits),
        cmocka_unit_test(the_documented_cases),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 2 * MAX_P; i++) free(buffers[i]);
    return failed;
}
