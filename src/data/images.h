/* Datasets of pictures: one table per format, in images.c. A new format is a row of LS_IMAGE_FORMAT_LIST and a table. */
#ifndef LS_DATA_IMAGES_H
#define LS_DATA_IMAGES_H

#include "data/source.h"
#include "lockstep/data.h"

typedef struct ls__images ls__images;

typedef struct ls__image_table {
    const char *name; /* as users write it */
    /* Whether the first of the paths looks like this; NULL: never chosen by itself. */
    bool (*detect)(const char *path);
    /* Fills in info, dataset.count and what `get` needs. What it allocated is freed by ls__images_free(), also on failure. */
    ls_status (*open)(ls__images *images, const ls_images_options *options);
    /* Sample number i: its pixels and its label. */
    ls_status (*get)(const ls__images *images, uint64_t sample, uint8_t *pixels, int32_t *label);
} ls__image_table;

extern const ls__image_table ls__images_built_in, ls__images_cifar10, ls__images_cifar100, ls__images_idx,
    ls__images_folder;

struct ls__images {
    ls_dataset dataset; /* what the caller holds */
    ls_images_info info;
    const ls__image_table *table;
    /* Files of many pictures: */
    ls__sources sources;
    uint64_t *starts; /* (files + 1): how many pictures come before each file */
    size_t header;    /* bytes before the first picture of a file */
    uint8_t *labels;  /* idx: (count) */
    /* Folders: */
    char **files;         /* (count) */
    int32_t *file_labels; /* (count) */
    char **names;         /* (classes) */
    size_t n_files, n_names;
};

void ls__images_free(void *self);
/* The file that has picture `sample`, and its number there. */
size_t ls__images_file_of(const ls__images *images, uint64_t sample, uint64_t *number);

/* Whether a file (true) or a folder (false) is there. */
bool ls__image_is_file(const char *path);
bool ls__image_is_folder(const char *path);

/* A decoded picture: (height, width, 3) */
typedef struct ls__picture {
    uint8_t *pixels; /* malloc'ed */
    int height, width;
} ls__picture;

/* Decodes a PNG or JPEG file in memory; `name` is for messages. A JPEG may be decoded at a half, a quarter or an eighth of its size, as
 * long as its shorter side is at least `size`. On failure out->pixels is NULL. */
LS_MUST_CHECK ls_status ls__picture_decode(const char *name, const uint8_t *data, size_t bytes, int size,
                                           ls__picture *out);
/* The picture scaled so that its shorter side is `size`, and the middle (size, size, 3) of that. Averages where it gets smaller,
 * interpolates linearly where it gets larger; in integers, the same on any machine. */
LS_MUST_CHECK ls_status ls__picture_fit(const ls__picture *picture, int size, uint8_t *out);

#endif
