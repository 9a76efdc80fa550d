/* lockstep data tokenize and train-bpe: text to shards, and text to a tokenizer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/escape.h"
#include "cli/format_choices.h"
#include "cli/options.h"
#include "data/tokenizer.h"
#include "lockstep/data.h"

static const char tokenize_intro[] =
    "usage: lockstep data tokenize -o PREFIX [OPTIONS] FILE...\n\n"
    "Tokenizes text into shards PREFIX-00000.bin, PREFIX-00001.bin..., with the end token after each document.\n\n";
static const char train_intro[] =
    "usage: lockstep data train-bpe -o FOLDER [OPTIONS] FILE...\n\n"
    "Trains a byte-level BPE tokenizer and writes vocab.json, merges.txt and tokenizer.json.\n\n";

static const char *const on_bads[] = { "stop", "skip", NULL };

/* What both commands take. */
typedef struct text_options {
    const char *output, *field;
    int input, on_bad, threads;
    bool quiet;
    option_list files;
} text_options;

static int report(const char *command, ls_status status)
{
    if (!status) return EXIT_DONE;
    return exit_failure(command, status);
}

int data_tokenize(int argc, char **argv)
{
    text_options t = { 0 };
    const char *name = "bytes", *end = NULL;
    int format = 0;
    uint64_t shard_tokens = 0;
    bool replace = false;
    const option_row rows[] = {
        { OPTION_TEXT, "-o", &t.output, "PREFIX", "path of the shards, without -00000.bin", 0, 0, NULL },
        { OPTION_TEXT, "--output", &t.output, "PREFIX", NULL, 0, 0, NULL },
        { OPTION_TEXT, "--tokenizer", &name, "NAME", "bytes (default), tokenizer.json, or a folder with one", 0, 0,
          NULL },
        { OPTION_TEXT, "--end-token", &end, "TEXT", "token that ends a document (the tokenizer's eos_token)", 0, 0,
          NULL },
        { OPTION_CHOICE, "--data-format", &t.input, "FORMAT", "of the text: {} (auto: by the name)", 0, 0,
          format_choices(FORMATS_TEXT) },
        { OPTION_TEXT, "--field", &t.field, "NAME", "jsonl: field with the text (text)", 0, 0, NULL },
        { OPTION_CHOICE, "--on-bad", &t.on_bad, "WHAT", "on an invalid JSON line: {} (stop)", 0, 0, on_bads },
        { OPTION_CHOICE, "--format", &format, "FORMAT", "of the shards: {} (auto: llm.c's that fits)", 0, 0,
          format_choices(FORMATS_SHARDS) },
        { OPTION_SIZE, "--shard-tokens", &shard_tokens, "N", "tokens per shard (100M)", 0, 0, NULL },
        { OPTION_FLAG, "--replace", &replace, NULL, "replace existing shards of that name", 0, 0, NULL },
        { OPTION_INT, "--threads", &t.threads, "N", "number of threads (all cores); does not affect results", 1, 256,
          NULL },
        { OPTION_FLAG, "--quiet", &t.quiet, NULL, "do not show progress", 0, 0, NULL },
        { OPTION_FILES, "FILE", &t.files, "FILE", NULL, 0, 0, NULL },
        { 0 },
    };
    int code = options_read("data tokenize", tokenize_intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!t.output || !*t.output) return data_missing("tokenize", "-o PREFIX");
    char prefix[4096]; /* a folder: the shards get a name in it */
    size_t n = strlen(t.output);
    if (n && t.output[n - 1] == '/' && snprintf(prefix, sizeof prefix, "%sshard", t.output) < (int)sizeof prefix)
        t.output = prefix;
    ls_tokenizer *tokenizer = NULL;
    ls_log_set(data_show_log, NULL);
    ls_status status = ls_tokenizer_open(&tokenizer, name, &(ls_tokenizer_options){ .end_token = end });
    if (!status) status = ls__tokenizer_check_end(tokenizer, name);
    int64_t begin = ls_now();
    ls_tokenize_result r = { 0 };
    if (!status) {
        ls_tokenize_options o = { .paths = (const char *const *)t.files.items,
                                  .n_paths = t.files.count,
                                  .format = format_chosen(FORMATS_TEXT, t.input),
                                  .field = t.field,
                                  .skip_bad = t.on_bad == 1,
                                  .tokenizer = tokenizer,
                                  .output = t.output,
                                  .replace = replace,
                                  .shard_format = format_chosen(FORMATS_SHARDS, format),
                                  .shard_tokens = shard_tokens,
                                  .threads = t.threads,
                                  .progress = t.quiet ? NULL : data_show_progress,
                                  .user = &begin };
        status = ls_tokenize(&o, &r);
    }
    ls_tokenizer_free(&tokenizer);
    double seconds = (double)(ls_now() - begin) * 1e-9;
    if (!status)
        printf("%" PRIu64 " document%s, %" PRIu64 " byte%s, %" PRIu64 " token%s in %" PRIu64 " shard%s; %.1f MB/s\n",
               r.documents, ls__s((int64_t)r.documents), r.bytes, ls__s((int64_t)r.bytes), r.tokens,
               ls__s((int64_t)r.tokens), r.shards, ls__s((int64_t)r.shards), (double)r.bytes * 1e-6 / seconds);
    return report("data tokenize", status);
}

int data_train_bpe(int argc, char **argv)
{
    text_options t = { 0 };
    int vocab_size = 50257;
    int64_t least = 0;
    const option_row rows[] = {
        { OPTION_TEXT, "-o", &t.output, "FOLDER", "output folder", 0, 0, NULL },
        { OPTION_TEXT, "--output", &t.output, "FOLDER", NULL, 0, 0, NULL },
        { OPTION_INT, "--vocab-size", &vocab_size, "N", "vocabulary size, with the 256 bytes and the end token (50257)",
          257, 1 << 22, NULL },
        { OPTION_LONG, "--min-count", &least, "N", "do not merge pairs that occur less often (2)", 1, 1e18, NULL },
        { OPTION_CHOICE, "--data-format", &t.input, "FORMAT", "of the text: {} (auto: by the name)", 0, 0,
          format_choices(FORMATS_TEXT) },
        { OPTION_TEXT, "--field", &t.field, "NAME", "jsonl: field with the text (text)", 0, 0, NULL },
        { OPTION_CHOICE, "--on-bad", &t.on_bad, "WHAT", "on an invalid JSON line: {} (stop)", 0, 0, on_bads },
        { OPTION_INT, "--threads", &t.threads, "N", "number of threads (all cores); does not affect results", 1, 256,
          NULL },
        { OPTION_FLAG, "--quiet", &t.quiet, NULL, "do not show progress", 0, 0, NULL },
        { OPTION_FILES, "FILE", &t.files, "FILE", NULL, 0, 0, NULL },
        { 0 },
    };
    int code = options_read("data train-bpe", train_intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    if (!t.output) return data_missing("train-bpe", "-o FOLDER");
    int64_t begin = ls_now();
    uint32_t learned;
    ls_bpe_options o = { .paths = (const char *const *)t.files.items,
                         .n_paths = t.files.count,
                         .format = format_chosen(FORMATS_TEXT, t.input),
                         .field = t.field,
                         .skip_bad = t.on_bad == 1,
                         .vocab_size = (uint32_t)vocab_size,
                         .min_count = (uint64_t)least,
                         .output = t.output,
                         .threads = t.threads,
                         .progress = t.quiet ? NULL : data_show_progress,
                         .user = &begin };
    ls_log_set(data_show_log, NULL);
    ls_status status = ls_bpe_train(&o, &learned);
    if (!status)
        printf("%u tokens learned in %.1f s: %s/tokenizer.json\n", learned, (double)(ls_now() - begin) * 1e-9,
               printable(t.output));
    return report("data train-bpe", status);
}
