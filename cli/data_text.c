/* lockstep data tokenize and train-bpe: text to shards, and text to a tokenizer. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/data.h"
#include "lockstep/data.h"

static const char tokenize_usage[] =
    "usage: lockstep data tokenize -o PREFIX [OPTIONS] FILE...\n\n"
    "Tokenizes text into shards PREFIX-00000.bin and so on, with the end token behind each document.\n\n"
    "  -o PREFIX            where the shards go\n"
    "  --tokenizer NAME     bytes (default), or the folder or tokenizer.json of a byte-level BPE like GPT-2's\n"
    "  --input FORMAT       auto (default), plain, lines, jsonl\n"
    "  --field NAME         jsonl: the member with the text (text)\n"
    "  --format FORMAT      llmc16, llmc32, raw16 (nanoGPT), raw32; default: llm.c's, as wide as it takes\n"
    "  --shard-tokens N     tokens of a shard (100M)\n"
    "  --threads N          (all cores)\n"
    "  --quiet              no progress\n";

static const char train_usage[] = "usage: lockstep data train-bpe -o FOLDER [OPTIONS] FILE...\n\n"
                                  "Learns a byte-level BPE and writes vocab.json, merges.txt and tokenizer.json.\n\n"
                                  "  -o FOLDER            where the tokenizer goes\n"
                                  "  --vocab N            tokens, 256 bytes and the end of text among them (50257)\n"
                                  "  --min-count N        pairs that come less often are not merged (2)\n"
                                  "  --input FORMAT       auto (default), plain, lines, jsonl\n"
                                  "  --field NAME         jsonl: the member with the text (text)\n"
                                  "  --threads N          (all cores)\n"
                                  "  --quiet              no progress\n";

typedef struct text_options {
    const char *output, *tokenizer, *field;
    ls_text_format input;
    ls_shard_format format;
    uint64_t shard_tokens, vocabulary, least, threads;
    bool quiet;
    const char *const *paths;
    size_t n_paths;
} text_options;

/* EXIT_DONE when all options are understood; otherwise what is wrong has been said. */
static int parse(int argc, char **argv, const char *usage, bool train, text_options *o)
{
    enum { TOKENIZER = 256, INPUT, FIELD, FORMAT, SHARD_TOKENS, VOCAB, MIN_COUNT, THREADS, QUIET, HELP };
    static const struct option options[] = {
        { "output", 1, NULL, 'o' },
        { "input", 1, NULL, INPUT },
        { "field", 1, NULL, FIELD },
        { "threads", 1, NULL, THREADS },
        { "quiet", 0, NULL, QUIET },
        { "help", 0, NULL, HELP },
        { "tokenizer", 1, NULL, TOKENIZER },
        { "format", 1, NULL, FORMAT },
        { "shard-tokens", 1, NULL, SHARD_TOKENS },
        { "vocab", 1, NULL, VOCAB },
        { "min-count", 1, NULL, MIN_COUNT },
        { 0 },
    };
    *o = (text_options){ .tokenizer = "bytes", .vocabulary = 50257 };
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "o:h", options, NULL)) != -1;) {
        bool good =
            c != '?' && !(train ? c == TOKENIZER || c == FORMAT || c == SHARD_TOKENS : c == VOCAB || c == MIN_COUNT);
        switch (c) {
        case 'h':
        case HELP: fputs(usage, stdout); exit(EXIT_DONE);
        case 'o': o->output = optarg; break;
        case TOKENIZER: o->tokenizer = optarg; break;
        case FIELD: o->field = optarg; break;
        case QUIET: o->quiet = true; break;
        case INPUT:
        case FORMAT:
            if (c == INPUT ? ls_text_format_parse(optarg, &o->input) : ls_shard_format_parse(optarg, &o->format)) {
                fprintf(stderr, "lockstep data: %s\n", ls_error());
                return EXIT_USAGE;
            }
            break;
        case SHARD_TOKENS: good &= data_parse_number("shard-tokens", optarg, 1, INT32_MAX, &o->shard_tokens); break;
        case VOCAB: good &= data_parse_number("vocab", optarg, 257, 1 << 22, &o->vocabulary); break;
        case MIN_COUNT: good &= data_parse_number("min-count", optarg, 1, INT64_MAX, &o->least); break;
        case THREADS: good &= data_parse_number("threads", optarg, 1, 256, &o->threads); break;
        }
        if (!good) return EXIT_USAGE;
    }
    o->paths = (const char *const *)(argv + optind);
    o->n_paths = (size_t)(argc - optind);
    if (o->output && o->n_paths) return EXIT_DONE;
    fputs(usage, stderr);
    return EXIT_USAGE;
}

static int report(const char *command, ls_status status)
{
    if (!status) return EXIT_DONE;
    fprintf(stderr, "lockstep data %s: %s\n", command, ls_error());
    return status == LS_EINVAL ? EXIT_USAGE : EXIT_FAILED;
}

int data_tokenize(int argc, char **argv)
{
    text_options t;
    int code = parse(argc, argv, tokenize_usage, false, &t);
    if (code != EXIT_DONE) return code;
    ls_tokenizer *tokenizer = NULL;
    ls_status status = ls_tokenizer_open(&tokenizer, t.tokenizer);
    int64_t begin = ls_now();
    ls_tokenize_result r = { 0 };
    if (!status) {
        ls_tokenize_options o = { .paths = t.paths,
                                  .n_paths = t.n_paths,
                                  .format = t.input,
                                  .field = t.field,
                                  .tokenizer = tokenizer,
                                  .output = t.output,
                                  .shard_format = t.format,
                                  .shard_tokens = t.shard_tokens,
                                  .threads = (int)t.threads,
                                  .progress = t.quiet ? NULL : data_show_progress,
                                  .user = &begin };
        status = ls_tokenize(&o, &r);
    }
    ls_tokenizer_free(&tokenizer);
    double seconds = (double)(ls_now() - begin) * 1e-9;
    if (!status)
        printf("%" PRIu64 " documents, %" PRIu64 " bytes, %" PRIu64 " tokens in %" PRIu64 " shard%s; %.1f MB/s\n",
               r.documents, r.bytes, r.tokens, r.shards, r.shards == 1 ? "" : "s", (double)r.bytes * 1e-6 / seconds);
    else if (r.shards)
        fprintf(stderr, "lockstep data tokenize: the first %" PRIu64 " shards are whole\n", r.shards);
    return report("tokenize", status);
}

int data_train_bpe(int argc, char **argv)
{
    text_options t;
    int code = parse(argc, argv, train_usage, true, &t);
    if (code != EXIT_DONE) return code;
    int64_t begin = ls_now();
    uint32_t learned;
    ls_bpe_options o = { .paths = t.paths,
                         .n_paths = t.n_paths,
                         .format = t.input,
                         .field = t.field,
                         .vocabulary = (uint32_t)t.vocabulary,
                         .least = t.least,
                         .output = t.output,
                         .threads = (int)t.threads,
                         .progress = t.quiet ? NULL : data_show_progress,
                         .user = &begin };
    ls_log_set(data_show_log, NULL);
    ls_status status = ls_bpe_train(&o, &learned);
    if (!status)
        printf("%u tokens learned in %.1f s: %s/tokenizer.json\n", learned, (double)(ls_now() - begin) * 1e-9,
               t.output);
    return report("train-bpe", status);
}
