/* Matrix products: every element is one chain of fused multiply-adds, bit for bit, with every table that this CPU can run
 * and any number of threads. */
#include <math.h>
#include <omp.h>
#include "check.h"
#include "kern/float_mode.h"
#include "kern/fma.h"
#include "kern/gemm.h"
#include "kern/select.h"

static uint32_t state_of_random = 1;

static uint32_t random_u32(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return state_of_random ^ state_of_random >> 16;
}

static float random_float(void)
{
    return (float)(int32_t)random_u32() * 0x1p-31f;
}

static float *random_array(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = random_float();
    return x;
}

/* ---- The plain fused multiply-add. */

static void check_fma(float a, float b, float c)
{
    float expected = fmaf(a, b, c), got = ls__fma(a, b, c);
    uint32_t e, g;
    memcpy(&e, &expected, 4);
    memcpy(&g, &got, 4);
    if (e != g && !(isnan(expected) && isnan(got)))
        fail_msg("%a * %a + %a is %a, expected %a", (double)a, (double)b, (double)c, (double)got, (double)expected);
}

static void plain_fma_is_fmaf(void **state)
{
    (void)state;
    static const float special[] = { 0.0f,      -0.0f,      1.0f,      -1.0f,         INFINITY,         -INFINITY,
                                     NAN,       0x1p-126f,  0x1p-149f, -0x1p-149f,    0x1p127f,         0x1.fffffep127f,
                                     0x1p-75f,  0x1.8p-75f, 0x1p-63f,  0x1.000002p0f, 0x1.fffffep-127f, 0x1p-24f,
                                     -0x1p-24f, 0x1p24f };
    enum { N = sizeof special / sizeof *special };
    for (int i = 0; i < N * N * N; i++) check_fma(special[i % N], special[i / N % N], special[i / N / N]);
    for (int i = 0; i < 3000000; i++) {
        /* Few bits and exponents that are close make sums in the middle between two float32 frequent. */
        int bits = (int)(random_u32() % 24) + 1, shift = (int)(random_u32() % 60) - 30;
        float a = ldexpf((float)(random_u32() >> (32 - bits)), -12), b = ldexpf((float)(random_u32() >> 20), shift);
        float c = ldexpf((float)(random_u32() >> 8), (int)(random_u32() % 80) - 60);
        if (random_u32() & 1) c = -c;
        int tiny = i % 3 ? 0 : -110; /* results around and below the smallest normal number */
        check_fma(ldexpf(a, tiny), b, ldexpf(c, tiny));
    }
}

/* ---- Whole products. */

typedef struct product {
    int64_t m, n, k;
    bool a_trans, b_trans, add, activate, finish, half; /* half: B in bfloat16 */
    int pad;                                            /* columns between the rows of the operands */
} product;

static void twice(float *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = 2 * x[i];
}

static void add_hundred(const ls__gemm *g, const ls__tile *t)
{
    for (int64_t i = t->row; i < t->row + t->rows; i++)
        for (int64_t j = t->col; j < t->col + t->cols; j++) g->c[i * g->ldc + j] += 100;
}

static float *expected_of(const ls__gemm *g, const float *before, int64_t rows)
{
    float *c = malloc((size_t)(rows * g->ldc) * sizeof *c);
    assert_non_null(c);
    memcpy(c, before, (size_t)(rows * g->ldc) * sizeof *c);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            float sum = g->add ? c[i * g->ldc + j] : 0.0f;
            for (int64_t l = 0; l < g->k; l++) {
                float a = g->a_trans ? g->a[l * g->lda + i] : g->a[i * g->lda + l];
                if (g->activate) a *= 2;
                sum = fmaf(a, g->b_trans ? g->b[j * g->ldb + l] : g->b[l * g->ldb + j], sum);
            }
            c[i * g->ldc + j] = g->finish ? sum + 100 : sum; /* adding 0 would lose the sign of -0 */
        }
    return c;
}

static void compare(const product *p, const char *how, const float *got, const float *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got))
            fail_msg(
                "%s: %lld x %lld x %lld, a_trans %d, b_trans %d, add %d, activate %d: value %lld is %a, expected %a",
                how, (long long)p->m, (long long)p->n, (long long)p->k, p->a_trans, p->b_trans, p->add, p->activate,
                (long long)i, (double)got[i], (double)expected[i]);
}

static void check_product(const product *p)
{
    int64_t a_rows = p->a_trans ? p->k : p->m, a_cols = p->a_trans ? p->m : p->k;
    int64_t b_rows = p->b_trans ? p->n : p->k, b_cols = p->b_trans ? p->k : p->n;
    int64_t size = p->m * (p->n + p->pad);
    float *a = random_array(a_rows * (a_cols + p->pad)), *b = random_array(b_rows * (b_cols + p->pad));
    float *before = random_array(size), *c = malloc((size_t)size * sizeof *c);
    ls__gemm g = { .m = p->m,
                   .n = p->n,
                   .k = p->k,
                   .a_trans = p->a_trans,
                   .b_trans = p->b_trans,
                   .a = a,
                   .lda = a_cols + p->pad,
                   .b = b,
                   .ldb = b_cols + p->pad,
                   .c = c,
                   .ldc = p->n + p->pad,
                   .add = p->add,
                   .activate = p->activate ? twice : NULL,
                   .finish = p->finish ? add_hundred : NULL };
    int64_t b_count = b_rows * (b_cols + p->pad);
    uint16_t *half = malloc((size_t)b_count * sizeof *half);
    for (int64_t i = 0; i < b_count && p->half; i++) {
        uint32_t bits;
        memcpy(&bits, &b[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(&b[i], &bits, sizeof bits);
    }
    float *expected = expected_of(&g, before, p->m);
    if (p->half) g.b = NULL, g.b16 = half;
    char how[64];
    int v = 0;
    for (const ls__instruction_set *s; (s = ls__instruction_set_at(v)); v++) {
        ls__instruction_set_use(s);
        for (int threads = 0; threads <= 3; threads++) {
            memcpy(c, before, (size_t)size * sizeof *c);
            size_t floats = threads ? ls__gemm_workspace(threads) : ls__gemm_workspace_one(&g);
            float *space = aligned_alloc(64, (floats * sizeof *space + 63) / 64 * 64);
            if (threads)
                ls__gemm_run(&g, 1, threads, space, NULL);
            else
                ls__gemm_one(&g, space);
            free(space);
            snprintf(how, sizeof how, "%s, %d threads", s->name, threads);
            compare(p, how, c, expected, size);
        }
    }
    ls__instruction_set_use(NULL);
    free(half);
    free(expected);
    free(c);
    free(before);
    free(b);
    free(a);
}

static void products_are_chains_of_fma(void **state)
{
    (void)state;
    /* one row or column, ends of blocks, panels and slices, more columns than a chunk, rows 4 KiB apart */
    static const int64_t shapes[][3] = { { 1, 1, 1 },      { 3, 5, 7 },      { 1, 1500, 9 },   { 4, 33, 390 },
                                         { 5, 16, 17 },    { 9, 130, 20 },   { 14, 32, 16 },   { 15, 31, 33 },
                                         { 29, 48, 5 },    { 37, 1, 30 },    { 300, 33, 65 },  { 293, 17, 40 },
                                         { 25, 3100, 9 },  { 24, 16, 800 },  { 290, 8, 1024 }, { 7, 5, 0 },
                                         { 141, 270, 30 }, { 17, 21, 1031 }, { 300, 3075, 2 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 8; form++) {
            product p = { .m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2] };
            p.a_trans = form & 1, p.b_trans = form & 2, p.add = form & 4;
            p.activate = (i + (size_t)form) % 3 == 0, p.finish = (i + (size_t)form) % 2 == 0;
            p.pad = i % 2 ? 0 : (int)i % 5;
            p.half = (i + (size_t)form / 2) % 3 == 1;
            check_product(&p);
        }
}

/* Products that cancel to nothing, overflow or include a NaN give what fmaf() gives, too. */
static void special_values_come_out_as_from_fmaf(void **state)
{
    (void)state;
    enum { M = 19, N = 37, K = 23 };
    static const float values[] = { 0.0f, -0.0f, 1.0f, -1.0f, 0x1p100f, -0x1p100f, 0x1p-100f, 0x1.000002p0f, 0x1p-30f };
    static float a[M * K], b[K * N], c[M * N];
    float *space = aligned_alloc(64, (ls__gemm_workspace(1) * sizeof *space + 63) / 64 * 64);
    for (int i = 0; i < M * K; i++) a[i] = values[random_u32() % 9];
    for (int i = 0; i < K * N; i++) b[i] = values[random_u32() % 9];
    int v = 0;
    for (const ls__instruction_set *s; (s = ls__instruction_set_at(v)); v++) {
        ls__instruction_set_use(s);
        ls__gemm g = { .m = M, .n = N, .k = K, .a = a, .lda = K, .b = b, .ldb = N, .c = c, .ldc = N };
        ls__gemm_run(&g, 1, 1, space, NULL);
        float *expected = expected_of(&g, c, M);
        for (int i = 0; i < M * N; i++)
            if (memcmp(&c[i], &expected[i], 4) && !(isnan(c[i]) && isnan(expected[i])))
                fail_msg("%s: element %d is %a, expected %a", s->name, i, (double)c[i], (double)expected[i]);
        free(expected);
    }
    ls__instruction_set_use(NULL);
    free(space);
}

/* Sums so close to the middle between two float32 that float64 rounds them to it. */
static void sums_close_to_a_middle_are_rounded_once(void **state)
{
    (void)state;
    enum { M = 15, N = 40, K = 3 };
    static const float left[] = { 0x1.000002p-24f, 0x1p-24f, 0.0f }, right[] = { 0x1.fffffcp-1f, 1.0f, -1.0f };
    static float a[M * K], b[K * N], before[M * N], c[M * N];
    float *space = aligned_alloc(64, (ls__gemm_workspace(1) * sizeof *space + 63) / 64 * 64);
    for (int i = 0; i < M * K; i++) a[i] = left[random_u32() % 3];
    for (int i = 0; i < K * N; i++) b[i] = right[random_u32() % 3];
    for (int i = 0; i < M * N; i++) before[i] = i % 2 ? 0x1.000002p0f : -0x1.000002p0f;
    ls__gemm g = { .m = M, .n = N, .k = K, .a = a, .lda = K, .b = b, .ldb = N, .c = c, .ldc = N, .add = true };
    float *expected = expected_of(&g, before, M);
    int v = 0, twice_differs = 0;
    for (int i = 0; i < M * N; i++) {
        float sum = before[i];
        for (int l = 0; l < K; l++) sum = (float)((double)a[i / N * K + l] * b[l * N + i % N] + sum);
        twice_differs += sum != expected[i];
    }
    assert_true(twice_differs > 50); /* or nothing is tested */
    for (const ls__instruction_set *s; (s = ls__instruction_set_at(v)); v++) {
        ls__instruction_set_use(s);
        memcpy(c, before, sizeof c);
        ls__gemm_run(&g, 1, 1, space, NULL);
        for (int i = 0; i < M * N; i++)
            if (c[i] != expected[i])
                fail_msg("%s: element %d is %a, expected %a", s->name, i, (double)c[i], (double)expected[i]);
    }
    ls__instruction_set_use(NULL);
    free(expected);
    free(space);
}

/* ---- Random products. */

static int64_t random_size(int64_t most)
{
    static const int64_t ends[] = { 0, 1, 2, 4, 5, 14, 15, 16, 17, 31, 32, 33 };
    uint32_t kind = random_u32() >> 8;
    return kind % 3 ? ends[kind % 12] : (int64_t)(random_u32() >> 8) % most + 1;
}

/* Ordinary numbers, or now and then one that is not. */
static float random_value(int kind)
{
    static const float special[] = { 0.0f,      -0.0f,    INFINITY,  -INFINITY, NAN,   0x1p-149f, -0x1p-127f,
                                     0x1p-126f, 0x1p127f, -0x1p127f, 1.0f,      -1.0f, 0x1p-75f };
    float x = random_float();
    if (kind == 1 && random_u32() >> 8 & 1)
        return ldexpf(x, -(int)(random_u32() >> 8) % 90 - 30); /* products get denormal */
    if (kind == 2 && random_u32() % 7 == 0) return special[(random_u32() >> 8) % 13];
    return x;
}

static float *random_values(int64_t count, int kind)
{
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = random_value(kind);
    return x;
}

/* Each element is within what k roundings can cost of the sum in float64. */
static void check_float64(const ls__gemm *g, const float *before, const float *got, int number)
{
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = g->add ? (double)before[i * g->ldc + j] : 0, size = fabs(sum);
            for (int64_t l = 0; l < g->k; l++) {
                double a = (double)(g->a_trans ? g->a[l * g->lda + i] : g->a[i * g->lda + l]);
                double x = a * (double)(g->b_trans ? g->b[j * g->ldb + l] : g->b[l * g->ldb + j]);
                sum += x, size += fabs(x);
            }
            double x = (double)got[i * g->ldc + j];
            if (!(fabs(x - sum) <= 0x1p-24 * (double)(g->k + 1) * size + 1e-37))
                fail_msg("product %d: element %lld, %lld is %a, float64's is %a", number, (long long)i, (long long)j, x,
                         sum);
        }
}

/* Any shape, sizes 0 and 1 and long sums among them, strides, transposes, NaN, infinity and denormal numbers, kept or flushed. All
 * instruction sets and numbers of threads: the bits of fmaf(). What lies between the rows of C is not touched. */
static void random_products(void **state)
{
    (void)state;
    for (int number = 0; number < 260; number++) {
        int kind = number % 4 == 3 ? 2 : number % 4 == 2 ? 1 : 0;
        bool flush = number % 8 > 4, at = random_u32() >> 9 & 1, bt = random_u32() >> 9 & 1;
        int64_t m = random_size(150), n = random_size(300), k = random_size(600);
        if (number % 20 == 0) m = m % 4, n = n % 4, k = 30000 + k;
        int64_t pad = (int64_t)(random_u32() >> 8) % 5, rows_a = at ? k : m, rows_b = bt ? n : k;
        ls__gemm g = { .m = m, .n = n, .k = k, .a_trans = at, .b_trans = bt, .add = random_u32() >> 9 & 1 };
        g.lda = (at ? m : k) + pad, g.ldb = (bt ? k : n) + pad % 3, g.ldc = n + pad % 2;
        float *a = random_values(rows_a * g.lda, kind), *b = random_values(rows_b * g.ldb, kind);
        float *before = random_values(m * g.ldc, kind), *c = random_values(m * g.ldc, 0);
        g.a = a, g.b = b, g.c = c;
        ls__float_mode_set(flush ? LS__MODE_FLUSH : LS__MODE_KEEP);
#pragma omp parallel num_threads(3) /* whose own mode does not count */
        if (omp_get_thread_num()) ls__float_mode_set(flush ? LS__MODE_KEEP : LS__MODE_FLUSH);
        float *expected = expected_of(&g, before, m);
        int v = 0;
        for (const ls__instruction_set *s; (s = ls__instruction_set_at(v)); v++) {
            ls__instruction_set_use(s);
            for (int threads = 1; threads <= 3; threads += 2) {
                size_t bytes = ls__gemm_workspace(threads) * sizeof(float);
                float *space = aligned_alloc(64, (bytes + 63) / 64 * 64);
                if (m > 0 && g.ldc > 0) memcpy(c, before, (size_t)(m * g.ldc) * sizeof *c);
                ls__gemm_run(&g, 1, threads, space, NULL);
                free(space);
                for (int64_t i = 0; i < m * g.ldc; i++)
                    if (memcmp(&c[i], &expected[i], sizeof *c) && !(isnan(c[i]) && isnan(expected[i])))
                        fail_msg("product %d, %s, %d threads: %lld x %lld x %lld, trans %d %d, add %d, flush %d: "
                                 "element %lld "
                                 "is %a, expected %a",
                                 number, s->name, threads, (long long)m, (long long)n, (long long)k, at, bt, g.add,
                                 flush, (long long)i, (double)c[i], (double)expected[i]);
            }
        }
        ls__instruction_set_use(NULL);
        ls__float_mode_set(LS__MODE_KEEP);
        if (kind == 0) check_float64(&g, before, c, number);
        free(expected), free(c), free(before), free(b), free(a);
    }
}

/* ---- Fewer threads than were asked for. */

/* A product that is wide (several phases, whose tiles are counted), and one that is thin. */
static void check_with_team(int team)
{
    static const int64_t shapes[][3] = { { 300, 900, 700 }, { 100, 800, 1300 } };
    for (size_t i = 0; i < 2; i++) {
        int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        float *a = random_array(m * k), *b = random_array(k * n), *c = random_array(m * n), *one = random_array(m * n);
        float *space = aligned_alloc(64, (ls__gemm_workspace(3) * sizeof *space + 63) / 64 * 64);
        ls__gemm g = { .m = m, .n = n, .k = k, .a = a, .lda = k, .b = b, .ldb = n, .c = one, .ldc = n };
        ls__gemm_one(&g, space);
        g.c = c;
        ls__gemm_run(&g, 1, 3, space, NULL);
        for (int64_t j = 0; j < m * n; j++)
            if (memcmp(&c[j], &one[j], sizeof *c))
                fail_msg("%d of 3 threads: %lld x %lld x %lld: element %lld is %a, expected %a", team, (long long)m,
                         (long long)n, (long long)k, (long long)j, (double)c[j], (double)one[j]);
        free(space), free(one), free(c), free(b), free(a);
    }
}

static int team_of_three(void)
{
    int team = 0;
#pragma omp parallel num_threads(3)
#pragma omp single
    team = omp_get_num_threads();
    return team;
}

/* OpenMP may give fewer: because of a thread limit, or in a region within another. */
static void fewer_threads_than_asked_for(void **state)
{
    (void)state;
    int limited = 0, nested = 0;
#pragma omp teams num_teams(1) thread_limit(2)
    {
        limited = team_of_three();
        check_with_team(2);
    }
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        nested = team_of_three();
        check_with_team(1);
    }
    assert_int_equal(limited, 2);
    assert_int_equal(nested, 1);
}

/* ---- Windows that move over an image. */

static void check_windows(const ls__nn_kernels *k, int64_t m, int64_t n, int64_t runs, int64_t length, bool by_rows)
{
    int64_t depth = runs * length, gap = 3, panels = (n + LS__PANEL - 1) / LS__PANEL;
    ls__window w = { .row = by_rows ? 2 : 1, .col = by_rows ? 1 : m + 1, .runs = runs, .k = length, .gap = gap };
    int64_t size = m * w.row + runs * (length * w.col + gap);
    float *a = random_array(size), *b = random_array(depth * n), *packed = malloc((size_t)(panels * depth) * 16 * 4);
    float *c = random_array(m * n);
    w.at = a;
    k->pack(packed, b, n, depth, n);
    for (int add = 0; add < 2; add++) {
        float *got = malloc((size_t)(m * n) * sizeof *got);
        memcpy(got, c, (size_t)(m * n) * sizeof *got);
        k->window_product(got, n, &w, packed, m, n, add);
        for (int64_t i = 0; i < m * n; i++) {
            float sum = add ? c[i] : 0;
            for (int64_t l = 0; l < depth; l++)
                sum = fmaf(a[i / n * w.row + l / length * (length * w.col + gap) + l % length * w.col],
                           b[l * n + i % n], sum);
            if (got[i] != sum)
                fail_msg("%s: %lld x %lld, %lld runs of %lld: element %lld is %a, expected %a", k->name, (long long)m,
                         (long long)n, (long long)runs, (long long)length, (long long)i, got[i], sum);
        }
        free(got);
    }
    free(a), free(b), free(c), free(packed);
}

static void windows_are_chains_over_their_runs(void **state)
{
    (void)state;
    const ls__nn_kernels *k;
    for (int v = 0; (k = ls__nn_kernels_at(v)); v++)
        for (int64_t m = 1; m <= 33; m += m < 17 ? 1 : 8)
            for (int by_rows = 0; by_rows < 2; by_rows++) {
                check_windows(k, m, 1 + m % 5 * 11, 3, 7, by_rows);
                check_windows(k, m, 32, 1 + m % 3, 5, by_rows);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_chains_over_their_runs),
        cmocka_unit_test(random_products),
        cmocka_unit_test(fewer_threads_than_asked_for),
        cmocka_unit_test(plain_fma_is_fmaf),
        cmocka_unit_test(products_are_chains_of_fma),
        cmocka_unit_test(sums_close_to_a_middle_are_rounded_once),
        cmocka_unit_test(special_values_come_out_as_from_fmaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
