/* lockstep data info: describes files and checks their whole content. An invalid file is reported with the byte, and the others are
 * still checked. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/escape.h"
#include "cli/format_choices.h"
#include "cli/options.h"
#include "cli/option_names.h"
#include "data/documents.h"
#include "data/format.h"
#include "data/names.h"
#include "data/recognize.h"
#include "data/shard.h"
#include "train/settings.h"

static const char intro[] = "usage: lockstep data info [OPTIONS] FILE...\n\n"
                            "Describes token shards and text files, and checks their whole content.\n\n";

typedef struct info_options {
    ls_data_format format; /* auto: each file's own */
    const char *field;
    uint64_t vocab_size;
    ls_tokenizer *tokenizer;
    bool quick, json, skip_bad;
} info_options;

enum { READ = 8192, SHOWN = 40 };

/* Takes `line` over. */
static void print_json(json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    if (text) printf("%s\n", text);
    free(text);
    json_decref(line);
}

/* The beginning of a shard as text, on one line. */
static void show_beginning(const info_options *o, const int32_t *tokens, size_t count)
{
    char *text;
    size_t bytes;
    if (ls_tokenizer_decode(o->tokenizer, tokens, count < SHOWN ? count : SHOWN, &text, &bytes)) return;
    char *line = ls__printable_copy(text, bytes);
    if (line) printf("    %s\n", line);
    free(line);
    free(text);
}

static ls_status describe_shard(const info_options *o, const ls__source *file, uint64_t *total)
{
    ls__shard shard;
    int32_t tokens[READ], least = INT32_MAX, most = 0, end = o->tokenizer ? ls_tokenizer_end_token(o->tokenizer) : -1;
    uint64_t ends = 0;
    ls_status status = ls__shard_examine(file, o->format, &shard);
    for (uint64_t at = 0; !status && !o->quick && at < shard.tokens;) {
        size_t n = shard.tokens - at < READ ? shard.tokens - at : READ;
        status = ls__shard_read(file, &shard, at, n, (uint32_t)o->vocab_size, tokens);
        for (size_t i = 0; !status && i < n; i++) {
            if (tokens[i] < least) least = tokens[i];
            if (tokens[i] > most) most = tokens[i];
            ends += tokens[i] == end;
        }
        at += n;
    }
    if (status) return status;
    *total += shard.tokens;
    if (o->json) {
        json_t *line = json_pack("{s:o, s:s, s:I}", "file", ls__settings_name(file->path), "format",
                                 ls__format_name(shard.format), "tokens", (json_int_t)shard.tokens);
        if (!o->quick) json_object_set_new(line, "least", json_integer(least));
        if (!o->quick) json_object_set_new(line, "most", json_integer(most));
        if (!o->quick && end >= 0) json_object_set_new(line, "ends", json_integer((json_int_t)ends));
        print_json(line);
        return LS_OK;
    }
    printf("%s: %s, %" PRIu64 " token%s", printable(file->path), ls__format_name(shard.format), shard.tokens,
           ls__s((int64_t)shard.tokens));
    if (!o->quick) printf(" from %d to %d", least, most);
    if (!o->quick && end >= 0) printf(", %" PRIu64 " end%s of text", ends, ls__s((int64_t)ends));
    printf("\n");
    if (!o->tokenizer) return LS_OK;
    size_t n = shard.tokens < SHOWN ? shard.tokens : SHOWN;
    status = ls__shard_read(file, &shard, 0, n, (uint32_t)o->vocab_size, tokens);
    if (!status) show_beginning(o, tokens, n);
    return status;
}

typedef struct text_count {
    uint64_t documents, bytes, longest, current;
} text_count;

static ls_status count_document(void *user, const ls__document *d)
{
    text_count *c = user;
    c->bytes += d->text_bytes;
    c->current += d->text_bytes;
    if (c->current > c->longest) c->longest = c->current;
    if (d->ends) c->current = 0;
    c->documents += d->ends;
    return LS_OK;
}

static ls_status describe_text(const info_options *o, const ls__sources *one)
{
    const ls__source *file = one->files;
    static const char *const packings[] = { "", ", gzip", ", zstd" }; /* as ls__packing */
    ls__chunks chunks = { .sources = one, .size = 1 << 20 };
    ls__fields fields = { .text = o->field, .skip_bad = o->skip_bad };
    ls__bad_lines bad = { 0 };
    ls__chunk chunk = { 0 };
    text_count c = { 0 };
    ls_status status = LS_OK;
    while (!o->quick && !(status = ls__chunks_next(&chunks, &chunk))) {
        status = ls__chunk_documents(&chunk, &fields, &bad, count_document, &c);
        if (status) break;
    }
    free(chunk.bytes);
    ls__chunks_close(&chunks);
    if (status < 0) return status;
    if (o->json) {
        json_t *line = json_pack("{s:o, s:s, s:I}", "file", ls__settings_name(file->path), "format",
                                 ls__format_name(file->format), "bytes", (json_int_t)file->bytes);
        if (file->packing) json_object_set_new(line, "compression", json_string(packings[file->packing] + 2));
        if (!o->quick) json_object_set_new(line, "documents", json_integer((json_int_t)c.documents));
        if (!o->quick) json_object_set_new(line, "text_bytes", json_integer((json_int_t)c.bytes));
        if (!o->quick) json_object_set_new(line, "longest", json_integer((json_int_t)c.longest));
        if (o->skip_bad) json_object_set_new(line, "bad_lines", json_integer((json_int_t)bad.count));
        print_json(line);
        return LS_OK;
    }
    printf("%s: %s%s, %" PRIu64 " byte%s", printable(file->path), ls__format_name(file->format),
           packings[file->packing], file->bytes, ls__s((int64_t)file->bytes));
    if (!o->quick)
        printf(", %" PRIu64 " document%s of %" PRIu64 " byte%s of text, the longest of %" PRIu64, c.documents,
               ls__s((int64_t)c.documents), c.bytes, ls__s((int64_t)c.bytes), c.longest);
    if (bad.count) printf("; %" PRIu64 " invalid line%s skipped", bad.count, ls__s((int64_t)bad.count));
    printf("\n");
    ls__bad_lines_warn(&bad);
    return LS_OK;
}

/* -1 to continue, or an exit code. */
static int parse(int argc, char **argv, info_options *o, option_list *files)
{
    static const char *const on_bads[] = { "stop", "skip", NULL };
    int format = 0, vocab_size = 0, on_bad = 0;
    const char *tokenizer = NULL;
    const option_row rows[] = {
        { OPTION_CHOICE, "--data-format", &format, "FORMAT", "{} (auto)", 0, 0, format_choices(FORMATS_ALL) },
        { OPTION_TEXT, "--field", &o->field, "NAME", "jsonl: field with the text (text)", 0, 0, NULL },
        { OPTION_CHOICE, "--on-bad", &on_bad, "WHAT", "on an invalid JSON line: {} (stop)", 0, 0, on_bads },
        { OPTION_INT, "--vocab-size", &vocab_size, "N", "vocabulary size: a token ≥ N is an error", 1, 2147483647,
          NULL },
        { OPTION_TEXT, "--tokenizer", &tokenizer, "NAME",
          "show the beginning of each shard as text; check its vocabulary", 0, 0, NULL },
        { OPTION_FLAG, "--json", &o->json, NULL, "print one JSON object per file", 0, 0, NULL },
        { OPTION_FLAG, "--quick", &o->quick, NULL, "check headers and sizes only", 0, 0, NULL },
        { OPTION_FILES, "FILE", files, "FILE", NULL, 0, 0, NULL },
        { 0 },
    };
    int code = options_read("data info", intro, rows, NULL, argc, argv);
    if (code >= 0) return code;
    o->vocab_size = (uint64_t)vocab_size;
    o->skip_bad = on_bad == 1;
    ls_log_set(data_show_log, NULL);
    o->format = format_chosen(FORMATS_ALL, format);
    ls_status status = tokenizer ? ls_tokenizer_open(&o->tokenizer, tokenizer, NULL) : LS_OK;
    return status ? exit_failure("data info", status) : -1;
}

static void complain(const info_options *o, const char *name)
{
    fflush(stdout);
    if (o->json)
        print_json(json_pack("{s:o, s:s}", "file", ls__settings_name(name), "error", words_of_program(ls_error())));
    else
        fprintf(stderr, "lockstep data info: %s\n", words_of_program(ls_error()));
}

/* Describes one file, or prints what is wrong with it. */
static ls_status describe(const info_options *o, const char *name, uint64_t *total)
{
    ls__sources one = { 0 };
    bool text = ls__format_of(o->format)->is_text;
    ls_status status = o->format ? LS_OK : ls__sources_are_text(&name, 1, &text);
    if (!status) status = text ? ls__sources_open_text(&one, &name, 1, o->format) : ls__sources_open(&one, &name, 1);
    if (!status) status = text ? describe_text(o, &one) : describe_shard(o, one.files, total);
    if (status) complain(o, name);
    ls__sources_close(&one);
    return status;
}

int data_info(int argc, char **argv)
{
    info_options o = { 0 };
    option_list list = { 0 };
    int code = parse(argc, argv, &o, &list);
    if (code >= 0) return code;
    if (o.tokenizer && !o.vocab_size) o.vocab_size = ls_tokenizer_vocab_size(o.tokenizer);
    uint64_t total = 0, files = 0, wrong = 0;
    for (size_t i = 0; i < list.count; i++) {
        ls__names names;
        const char *pattern = list.items[i];
        ls_status status = ls__names_find(&names, &pattern, 1);
        if (status) {
            complain(&o, pattern);
            files++, wrong++;
            if (code <= 0) code = exit_code_of_check(status);
            continue;
        }
        struct stat at;
        bool is_folder = !stat(pattern, &at) && S_ISDIR(at.st_mode);
        if (names.left_out)
            fprintf(stderr, "lockstep data info: %zu file%s with an unknown suffix skipped, like %s\n", names.left_out,
                    ls__s((int64_t)names.left_out), printable(names.example));
        for (size_t k = 0; k < names.count; k++) {
            struct stat st;
            if (is_folder && !stat(names.items[k], &st) && !st.st_size) {
                fprintf(stderr, "lockstep data info: %s: empty file, skipped\n", printable(names.items[k]));
                continue;
            }
            files++;
            status = describe(&o, names.items[k], &total);
            wrong += status != LS_OK;
            if (code <= 0) code = exit_code_of_check(status);
        }
        ls__names_free(&names);
    }
    if (files > 1 && !o.json)
        printf("%" PRIu64 " files, %" PRIu64 " of them invalid, %" PRIu64 " token%s\n", files, wrong, total,
               ls__s((int64_t)total));
    ls_tokenizer_free(&o.tokenizer);
    return code;
}
