/* Datasets of pictures: each format, what is wrong with files, and augmentation. */
#include "folder.h"
#include <math.h>
#include "data/images.h"
#include "lockstep/data.h"
#ifdef LOCKSTEP_PNG
#include <png.h>
#endif
#ifdef LOCKSTEP_JPEG
#include <jpeglib.h>
#endif

static ls_status open_paths(ls_dataset **out, ls_image_format format, const char *a, const char *b)
{
    const char *paths[] = { a, b };
    return ls_images_open(out, &(ls_images_options){ .paths = paths, .n_paths = b ? 2 : 1, .format = format });
}

static void get(const ls_dataset *d, uint64_t sample, uint8_t *pixels, int32_t *label)
{
    ls_row row = { .fields = { pixels, label } };
    check_ok(d->get(d->self, NULL, sample, &row));
    assert_int_equal(row.tokens, 1);
}

/* ---- CIFAR */

/* `count` records: byte i of the pixels of record r is r + i. */
static void write_cifar(const char *path, int count, int labels, int first_label)
{
    static uint8_t records[4 * 3074];
    for (int r = 0; r < count; r++) {
        uint8_t *at = records + r * (3072 + labels);
        for (int l = 0; l < labels; l++) at[l] = (uint8_t)(first_label + r + 50 * l);
        for (int i = 0; i < 3072; i++) at[labels + i] = (uint8_t)(r + i % 251);
    }
    write_file(path, records, (size_t)count * (3072 + (size_t)labels));
}

static void cifar_files_are_records_of_label_and_planes(void **state)
{
    (void)state;
    ls_dataset *d;
    uint8_t pixels[3072];
    int32_t label;
    write_cifar("data_batch_1.bin", 3, 1, 2);
    write_cifar("data_batch_2.bin", 2, 1, 7);
    check_ok(open_paths(&d, LS_IMAGES_AUTO, "data_batch_1.bin", "data_batch_2.bin"));
    ls_images_info info = ls_images_get_info(d);
    assert_int_equal(info.format, LS_IMAGES_CIFAR10);
    assert_int_equal(info.classes, 10);
    assert_int_equal(info.height * 10000 + info.width * 10 + info.channels, 320323);
    assert_int_equal(d->count, 5);
    get(d, 4, pixels, &label); /* the second of the second file */
    assert_int_equal(label, 8);
    for (int y = 0; y < 32; y += 31)
        for (int x = 0; x < 32; x++)
            for (int c = 0; c < 3; c++)
                assert_int_equal(pixels[(y * 32 + x) * 3 + c], (uint8_t)(1 + (c * 1024 + y * 32 + x) % 251));
    ls_dataset_free(&d);
    write_cifar("train.bin", 2, 2, 3);
    check_ok(open_paths(&d, LS_IMAGES_AUTO, "train.bin", NULL));
    assert_int_equal(ls_images_get_info(d).classes, 100);
    get(d, 1, pixels, &label);
    assert_int_equal(label, 54); /* the fine one */
    assert_int_equal(pixels[0], 1);
    ls_dataset_free(&d);
}

static void broken_cifar_files_are_refused_with_their_place(void **state)
{
    (void)state;
    ls_dataset *d;
    uint8_t pixels[3072];
    int32_t label;
    ls_row row = { .fields = { pixels, &label } };
    write_cifar("labels.bin", 2, 1, 9);
    check_ok(open_paths(&d, LS_IMAGES_CIFAR10, "labels.bin", NULL));
    check_fails(d->get(d->self, NULL, 1, &row), LS_EFORMAT, "labels.bin: picture 1 (byte 3073): label 10");
    ls_dataset_free(&d);
    write_file("short.bin", pixels, 3000);
    check_fails(open_paths(&d, LS_IMAGES_CIFAR10, "short.bin", NULL), LS_EFORMAT,
                "short.bin: byte 3000: the file ends");
    check_fails(open_paths(&d, LS_IMAGES_AUTO, "short.bin", NULL), LS_EFORMAT, "short.bin: not recognized as images");
    check_fails(open_paths(&d, LS_IMAGES_AUTO, "missing.bin", NULL), LS_EFORMAT, "missing.bin");
    check_fails(open_paths(&d, LS_IMAGES_CIFAR10, "missing.bin", NULL), LS_ENOENT, "missing.bin");
    check_fails(ls_images_open(&d, &(ls_images_options){ .format = LS_IMAGES_IDX }), LS_EINVAL, "idx need files");
    check_fails(ls_images_open(&d, &(ls_images_options){ .format = (ls_image_format)99 }), LS_EINVAL, "format 99");
}

/* ---- idx */

static void write_idx(const char *path, const uint8_t *head, size_t head_bytes, size_t bytes, int first)
{
    uint8_t data[200];
    memcpy(data, head, head_bytes);
    for (size_t i = 0; i < bytes; i++) data[head_bytes + i] = (uint8_t)(first + (int)i);
    write_file(path, data, head_bytes + bytes);
}

static void idx_files_have_images_and_labels(void **state)
{
    (void)state;
    static const uint8_t images[16] = { 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5 };
    static const uint8_t labels[8] = { 0, 0, 8, 1, 0, 0, 0, 3 }, two[8] = { 0, 0, 8, 1, 0, 0, 0, 2 };
    ls_dataset *d;
    uint8_t pixels[20];
    int32_t label;
    write_idx("t-images-idx3-ubyte", images, 16, 60, 0);
    write_idx("t-labels-idx1-ubyte", labels, 8, 3, 4);
    check_ok(open_paths(&d, LS_IMAGES_AUTO, "t-images-idx3-ubyte", NULL));
    ls_images_info info = ls_images_get_info(d);
    assert_int_equal(info.height * 100 + info.width * 10 + info.channels, 451);
    assert_int_equal(info.classes, 7);
    assert_int_equal(d->count, 3);
    get(d, 2, pixels, &label);
    assert_int_equal(label, 6);
    for (int i = 0; i < 20; i++) assert_int_equal(pixels[i], 40 + i);
    ls_dataset_free(&d);
    const char *path = "t-images-idx3-ubyte";
    check_fails(ls_images_open(&d, &(ls_images_options){ .paths = &path, .n_paths = 1, .classes = 6 }), LS_EFORMAT,
                "t-labels-idx1-ubyte: byte 10: label 6 of image 2");
    write_idx("t-labels-idx1-ubyte", two, 8, 2, 4);
    check_fails(open_paths(&d, LS_IMAGES_IDX, path, NULL), LS_EFORMAT, "2 labels, but t-images-idx3-ubyte has 3");
    write_idx("t-labels-idx1-ubyte", labels, 8, 2, 4);
    check_fails(open_paths(&d, LS_IMAGES_IDX, path, NULL), LS_EFORMAT, "says 3 elements, the file has 2");
    write_idx("t-labels-idx1-ubyte", images, 8, 3, 4);
    check_fails(open_paths(&d, LS_IMAGES_IDX, path, NULL), LS_EFORMAT,
                "t-labels-idx1-ubyte: byte 0: begins with 00 00 08 03");
    write_idx("t-images-idx3-ubyte", images, 16, 59, 0);
    check_fails(open_paths(&d, LS_IMAGES_IDX, path, NULL), LS_EFORMAT, "says 60 elements, the file has 59");
    write_idx("t-images-idx3-ubyte", images, 12, 0, 0);
    check_fails(open_paths(&d, LS_IMAGES_IDX, path, NULL), LS_EFORMAT, "byte 12: the file ends inside its idx header");
}

/* ---- Folders */

#if defined(LOCKSTEP_PNG) && defined(LOCKSTEP_JPEG)
/* Pixels of a format of libpng's. */
static void write_png_as(const char *path, uint32_t format, const void *pixels, int width, int height)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height, .format = format
    };
    assert_true(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
}

static void write_png(const char *path, const uint8_t *pixels, int width, int height)
{
    write_png_as(path, PNG_FORMAT_RGB, pixels, width, height);
}

static void write_jpeg_as(const char *path, J_COLOR_SPACE space, int channels, uint8_t *pixels, int width, int height)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr manager;
    FILE *f = fopen(path, "wb");
    info.err = jpeg_std_error(&manager);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, f);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = channels;
    info.in_color_space = space;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = pixels + channels * y * width;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(f);
}

static void write_jpeg(const char *path, uint8_t *pixels, int width, int height)
{
    write_jpeg_as(path, JCS_RGB, 3, pixels, width, height);
}

/* Red grows to the right, green down; blue is 100. */
static void fill_ramp(uint8_t *pixels, int width, int height)
{
    for (int i = 0; i < width * height; i++) {
        pixels[3 * i] = (uint8_t)(i % width * 255 / (width - 1));
        pixels[3 * i + 1] = (uint8_t)(i / width * 255 / (height - 1));
        pixels[3 * i + 2] = 100;
    }
}

/* A row of RGB with 16 bits, not linear, which libpng's simple functions do not write. */
static void write_png_16(const char *path, const uint8_t *rgb, int width)
{
    FILE *f = fopen(path, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t row[6 * 64];
    for (int i = 0; i < 3 * width; i++) row[2 * i] = row[2 * i + 1] = rgb[i];
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)width, 1, 16, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    png_write_row(png, row);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(f), 0);
}

/* As Pillow's convert("RGB") has them. */
static void pictures_of_every_kind_become_rgb(void **state)
{
    enum { N = 4 };
    static const uint8_t rgb[3 * N] = { 0, 10, 100, 200, 255, 128, 64, 32, 16, 7, 77, 250 };
    static const uint8_t grey[N] = { 0, 99, 200, 255 };
    static uint8_t cmyk[4 * N] = { 255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255, 255, 200, 200, 200, 128 };
    static const uint8_t cmyk_rgb[3 * N] = { 255, 255, 255, 0, 0, 0, 0, 255, 255, 100, 100, 100 };
    uint8_t rgba[4 * N], grey_opacity[2 * N];
    ls__picture got;
    (void)state;
    for (int i = 0; i < N; i++) {
        memcpy(rgba + 4 * i, rgb + 3 * i, 3);
        rgba[4 * i + 3] = (uint8_t)(80 * i);
        grey_opacity[2 * i] = grey[i];
        grey_opacity[2 * i + 1] = (uint8_t)(255 - 80 * i);
    }
    write_png_as("rgba.png", PNG_FORMAT_RGBA, rgba, N, 1);
    write_png_as("grey.png", PNG_FORMAT_GRAY, grey, N, 1);
    write_png_as("grey_opacity.png", PNG_FORMAT_GA, grey_opacity, N, 1);
    write_png_16("deep.png", rgb, N);
    write_jpeg_as("cmyk.jpg", JCS_CMYK, 4, cmyk, N, 1);
    static const struct {
        const char *name;
        bool grey;
        const uint8_t *pixels;
        int tolerance; /* of JPEG */
    } cases[] = { { "rgba.png", false, rgb, 0 },
                  { "grey.png", true, grey, 0 },
                  { "grey_opacity.png", true, grey, 0 },
                  { "deep.png", false, rgb, 0 },
                  { "cmyk.jpg", false, cmyk_rgb, 4 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[4096];
        FILE *f = fopen(cases[i].name, "rb");
        size_t bytes = fread(file, 1, sizeof file, f);
        fclose(f);
        assert_int_equal(ls__picture_decode(cases[i].name, file, bytes, 1, &got), LS_OK);
        assert_int_equal(got.width, N);
        for (int k = 0; k < 3 * N; k++) {
            int expected = cases[i].pixels[cases[i].grey ? k / 3 : k];
            if (abs(got.pixels[k] - expected) > cases[i].tolerance)
                fail_msg("%s: byte %d is %d, expected %d", cases[i].name, k, got.pixels[k], expected);
        }
        free(got.pixels);
    }
}

static void folders_have_a_class_each(void **state)
{
    (void)state;
    static uint8_t ramp[64 * 32 * 3], out[8 * 8 * 3];
    ls_dataset *d;
    int32_t label;
    const char *path = "pictures";
    ls_images_options o = { .paths = &path, .n_paths = 1, .size = 8 };
    assert_int_equal(mkdir("pictures", 0700) | mkdir("pictures/dog", 0700) | mkdir("pictures/cat", 0700), 0);
    fill_ramp(ramp, 64, 32);
    write_jpeg("pictures/dog/b.JPG", ramp, 64, 32);
    write_png("pictures/cat/a.png", ramp, 64, 32);
    write_png("pictures/dog/a.png", ramp, 32, 64);
    write_text("pictures/dog/notes.txt", "not a picture");
    check_ok(ls_images_open(&d, &o));
    ls_images_info info = ls_images_get_info(d);
    assert_int_equal(info.format, LS_IMAGES_FOLDER);
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.names[0], "cat");
    assert_int_equal(d->count, 3);
    get(d, 0, out, &label); /* the middle half of the ramp, a quarter as fine */
    assert_int_equal(label, 0);
    for (int i = 0; i < 64; i++) {
        int x = i % 8, y = i / 8, red = 64 + (255 - 128) * (2 * x + 1) / 16, green = 255 * (2 * y + 1) / 16;
        if (abs(out[3 * i] - red) > 3 || abs(out[3 * i + 1] - green) > 8 || out[3 * i + 2] != 100)
            fail_msg("pixel (%d, %d) is %d %d %d, expected about %d %d 100", x, y, out[3 * i], out[3 * i + 1],
                     out[3 * i + 2], red, green);
    }
    get(d, 2, out, &label); /* the JPEG, decoded at a quarter of its size */
    assert_int_equal(label, 1);
    for (int i = 0; i < 64; i++)
        if (abs(out[3 * i] - (64 + (255 - 128) * (2 * (i % 8) + 1) / 16)) > 8)
            fail_msg("red of pixel %d of the JPEG is %d", i, out[3 * i]);
    ls_row row = { .fields = { out, &label } };
    ls_dataset_free(&d);

    char data[3000];
    FILE *f = fopen("pictures/dog/b.JPG", "rb");
    size_t bytes = fread(data, 1, sizeof data, f);
    fclose(f);
    write_file("pictures/dog/b.JPG", data, bytes / 2);
    write_text("pictures/cat/b.jpeg", "GIF89a");
    write_file("pictures/cat/c.png", "\x89PNG\r\n\x1a\nxxxx", 12);
    check_ok(ls_images_open(&d, &o));
    check_fails(d->get(d->self, NULL, 1, &row), LS_EFORMAT, "pictures/cat/b.jpeg: byte 0: neither a PNG nor a JPEG");
    check_fails(d->get(d->self, NULL, 2, &row), LS_EFORMAT, "pictures/cat/c.png: not a valid PNG file");
    check_fails(d->get(d->self, NULL, 4, &row), LS_EFORMAT, "pictures/dog/b.JPG: not a valid JPEG file");
    ls_dataset_free(&d);
    o.classes = 1;
    check_fails(ls_images_open(&d, &o), LS_EINVAL, "the images have 2 classes, the model only 1");
    assert_int_equal(mkdir("pictures/empty", 0700), 0);
    check_fails(open_paths(&d, LS_IMAGES_AUTO, "pictures", NULL), LS_EFORMAT, "pictures/empty: the class has no PNG");
    check_fails(open_paths(&d, LS_IMAGES_FOLDER, "pictures/cat", NULL), LS_EFORMAT, "has 0 folders");
}
#endif

/* ---- Augmentation */

static void crops_and_flips_depend_on_seed_epoch_and_sample_alone(void **state)
{
    (void)state;
    enum { H = 6, W = 5, N = 400 };
    uint8_t pixels[H * W];
    float one[16], other[16], middle[16];
    const ls_images_info info = { .height = H, .width = W, .channels = 1 };
    ls_augment a = { .size = 4, .padding = 1, .mean = { 0.5f }, .std = { 0.25f } };
    for (int i = 0; i < H * W; i++) pixels[i] = (uint8_t)(i + 1);
    ls_augment_apply(&a, &info, pixels, 3, 7, middle);
    assert_true(fabsf(middle[0] - ((float)(1 * W + 0 + 1) / 255 - 0.5f) / 0.25f) < 1e-5f); /* row 1, column 0 */
    a.crop = a.flip = true;
    int differ = 0, mirrored = 0, offsets[(H + 2 - 3) * (W + 2 - 3)] = { 0 };
    for (uint64_t sample = 0; sample < N; sample++) {
        ls_augment_apply(&a, &info, pixels, 3, sample, one);
        ls_augment_apply(&a, &info, pixels, 3, sample, other);
        assert_memory_equal(one, other, sizeof one);
        ls_augment_apply(&a, &info, pixels, 4, sample, other);
        differ += memcmp(one, other, sizeof one) != 0;
        /* where is it? compare with all squares */
        int found = 0;
        for (int top = -1; top <= H + 1 - 4; top++)
            for (int left = -1; left <= W + 1 - 4; left++)
                for (int flip = 0; flip < 2; flip++) {
                    bool same = true;
                    for (int i = 0; i < 16; i++) {
                        int y = top + i / 4, x = left + (flip ? 3 - i % 4 : i % 4);
                        bool inside = y >= 0 && y < H && x >= 0 && x < W;
                        float value = ((inside ? (float)pixels[y * W + x] : 0) / 255 - 0.5f) / 0.25f;
                        same = same && fabsf(one[i] - value) < 1e-5f;
                    }
                    if (!same) continue;
                    found++;
                    mirrored += flip;
                    offsets[(top + 1) * (W + 2 - 3) + left + 1]++;
                }
        assert_int_equal(found, 1);
    }
    assert_in_range(mirrored, N / 2 - 50, N / 2 + 50); /* 5 standard deviations */
    assert_in_range(differ, N * 9 / 10, N);
    for (int i = 0; i < (H + 2 - 3) * (W + 2 - 3); i++) assert_in_range(offsets[i], 3, 50); /* 20 are expected */
}

static void built_in_pictures_have_ten_classes(void **state)
{
    (void)state;
    ls_dataset *d;
    static uint8_t pixels[3072];
    int32_t label;
    int seen[10] = { 0 };
    check_ok(ls_images_open(&d, NULL));
    assert_int_equal(ls_images_get_info(d).classes, 10);
    for (uint64_t i = 0; i < 200; i++) {
        get(d, i, pixels, &label);
        assert_in_range(label, 0, 9);
        seen[label]++;
    }
    for (int i = 0; i < 10; i++) assert_in_range(seen[i], 5, 45);
    ls_dataset_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cifar_files_are_records_of_label_and_planes),
        cmocka_unit_test(broken_cifar_files_are_refused_with_their_place),
        cmocka_unit_test(idx_files_have_images_and_labels),
#if defined(LOCKSTEP_PNG) && defined(LOCKSTEP_JPEG)
        cmocka_unit_test(folders_have_a_class_each),
        cmocka_unit_test(pictures_of_every_kind_become_rgb),
#endif
        cmocka_unit_test(crops_and_flips_depend_on_seed_epoch_and_sample_alone),
        cmocka_unit_test(built_in_pictures_have_ten_classes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
