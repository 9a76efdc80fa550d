/* safetensors: what is written is read, byte for byte as the format says; every wrong number in a file is found and named. */
#include "check.h"
#include "base/file.h"
#include "folder.h"
#include "nn/safetensors.h"
#include <math.h>

/* A file's bytes: length of the header (truncated and padded ones included), header, data. */
static size_t make_file(uint8_t *out, uint64_t length, const char *header, size_t data)
{
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(length >> (8 * i));
    memcpy(out + 8, header, n);
    memset(out + 8 + n, 7, data);
    return 8 + n + data;
}

/* Parses a file made of a header and `data` bytes; each in memory of its exact size, so that a sanitizer sees a read
 * beyond it. */
static ls_status parse(ls__st_reader **reader, const char *header, size_t data)
{
    static uint8_t *bytes;
    free(bytes);
    bytes = malloc(8 + strlen(header) + data);
    size_t n = make_file(bytes, strlen(header), header, data);
    return ls__st_parse(reader, "file", bytes, n);
}

static void check_refused(const char *header, size_t data, const char *text)
{
    ls__st_reader *reader;
    check_fails(parse(&reader, header, data), LS_EFORMAT, text);
    assert_null(reader);
}

static void written_tensors_are_read_back(void **state)
{
    (void)state;
    float weights[6] = { 1, 2, 3, 4, 5, -6.5f };
    double scalar = 0.25;
    uint8_t mask[3] = { 1, 0, 1 };
    size_t shape[] = { 2, 3 }, three[] = { 3 }, none[] = { 4, 0 };
    ls__st_tensor tensors[] = {
        { .name = "mask", .type = LS__ST_BOOL, .rank = 1, .shape = three, .data = mask },
        { .name = "w", .type = LS__ST_F32, .rank = 2, .shape = shape, .data = weights },
        { .name = "scalar", .type = LS__ST_F64, .rank = 0, .data = &scalar },
        { .name = "empty", .type = LS__ST_F32, .rank = 2, .shape = none, .data = NULL },
        { .name = "\"quoted\" \xc3\xa9", .type = LS__ST_F32, .rank = 0, .data = weights },
    };
    const char *pairs[][2] = { { "step", "17" } };
    check_ok(ls__st_write("a.safetensors", tensors, 5, pairs, 1));
    ls__st_reader *reader;
    check_ok(ls__st_open(&reader, "a.safetensors"));
    assert_int_equal(ls__st_count(reader), 5);
    assert_string_equal(ls__st_metadata(reader, "format"), "pt");
    assert_string_equal(ls__st_metadata(reader, "step"), "17");
    assert_null(ls__st_metadata(reader, "other"));
    assert_null(ls__st_find(reader, "v"));
    for (int i = 0; i < 5; i++) {
        const ls__st_tensor *t = ls__st_find(reader, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, tensors[i].type);
        assert_int_equal(t->rank, tensors[i].rank);
        for (size_t k = 0; k < t->rank; k++) assert_int_equal(t->shape[k], tensors[i].shape[k]);
        uint8_t bytes[64];
        assert_in_range(t->bytes, 0, sizeof bytes);
        check_ok(ls__st_read(t, 0, t->bytes, bytes));
        if (t->bytes) assert_memory_equal(bytes, tensors[i].data, t->bytes);
    }
    ls__st_free(&reader);
}

static void the_writers_order_and_padding_are_the_formats_own(void **state)
{
    (void)state;
    float values[4] = { 0 };
    size_t two[] = { 2 };
    ls__st_tensor tensors[] = {
        { .name = "b", .type = LS__ST_F32, .rank = 1, .shape = two, .data = values },
        { .name = "c", .type = LS__ST_F64, .rank = 0, .data = values },
        { .name = "a", .type = LS__ST_F32, .rank = 0, .data = values },
    };
    check_ok(ls__st_write("order", tensors, 3, NULL, 0));
    char *bytes;
    size_t n;
    check_ok(ls__file_read("order", 1 << 20, &bytes, &n));
    const char *expected = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]}}";
    size_t padded = (strlen(expected) + 7) / 8 * 8;
    assert_int_equal(n, 8 + padded + 20);
    assert_int_equal((uint8_t)bytes[0] | (uint8_t)bytes[1] << 8, padded);
    assert_memory_equal(bytes + 8, expected, strlen(expected));
    for (size_t i = strlen(expected); i < padded; i++) assert_int_equal(bytes[8 + i], ' ');
    free(bytes);
}

static void names_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    float x = 0;
    ls__st_tensor twice[] = { { .name = "a", .type = LS__ST_F32, .data = &x },
                              { .name = "a", .type = LS__ST_F32, .data = &x } };
    check_fails(ls__st_write("bad", twice, 2, NULL, 0), LS_EINVAL, "two tensors have the name 'a'");
    ls__st_tensor reserved = { .name = "__metadata__", .type = LS__ST_F32, .data = &x };
    check_fails(ls__st_write("bad", &reserved, 1, NULL, 0), LS_EINVAL, "__metadata__");
    size_t huge[] = { SIZE_MAX / 2, 3 };
    ls__st_tensor large = { .name = "a", .type = LS__ST_F32, .rank = 2, .shape = huge, .data = &x };
    check_fails(ls__st_write("bad", &large, 1, NULL, 0), LS_EINVAL, "overflows");
    assert_int_equal(access("bad", F_OK), -1);
}

static void lies_about_the_header_are_found(void **state)
{
    (void)state;
    uint8_t bytes[200] = { 0 };
    ls__st_reader *reader;
    check_fails(ls__st_parse(&reader, "file", bytes, 0), LS_EFORMAT, "file: 0 bytes are too few");
    check_fails(ls__st_parse(&reader, "file", bytes, 7), LS_EFORMAT, "7 bytes are too few");
    size_t n = make_file(bytes, 100000001, "{}", 0);
    check_fails(ls__st_parse(&reader, "file", bytes, n), LS_EFORMAT, "at most 100000000");
    n = make_file(bytes, UINT64_MAX, "{}", 0);
    check_fails(ls__st_parse(&reader, "file", bytes, n), LS_EFORMAT, "at most 100000000");
    n = make_file(bytes, 3, "{}", 0);
    check_fails(ls__st_parse(&reader, "file", bytes, n), LS_EFORMAT, "only 2 follow; the file is truncated");
    n = make_file(bytes, 0, "", 0);
    check_fails(ls__st_parse(&reader, "file", bytes, n), LS_EFORMAT, "does not begin with '{'");
    check_refused("[]", 0, "does not begin with '{'");
    check_refused(" {}", 0, "does not begin with '{'");
    check_refused("{", 0, "header, byte");
    check_refused("{}x", 0, "header, byte");
    check_refused("{\"\xff\":1}", 0, "unable to decode byte 0xff");
    check_ok(parse(&reader, "{}   ", 0));
    assert_int_equal(ls__st_count(reader), 0);
    ls__st_free(&reader);
}

static void lies_about_tensors_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *text;
    } cases[] = {
        { "{\"a\":1}", 0, "tensor 'a': its entry is not an object" },
        { "{\"a\":{}}", 0, "tensor 'a': 'dtype' is missing" },
        { "{\"a\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "'dtype' is missing or not a string" },
        { "{\"a\":{\"dtype\":\"F33\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F33'" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "'shape' is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, "'shape' is missing or not a list" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1.0],\"data_offsets\":[0,4]}}", 4, "dimension 1" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9223372036854775807],\"data_offsets\":[0,4]}}", 4,
          "the product of its shape overflows" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "overflows" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'data_offsets' is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "'data_offsets' is missing or not two" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "not two integers" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "bytes 4 to 0 are outside" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "bytes 0 to 8 are outside of" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
          "F32 [2] needs 8 bytes, but its offsets span 4" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
          "where 0 was expected: there is a gap" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "end at byte 4, but the file has 8" },
        { "{}", 1, "end at byte 0, but the file has 1" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
          12, "tensor 'b' begins at byte 4 where 8 was expected: tensors overlap" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4, "duplicate" },
        { "{\"__metadata__\":[]}", 0, "'__metadata__' is not an object" },
        { "{\"__metadata__\":{\"format\":1}}", 0, "key 'format' has a value that is not a string" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(cases[i].header, cases[i].data, cases[i].text);
}

static void empty_tensors_may_lie_anywhere_between_the_others(void **state)
{
    (void)state;
    ls__st_reader *reader;
    check_ok(parse(&reader,
                   "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                   "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]},"
                   "\"d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                   "\"many\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1],\"data_offsets\":[5,6]}}",
                   6));
    assert_int_equal(ls__st_count(reader), 5);
    assert_int_equal(ls__st_find(reader, "e")->bytes, 0);
    assert_int_equal(ls__st_find(reader, "many")->rank, 10);
    assert_string_equal(ls__st_get(reader, 0)->name, "d");
    ls__st_free(&reader);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    float values[6] = { 0 };
    size_t shape[] = { 2, 3 };
    ls__st_tensor tensor = { .name = "w", .type = LS__ST_F32, .rank = 2, .shape = shape, .data = values };
    check_ok(ls__st_write("whole", &tensor, 1, NULL, 0));
    char *bytes;
    size_t n;
    check_ok(ls__file_read("whole", 1 << 20, &bytes, &n));
    for (size_t cut = 0; cut < n; cut++) {
        ls__st_reader *reader;
        char *part = malloc(cut + 1);
        memcpy(part, bytes, cut);
        assert_int_equal(ls__st_parse(&reader, "cut", part, cut), LS_EFORMAT);
        assert_null(reader);
        free(part);
    }
    free(bytes);
    ls__st_reader *reader;
    check_fails(ls__st_open(&reader, "absent"), LS_ENOENT, "absent");
    check_fails(ls__st_open(&reader, "."), LS_EINVAL, "is a folder");
}

/* To read where a mapped file was truncated would kill the process. */
static void a_file_truncated_after_it_was_opened_is_refused(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    size_t shape[] = { COUNT };
    uint16_t *halves = malloc(COUNT * sizeof *halves);
    float *out = malloc(COUNT * sizeof *out), expected;
    for (uint32_t i = 0; i < COUNT; i++) halves[i] = (uint16_t)(0x3f80 + i % 100);
    ls__st_tensor tensor = { .name = "w", .type = LS__ST_BF16, .rank = 1, .shape = shape, .data = halves };
    check_ok(ls__st_write("shrinks", &tensor, 1, NULL, 0));
    ls__st_reader *reader;
    check_ok(ls__st_open(&reader, "shrinks"));
    const ls__st_tensor *t = ls__st_get(reader, 0);
    check_ok(ls__st_to_f32(t, 1, COUNT - 1, out));
    for (uint32_t i = 1; i < COUNT; i++) {
        uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&expected, &bits, 4);
        assert_memory_equal(&out[i - 1], &expected, 4);
    }
    assert_int_equal(truncate("shrinks", 50000), 0);
    check_fails(ls__st_to_f32(t, 0, COUNT, out), LS_EFORMAT, "shrinks: was truncated at byte 50000 while it was read");
    check_ok(ls__st_to_f32(t, 0, 1000, out));
    ls__st_free(&reader);
    free(out);
    free(halves);
}

static void half_precisions_are_widened_exactly(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } f16[] = { { 0x0000, 0 },        { 0x3c00, 1 },         { 0xc000, -2 },
                { 0x7bff, 65504 },    { 0x0001, 0x1p-24f },  { 0x03ff, 1023 * 0x1p-24f },
                { 0x0400, 0x1p-14f }, { 0x8001, -0x1p-24f }, { 0x3555, 0x1.554p-2f },
                { 0x7c00, INFINITY }, { 0xfc00, -INFINITY } },
      bf16[] = { { 0x3f80, 1 }, { 0xc000, -2 }, { 0x7f80, INFINITY }, { 0x0001, 0x1p-133f } };
    float out;
    for (size_t i = 0; i < sizeof f16 / sizeof *f16; i++) {
        ls__st_tensor t = { .name = "h", .type = LS__ST_F16, .data = &f16[i].bits, .bytes = 2 };
        check_ok(ls__st_to_f32(&t, 0, 1, &out));
        assert_memory_equal(&out, &f16[i].value, 4);
    }
    for (size_t i = 0; i < sizeof bf16 / sizeof *bf16; i++) {
        ls__st_tensor t = { .name = "h", .type = LS__ST_BF16, .data = &bf16[i].bits, .bytes = 2 };
        check_ok(ls__st_to_f32(&t, 0, 1, &out));
        assert_memory_equal(&out, &bf16[i].value, 4);
    }
    uint16_t negative_zero = 0x8000, nan = 0x7e00;
    ls__st_tensor t = { .name = "h", .type = LS__ST_F16, .data = &negative_zero, .bytes = 2 };
    check_ok(ls__st_to_f32(&t, 0, 1, &out));
    assert_true(out == 0 && signbit(out));
    t.data = &nan;
    check_ok(ls__st_to_f32(&t, 0, 1, &out));
    assert_true(isnan(out));
    t.type = LS__ST_I16;
    check_fails(ls__st_to_f32(&t, 0, 1, &out), LS_EUNSUPPORTED, "I16 cannot be converted to float32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_tensors_are_read_back),
        cmocka_unit_test(the_writers_order_and_padding_are_the_formats_own),
        cmocka_unit_test(names_that_cannot_be_written_are_refused),
        cmocka_unit_test(lies_about_the_header_are_found),
        cmocka_unit_test(lies_about_tensors_are_found),
        cmocka_unit_test(empty_tensors_may_lie_anywhere_between_the_others),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_file_truncated_after_it_was_opened_is_refused),
        cmocka_unit_test(half_precisions_are_widened_exactly),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
