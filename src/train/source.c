/* Chooses the dataset for the files; the built-in corpus is one, too. */
#include "train/source.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "data/datasets.h"
#include "data/format.h"
#include "data/recognize.h"
#include "train/corpus.h"

enum { BUILT_IN_BYTES = 512 << 10 };

/* ---- What kind of file */

ls_status ls__source_is_text(const char *const *paths, size_t n_paths, const ls_train_options *o, bool *text)
{
    *text = !o->data_format || ls__format_of(o->data_format)->is_text;
    if (!n_paths || o->data_format) return LS_OK;
    return ls__sources_are_text(paths, n_paths, text);
}

/* ---- The built-in corpus */

typedef struct built_in {
    ls_dataset dataset;
    size_t length;
    char text[BUILT_IN_BYTES];
} built_in;

static ls_status built_in_get(void *self, void *worker, uint64_t sample, ls_row *row)
{
    const built_in *b = self;
    const uint8_t *text = (const uint8_t *)b->text + sample * b->length;
    int32_t *inputs = row->fields[LS_FIELD_INPUTS], *targets = row->fields[LS_FIELD_TARGETS];
    (void)worker;
    for (size_t i = 0; i < b->length; i++) {
        inputs[i] = text[i];
        targets[i] = text[i + 1];
    }
    row->tokens = row->length = b->length;
    return LS_OK;
}

static ls_status built_in_open(ls_dataset **out, int length)
{
    if (length >= BUILT_IN_BYTES)
        return ls__fail(LS_EINVAL, "the built-in corpus has %d bytes, too few for a sequence of %d and its target",
                        (int)BUILT_IN_BYTES, length);
    built_in *b = malloc(sizeof *b);
    if (!b) return ls__fail(LS_ENOMEM, "built-in corpus: out of memory");
    ls__corpus_fill(b->text, BUILT_IN_BYTES, 0);
    b->length = (size_t)length;
    b->dataset = (ls_dataset){ .count = (BUILT_IN_BYTES - 1) / (uint64_t)length,
                               .n_fields = 2,
                               .fields = { { "inputs", LS_I32, b->length }, { "targets", LS_I32, b->length } },
                               .self = b,
                               .get = built_in_get,
                               .free = free };
    *out = &b->dataset;
    return LS_OK;
}

/* The options must apply to files of this kind. */
static ls_status check_kind(const char *const *paths, size_t n_paths, bool text, const ls_train_options *o)
{
    const char *what = n_paths ? paths[0] : "the built-in corpus";
    bool json = o->field || o->prompt_field || o->weight_field || o->chat;
    if (n_paths && !text && (o->pad || json || o->on_bad))
        return ls__fail(LS_EINVAL,
                        "%s: token shards have no documents or fields; pad and the options of JSON lines are for text",
                        what);
    if (!n_paths && (o->pad || json || o->data_format || o->on_bad))
        return ls__fail(LS_EINVAL, "%s is one sequence of bytes; pad, fields and formats need data files", what);
    if ((o->prompt_field || o->weight_field) && !o->pad)
        return ls__fail(LS_EINVAL, "prompt_field and weight_field need pad");
    if (o->read_delay_us && (text || !n_paths))
        return ls__fail(LS_EINVAL, "%s: read_delay_us is for token shards only", what);
    return LS_OK;
}

ls_status ls__source_open(ls_dataset **out, const char *const *paths, size_t n_paths, const ls_tokenizer *tokenizer,
                          const ls_train_options *o, const ls_hold_out *hold_out)
{
    bool text;
    *out = NULL;
    ls_status status = ls__source_is_text(paths, n_paths, o, &text);
    if (!status) status = check_kind(paths, n_paths, text, o);
    if (status) return status;
    if (!n_paths) return built_in_open(out, o->seq_len);
    ls_text_options texts = { .paths = paths,
                              .n_paths = n_paths,
                              .format = o->data_format,
                              .field = o->field,
                              .prompt_field = o->prompt_field,
                              .weight_field = o->weight_field,
                              .padded = o->pad,
                              .chat = o->chat,
                              .skip_bad = o->on_bad == LS_ON_BAD_SKIP,
                              .count_tokens = o->order == LS_ORDER_BALANCED,
                              .hold_out = hold_out ? *hold_out : (ls_hold_out){ 0 },
                              .tokenizer = tokenizer,
                              .seq_len = (size_t)o->seq_len };
    if (text) return ls_text_open(out, &texts);
    ls_tokens_options shards = { .paths = paths,
                                 .n_paths = n_paths,
                                 .seq_len = (size_t)o->seq_len,
                                 .format = o->data_format,
                                 .vocab_size = (uint32_t)o->model.vocab_size };
    status = ls_tokens_open(out, &shards);
    if (!status) ls__tokens_set_read_delay(*out, o->read_delay_us);
    return status;
}
