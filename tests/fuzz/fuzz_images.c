/* Fuzz target: any bytes as a file of pictures. The first byte says which: CIFAR-10 or -100, idx, or a PNG or JPEG file. What is
 * accepted can be read to the end, with labels below the number of classes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "data/images.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const ls_dataset *d)
{
    uint8_t *pixels = malloc(d->fields[LS_FIELD_PIXELS].count);
    ls_images_info info = ls_images_get_info(d);
    for (uint64_t i = 0; pixels && i < d->count && i < 50; i++) {
        int32_t label = -1;
        ls_row row = { .fields = { pixels, &label } };
        if (!d->get(d->self, NULL, i, &row) && (label < 0 || label >= info.classes)) abort();
    }
    free(pixels);
}

/* A folder for files whose names matter, removed at the end. */
static char folder[] = "/tmp/lockstep-fuzz-XXXXXX", images[64], labels[64];

static void remove_files(void)
{
    unlink(images);
    unlink(labels);
    rmdir(folder);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
}

static void make_folder(void)
{
    static bool made;
    if (made) return;
    made = true;
    if (!mkdtemp(folder)) abort();
    snprintf(images, sizeof images, "%s/images", folder);
    snprintf(labels, sizeof labels, "%s/labels", folder);
    atexit(remove_files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    int kind = data[0] % 4;
    ls_dataset *d = NULL;
    if (kind == 3) {
        ls__picture p;
        uint8_t out[16 * 16 * 3];
        if (!ls__picture_decode("fuzz", data + 1, size - 1, 16, &p) && p.width < 4096 && p.height < 4096 &&
            ls__picture_fit(&p, 16, out))
            abort();
        free(p.pixels);
        return 0;
    }
    make_folder();
    /* Of an idx, the file of labels is at the end; the second byte says how long it is. */
    size_t last = kind == 2 && (size_t)data[1] < size - 2 ? data[1] : 0, first = kind == 2 ? 2 : 1;
    write_file(images, data + first, size - first - last);
    write_file(labels, data + size - last, last);
    const char *name = images;
    ls_images_options o = { .paths = &name, .n_paths = 1, .format = (ls_image_format)(LS_IMAGES_CIFAR10 + kind) };
    if (ls_images_open(&d, &o)) {
        if (!ls_error()[0]) abort();
    } else {
        read_all(d);
    }
    ls_dataset_free(&d);
    return 0;
}
