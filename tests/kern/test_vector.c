/* Add, scale, conversions and copies: every version that this CPU runs against its reference, in bits. */
#include <math.h>
#include "kern/copy.h"
#include "kern/table.h"
#include "kern/values.h"
#include "kern/vector.h"

enum { ROOM = 5000 };
static const size_t counts[] = { 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 129, 1000, 1027, 4096 };
enum { COUNTS = sizeof counts / sizeof *counts };

static float a[ROOM], b[ROOM], got[ROOM], expected[ROOM];

static void add_and_scale(void **state)
{
    (void)state;
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 9; shift++) {
                size_t n = counts[c];
                fill_numbers(LS_F32, a, ROOM);
                fill_numbers(LS_F32, b, ROOM);
                a[shift] = INFINITY;
                memcpy(got, b, sizeof got);
                memcpy(expected, b, sizeof got);
                k->add_f32(got + 1, a + shift, b + 3, n);
                ls__add_f32_reference(expected + 1, a + shift, b + 3, n);
                check_same_bits(got, expected, ROOM, sizeof(float), k->name);
                k->scale_f32(got + shift, a + 5, 0.3f, n);
                ls__scale_f32_reference(expected + shift, a + 5, 0.3f, n);
                check_same_bits(got, expected, ROOM, sizeof(float), k->name);
                k->add_f32(got + shift, got + shift, got + shift, n); /* in place */
                ls__add_f32_reference(expected + shift, expected + shift, expected + shift, n);
                check_same_bits(got, expected, ROOM, sizeof(float), k->name);
            }
    ls__add_f32(got, a, b, ROOM);
    ls__add_f32_reference(expected, a, b, ROOM);
    check_same_bits(got, expected, ROOM, sizeof(float), "ls__add_f32");
    ls__scale_f32(got, a, -2.5f, ROOM);
    ls__scale_f32_reference(expected, a, -2.5f, ROOM);
    check_same_bits(got, expected, ROOM, sizeof(float), "ls__scale_f32");
}

/* All 65,536 float16 numbers there and back, and numbers around the middles between neighbours. */
static void float16_there_and_back(void **state)
{
    (void)state;
    static uint16_t half[65536], back[65536], back_expected[65536];
    static float wide[65536], wide_expected[65536];
    for (uint32_t i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++) {
        k->f16_to_f32(wide, half, 65536);
        ls__f16_to_f32_reference(wide_expected, half, 65536);
        check_same_bits(wide, wide_expected, 65536, sizeof(float), k->name);
        k->f32_to_f16(back, wide, 65536);
        for (uint32_t i = 0; i < 65536; i++)
            if ((i & 0x7c00) != 0x7c00 || !(i & 0x3ff)) assert_int_equal(back[i], half[i]);
        for (uint32_t step = 0; step < 5; step++) {
            for (uint32_t i = 0; i < 65536; i++) {
                uint32_t bits;
                memcpy(&bits, &wide_expected[i], sizeof bits);
                bits += 0xffe + step + (step == 4 ? 0x800 : 0); /* the middle is 0x1000 away where float16 is normal */
                memcpy(&wide[i], &bits, sizeof bits);
            }
            k->f32_to_f16(back, wide, 65536);
            ls__f32_to_f16_reference(back_expected, wide, 65536);
            check_same_bits(back, back_expected, 65536, sizeof(uint16_t), k->name);
        }
        for (uint32_t i = 0; i < 65536; i++) wide[i] = ldexpf((float)i, -28); /* middles of the smallest numbers */
        k->f32_to_f16(back, wide, 65536);
        ls__f32_to_f16_reference(back_expected, wide, 65536);
        check_same_bits(back, back_expected, 65536, sizeof(uint16_t), k->name);
    }
    static const struct {
        float f;
        uint16_t half;
    } known[] = { { 1, 0x3c00 },
                  { -2, 0xc000 },
                  { 65504, 0x7bff },
                  { 65519.996f, 0x7bff },
                  { 65520, 0x7c00 },
                  { 0x1p-24f, 1 },
                  { 0x1p-25f, 0 },
                  { 0x1.8p-24f, 2 },
                  { 0x1p-14f, 0x0400 },
                  { 0x1.ff8p-15f, 0x3ff },
                  { 0, 0 },
                  { -0.0f, 0x8000 },
                  { -INFINITY, 0xfc00 },
                  { 1 + 0x1p-11f, 0x3c00 },
                  { 1 + 3 * 0x1p-11f, 0x3c02 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ls__f32_to_f16_reference(back, &known[i].f, 1);
        assert_int_equal(back[0], known[i].half);
    }
}

/* All 65,536 bfloat16 numbers there and back; and each of them with every kind of lower half. */
static void bfloat16_there_and_back(void **state)
{
    (void)state;
    static uint16_t half[65536], back[65536], back_expected[65536];
    static float wide[65536], wide_expected[65536];
    static const uint32_t lower[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    for (uint32_t i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++) {
        k->bf16_to_f32(wide, half, 65536);
        ls__bf16_to_f32_reference(wide_expected, half, 65536);
        check_same_bits(wide, wide_expected, 65536, sizeof(float), k->name);
        for (int l = 0; l < 6; l++) {
            for (uint32_t i = 0; i < 65536; i++) {
                uint32_t bits = i << 16 | lower[l];
                memcpy(&wide[i], &bits, sizeof bits);
            }
            k->f32_to_bf16(back, wide, 65536);
            ls__f32_to_bf16_reference(back_expected, wide, 65536);
            check_same_bits(back, back_expected, 65536, sizeof(uint16_t), k->name);
            for (uint32_t i = 0; i < 65536; i++) {
                bool nan = isnan(wide[i]), still = (back[i] & 0x7fff) > 0x7f80;
                if (nan != still) fail_msg("%s: %#x | %#x: NaN before %d, after %d", k->name, i, lower[l], nan, still);
                if (l == 0 && !nan) assert_int_equal(back[i], i);
            }
        }
        for (size_t shift = 0; shift < 9; shift++)
            for (int c = 0; c < COUNTS; c++) {
                memset(back, 0x5a, sizeof back);
                memset(back_expected, 0x5a, sizeof back);
                k->f32_to_bf16(back + 1, wide + shift, counts[c]);
                ls__f32_to_bf16_reference(back_expected + 1, wide + shift, counts[c]);
                check_same_bits(back, back_expected, ROOM, sizeof(uint16_t), k->name);
            }
    }
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x3f800000, 0x3f80 }, { 0x3f808000, 0x3f80 }, { 0x3f808001, 0x3f81 }, { 0x3f818000, 0x3f82 },
        { 0x7f7fffff, 0x7f80 }, { 0xff7fffff, 0xff80 }, { 0x7f800000, 0x7f80 }, { 0x7f800001, 0x7fc0 },
        { 0xffc12345, 0xffc1 }, { 0x00000001, 0x0000 }, { 0x80000001, 0x8000 }, { 0x0000c000, 0x0001 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float f;
        uint16_t reference, fast;
        memcpy(&f, &cases[i].from, sizeof f);
        ls__f32_to_bf16_reference(&reference, &f, 1);
        ls__f32_to_bf16(&fast, &f, 1);
        if (reference != cases[i].to || fast != cases[i].to)
            fail_msg("%#x: reference %#x, fast %#x, expected %#x", cases[i].from, reference, fast, cases[i].to);
    }
}

static void copies_at_every_offset(void **state)
{
    (void)state;
    static uint8_t from[4 * ROOM], to[4 * ROOM], should[4 * ROOM];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)random_bits();
    const ls__kernels *k;
    for (int v = 0; (k = ls__kernels_at(v)); v++)
        for (int c = 0; c < COUNTS; c++)
            for (size_t shift = 0; shift < 70; shift += 3) {
                memset(to, 0, sizeof to);
                memset(should, 0, sizeof should);
                k->copy_stream(to + shift, from + 7 * shift % 64, counts[c]);
                ls__copy_reference(should + shift, from + 7 * shift % 64, counts[c], true);
                check_same_bits(to, should, sizeof to, 1, k->name);
            }
    for (int stream = 0; stream < 2; stream++) {
        memset(to, 0, sizeof to);
        ls__copy_bytes(to, from, sizeof from, stream);
        check_same_bits(to, from, sizeof from, 1, stream ? "ls__copy_bytes, streamed" : "ls__copy_bytes");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_scale),          cmocka_unit_test(bfloat16_there_and_back),
        cmocka_unit_test(float16_there_and_back), cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(copies_at_every_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
