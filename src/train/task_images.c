/* Task images: the class of a picture. A ResNet on CIFAR, MNIST's idx, or folders of pictures (data/images.c). In training,
 * pictures are cut at random and mirrored (data/augment.c); evaluations use their middle. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "nn/resnet.h"
#include "nn/vit.h"
#include "train/training.h"

enum { CIFAR_PADDING = 4 };

typedef struct images {
    ls_images_info info; /* of the data, without names */
    ls_augment train, val;
    float *inputs; /* (batch_size, size, size, channels) */
} images;

static void close_task(ls_train *t)
{
    images *s = t->task_state;
    if (s) free(s->inputs);
    free(s);
    t->task_state = NULL;
}

/* How values of a format are normalized: their mean and deviation over its training data. */
static void normalize_as(ls_image_format format, float mean[3], float std[3])
{
    static const float known[][2][3] = {
        [LS_IMAGES_BUILT_IN] = { { 0.5f, 0.5f, 0.5f }, { 0.25f, 0.25f, 0.25f } },
        [LS_IMAGES_CIFAR10] = { { 0.4914f, 0.4822f, 0.4465f }, { 0.2470f, 0.2435f, 0.2616f } },
        [LS_IMAGES_CIFAR100] = { { 0.5071f, 0.4865f, 0.4409f }, { 0.2673f, 0.2564f, 0.2762f } },
        [LS_IMAGES_IDX] = { { 0.1307f, 0.1307f, 0.1307f }, { 0.3081f, 0.3081f, 0.3081f } },
        [LS_IMAGES_FOLDER] = { { 0.485f, 0.456f, 0.406f }, { 0.229f, 0.224f, 0.225f } },
    };
    memcpy(mean, known[format][0], sizeof known[format][0]);
    memcpy(std, known[format][1], sizeof known[format][1]);
}

/* Pictures in folders are read a seventh larger than the model's, so that there is something to cut. */
static int read_size(const ls_train_options *o)
{
    return (o->resnet.size * 8 + 3) / 7;
}

static ls_images_options options_of(const ls_train_options *o, const char *const *paths, size_t n_paths)
{
    return (ls_images_options){ .paths = paths,
                                .n_paths = n_paths,
                                .format = o->image_format,
                                .size = read_size(o),
                                .classes = o->resnet.classes };
}

/* A vision transformer with what is common to all models of images. */
static ls_vit_options vit_of(const ls_train_options *o)
{
    ls_vit_options v = o->vit;
    v.size = o->resnet.size;
    v.channels = o->resnet.channels;
    v.classes = o->resnet.classes;
    memcpy(v.mean, o->resnet.mean, sizeof v.mean);
    memcpy(v.std, o->resnet.std, sizeof v.std);
    return v;
}

/* The sizes of the model that the run starts from. */
static ls_status read_init(ls_train_options *o)
{
    ls_model_options m;
    ls_resnet_options *r = &o->resnet;
    ls_status status = ls_model_options_read(o->init, &m);
    if (status) return status;
    if (m.kind == LS_MODEL_LM)
        return ls__fail(LS_EUNSUPPORTED,
                        "%s: is a language model; the task images needs a ResNet or a vision transformer", o->init);
    const ls_vit_options *v = &m.vit;
    o->vit = *v;
    *r = m.resnet;
    if (m.kind == LS_MODEL_RESNET) return LS_OK;
    *r = (ls_resnet_options){ .size = v->size, .channels = v->channels, .classes = v->classes };
    memcpy(r->mean, v->mean, sizeof r->mean);
    memcpy(r->std, v->std, sizeof r->std);
    return LS_OK;
}

/* The sizes that the data determine. */
static ls_status fit_model(ls_train *t, const images *s)
{
    ls_resnet_options *r = &t->options.resnet;
    const char *first = t->options.n_data ? t->options.data[0] : "built-in images";
    const ls_images_info *info = &s->info;
    bool scaled = info->format == LS_IMAGES_FOLDER;
    if (!scaled && info->height != info->width)
        return ls__fail(LS_EUNSUPPORTED, "%s: images of %d x %d; only square ones are supported", first, info->height,
                        info->width);
    if (!scaled && r->size && r->size > info->height)
        return ls__fail(LS_EINVAL, "%s: images of %d x %d are smaller than the model's %d x %d", first, info->height,
                        info->width, r->size, r->size);
    if (!scaled && !r->size) r->size = info->height;
    if (r->channels && r->channels != info->channels)
        return ls__fail(LS_EINVAL, "%s: the images have %d channel%s, the model has %d", first, info->channels,
                        info->channels == 1 ? "" : "s", r->channels);
    r->channels = info->channels;
    if (!r->classes) r->classes = info->classes;
    if (r->classes < 2) return ls__fail(LS_EINVAL, "%s: pictures of one class; a classifier needs two at least", first);
    if (r->std[0] <= 0) normalize_as(info->format, r->mean, r->std);
    ls_vit_options vit = vit_of(&t->options);
    return t->options.vit.layers ? ls__vit_check(&vit) : ls__resnet_check(r);
}

static void choose_augmentation(const ls_train_options *o, images *s)
{
    ls_augment *a = &s->train;
    s->val = (ls_augment){ .size = o->resnet.size, .seed = o->seed };
    memcpy(s->val.mean, o->resnet.mean, sizeof s->val.mean);
    memcpy(s->val.std, o->resnet.std, sizeof s->val.std);
    *a = s->val;
    bool digits = s->info.format == LS_IMAGES_IDX, by_default = o->augment == LS_AUGMENT_AUTO;
    a->crop = o->augment == LS_AUGMENT_CROP || o->augment == LS_AUGMENT_CROP_FLIP || by_default;
    a->flip = o->augment == LS_AUGMENT_FLIP || o->augment == LS_AUGMENT_CROP_FLIP || (by_default && !digits);
    a->padding = s->info.format == LS_IMAGES_FOLDER ? 0 : digits ? CIFAR_PADDING / 2 : CIFAR_PADDING;
}

static ls_status refuse_others(const ls_train_options *o)
{
    const char *wrong = o->tokenizer || o->end_token                 ? "tokenizer and end_token"
                        : o->pad || o->field || o->on_bad || o->chat ? "pad, fields, on_bad and chat"
                        : o->data_format                             ? "data_format (image_format is for images)"
                        : o->recompute                               ? "recompute"
                        : o->order == LS_ORDER_BALANCED              ? "the balanced order"
                                                                     : NULL;
    return wrong ? ls__fail(LS_EINVAL, "%s: not for the task images", wrong) : LS_OK;
}

static ls_status prepare(ls_train *t)
{
    ls_train_options *o = &t->options;
    ls_status status = refuse_others(o);
    int own = 0; /* classes of the model to start from */
    if (!status && ls__train_reads_init(t)) {
        status = read_init(o);
        own = o->resnet.classes;
        if (!t->evaluating) o->resnet.classes = 0;
    }
    if (status) return status;
    images *s = t->task_state = calloc(1, sizeof *s);
    if (!s) return ls__fail(LS_ENOMEM, "train: out of memory");
    bool large = o->resnet.stem || o->vit.patch >= 16; /* made for photos */
    if (!o->resnet.size && large && !o->n_data) o->resnet.size = 32;
    bool folder_size = !o->resnet.size;
    if (folder_size) o->resnet.size = large ? 224 : 32; /* what read_size() needs; data of one size determine it */
    ls_images_options data = options_of(o, o->data, o->n_data);
    ls_dataset *d;
    if ((status = ls_images_open(&d, &data))) return status;
    s->info = ls_images_get_info(d);
    s->info.names = NULL;
    ls_dataset_free(&d);
    if (folder_size && s->info.format != LS_IMAGES_FOLDER) o->resnet.size = 0;
    o->image_format = s->info.format == LS_IMAGES_BUILT_IN ? LS_IMAGES_AUTO : s->info.format;
    if ((status = fit_model(t, s))) return status;
    if (t->evaluating && s->info.format == LS_IMAGES_FOLDER && s->info.classes != own)
        return ls__fail(LS_EINVAL, "%s: has %d folders of classes, and the model has %d classes", o->data[0],
                        s->info.classes, own);
    t->new_head = own && own != o->resnet.classes;
    choose_augmentation(o, s);
    size_t each = (size_t)o->resnet.size * (size_t)o->resnet.size * (size_t)o->resnet.channels;
    s->inputs = aligned_alloc(64, ((size_t)o->batch_size * each * sizeof *s->inputs + 63) / 64 * 64);
    return s->inputs ? LS_OK : ls__fail(LS_ENOMEM, "train: no memory for %d images", o->batch_size);
}

static ls_status open_data(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                           const ls_train_options *o, const ls_hold_out *hold_out)
{
    ls_images_options data = options_of(o, paths, n_paths);
    (void)tokenizer, (void)hold_out;
    ls_status status = ls_images_open(out, &data);
    if (status) return status;
    ls_images_info info = ls_images_get_info(*out);
    if (info.channels == o->resnet.channels && info.height >= o->resnet.size && info.width >= o->resnet.size)
        return LS_OK;
    ls_dataset_free(out);
    return ls__fail(LS_EINVAL, "%s: images of %d x %d with %d channels do not fit the model's %d x %d with %d",
                    n_paths ? paths[0] : "built-in images", info.height, info.width, info.channels, o->resnet.size,
                    o->resnet.size, o->resnet.channels);
}

static ls_status open_model(ls_train *t)
{
    ls_vit_options vit = vit_of(&t->options);
    if (!vit.layers) {
        t->flops_per_token = ls__resnet_flops(&t->options.resnet);
        return ls__resnet_open(&t->model, &t->options.resnet);
    }
    ls_status status = ls__vit_open(&t->model, &vit);
    if (!status) t->flops_per_token = ls__vit_flops(&t->model->vit);
    return status;
}

static ls_status make_batch(ls_train *t, const ls_batch *b, ls__micro_batch *out)
{
    const images *s = t->task_state;
    const ls_resnet_options *r = &t->options.resnet;
    const ls_augment *a = t->validating ? &s->val : &s->train;
    const uint8_t *pixels = b->fields[LS_FIELD_PIXELS];
    int64_t n = (int64_t)b->batch_size, each = (int64_t)r->size * r->size * r->channels;
    int64_t from = (int64_t)s->info.height * s->info.width * s->info.channels;
#pragma omp parallel for num_threads(t->options.threads) schedule(static) if (n * each > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        ls_augment_apply(a, &s->info, pixels + i * from, b->epoch, b->samples[i], s->inputs + i * each);
    *out = (ls__micro_batch){ .weight = (double)n, .tokens = (double)n, .targets = n };
    if (n)
        out->model = (ls_model_batch){ .batch_size = n,
                                       .inputs = s->inputs,
                                       .targets = (const int32_t *)b->fields[LS_FIELD_LABELS] };
    return LS_OK;
}

extern const ls__task_type ls__task_images;
const ls__task_type ls__task_images = {
    .info = { .name = "images", .model = "resnet20", .unit = "images", .metrics = { "accuracy" } },
    .sample = "image",
    .eval_all = true,
    .prepare = prepare,
    .open_data = open_data,
    .open_model = open_model,
    .close = close_task,
    .make_batch = make_batch,
    .full_weight = ls__task_step_samples,
    .step_tokens = ls__task_step_samples,
    .scoring = &ls__accuracy,
};
