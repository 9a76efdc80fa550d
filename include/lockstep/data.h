/* lockstep/data.h: which samples come when, where they come from, and how they reach the trainer in time.
 *
 * Words    an epoch is cut into steps; a step is `slots` micro-batches over all ranks; a slot has `rows` samples. What
 *          stands in (epoch, step, slot, row) depends on the seed and on the data alone, never on ranks or workers.
 * Files    are named one by one, by a glob, or by a folder, of which the files directly in it count whose names end like data
 *          (.txt, .text, .jsonl, .ndjson, perhaps with .gz or .zst behind it, .json.gz, .json.zst, .bin). Empty files are
 *          skipped, and the log says so.
 * Failure  messages about files name the file and the byte at which it is wrong. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sampler: (epoch, step, slot) -> samples. */

typedef enum ls_order {
    LS_ORDER_SHUFFLED = 0,   /* a keyed permutation of each epoch; any position in constant time and memory */
    LS_ORDER_SEQUENTIAL = 1, /* 0, 1, 2... */
    LS_ORDER_TORCH = 2,      /* what torch's DistributedSampler deals to `ranks` ranks; takes 4 bytes a sample (8 from
                                2^32 samples on) for each of two epochs */
    LS_ORDER_BALANCED =
        3, /* micro-batches of samples of similar length, in random order, with equal work for all slots of
                                a step; see `length` */
} ls_order;
#define LS_ORDER_COUNT 4

/* "shuffled", "sequential"...; never NULL. */
LS_API const char *ls_order_name(ls_order order);
/* The order of that name; LS_EINVAL with the list of names if there is none. */
LS_API LS_MUST_CHECK ls_status ls_order_parse(const char *name, ls_order *out);

typedef struct ls_sampler_options {
    uint64_t samples; /* how many there are; at least 1 */
    ls_order order;   /* 0: shuffled */
    uint64_t seed;
    size_t rows;    /* samples of a slot; 0: 1 */
    int slots;      /* slots of a step, over all ranks; 0: `ranks` */
    int ranks;      /* torch deals to so many, and its order depends on it; others only check that it divides `slots`;
                        0: 1 */
    bool drop_last; /* leave out the samples that do not fill a step; default: the epoch's last step is short, its
                        rows dealt evenly to the slots. torch: DistributedSampler's drop_last */
    bool
        drop_step; /* torch: DataLoader's drop_last: each rank's samples that do not fill its part of a step are left out;
                        for other orders the same as drop_last */
    bool no_shuffle; /* torch: DistributedSampler(shuffle=False) */
    /* balanced: the work of a sample: its tokens, without padding. Called from the threads that ask for samples, one at a
     * time. */
    uint64_t (*length)(void *user, uint64_t sample);
    void *user;
} ls_sampler_options;

typedef struct ls_sampler ls_sampler;

/* On failure *out is NULL. The sampler may be used by several threads at once. */
LS_API LS_MUST_CHECK ls_status ls_sampler_open(ls_sampler **out, const ls_sampler_options *options);
LS_API void ls_sampler_free(ls_sampler **sampler);

/* Steps of an epoch; 0 when all samples are dropped. */
LS_API uint64_t ls_sampler_steps(const ls_sampler *sampler);
/* The samples of one slot: `samples` has room for `rows`; *count is how many there are (fewer, even 0, in a short last
 * step). A step or slot that does not exist is LS_EINVAL. */
LS_API LS_MUST_CHECK ls_status ls_sampler_get(ls_sampler *sampler, uint64_t epoch, uint64_t step, int slot,
                                              uint64_t *samples, size_t *count);

/* ---- Datasets: samples by number. Those of the library are below; to bring your own, fill in an ls_dataset. */

#define LS_MAX_FIELDS 4

/* One array of a sample: tokens, pixels, a label... */
typedef struct ls_field {
    const char *name;
    ls_dtype type;
    size_t count; /* elements of one sample */
} ls_field;

/* Where one sample is to be written, and what get() says about it. */
typedef struct ls_row {
    void *fields[LS_MAX_FIELDS]; /* room for the `count` elements of each field */
    size_t tokens;               /* set by get(): how many targets carry loss, the sample's weight in a mean */
    size_t length;               /* set by get(): positions in use; the rest is padding */
} ls_row;

typedef struct ls_dataset {
    uint64_t count; /* samples; at least 1 */
    int n_fields;
    ls_field fields[LS_MAX_FIELDS];
    void *self; /* handed to the functions */
    /* Writes one sample. Called from several threads at once, each with the state of its worker. To fail, return
     * ls_dataset_fail(): the message reaches the trainer, with the place in the order put before it. */
    ls_status (*get)(void *self, void *worker, uint64_t sample, ls_row *row);
    /* The functions below may be NULL. */
    uint64_t (*length)(void *self, uint64_t sample); /* the work of a sample, for the balanced order */
    ls_status (*worker_open)(void *self, int worker, void **state);
    void (*worker_free)(void *self, void *state);
    /* From now on file number `file` (in the order of the files) is read from `path`, a copy of it. Other threads may be
     * in get(). On failure nothing changes. NULL: the data are in no files, or cannot be staged. */
    ls_status (*redirect)(void *self, size_t file, const char *path);
    void (*free)(void *self); /* of a dataset made by the library; also frees the struct */
} ls_dataset;

/* Sets this thread's ls_error() and returns `status`. */
LS_API ls_status ls_dataset_fail(ls_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Calls dataset->free, if there is one. */
LS_API void ls_dataset_free(ls_dataset **dataset);

typedef enum ls_shard_format {
    LS_SHARD_AUTO = 0,   /* llm.c by its magic number; u16 if the name ends in .bin and the first bytes look like it */
    LS_SHARD_LLMC16 = 1, /* llm.c: header, then uint16 */
    LS_SHARD_LLMC32 = 2, /* llm.c: header, then uint32 */
    LS_SHARD_U16 = 3,    /* uint16 and nothing else, as nanoGPT has it */
    LS_SHARD_U32 = 4,    /* uint32 and nothing else */
} ls_shard_format;
#define LS_SHARD_FORMAT_COUNT 5
/* "auto", "llmc16"...; never NULL. */
LS_API const char *ls_shard_format_name(ls_shard_format format);
LS_API LS_MUST_CHECK ls_status ls_shard_format_parse(const char *name, ls_shard_format *out);

/* The fields of datasets of tokens, (rows, seq_len) each in a batch. Targets are the inputs, one place on. */
enum {
    LS_FIELD_INPUTS = 0,  /* int32 */
    LS_FIELD_TARGETS = 1, /* int32 */
    LS_FIELD_WEIGHTS = 2, /* float32: what each target's loss counts; only padded datasets have it */
    LS_FIELD_MASK = 3,    /* uint8: 1 where there is an input, 0 where there is padding; only padded datasets have it */
};

typedef struct ls_tokens_options {
    const char *const *paths; /* files, globs and folders; together they are one row of tokens */
    size_t n_paths;
    size_t seq_len;         /* tokens of a sample; at least 1 */
    ls_shard_format format; /* 0: auto */
    uint32_t vocabulary;    /* a token of this or more is an error; 0: any below 2^31 will do */
    int read_delay_us;      /* for measurements: each read takes so much longer, until the file is staged; 0: none */
} ls_tokens_options;

/* Shards of tokens, packed: sample i is tokens i * seq_len and the seq_len behind it, across documents and files. All
 * files are opened and their sizes checked; tokens are checked as they are read. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_tokens_open(ls_dataset **out, const ls_tokens_options *options);
/* How many tokens the files hold. */
LS_API uint64_t ls_tokens_count(const ls_dataset *tokens);

/* ---- Tokenizers: text to tokens and back. */

typedef struct ls_tokenizer ls_tokenizer; /* read-only once open; for any number of threads */
typedef struct ls_encoder ls_encoder;     /* memory to encode with; for one thread at a time */

/* `name` is "bytes" (each byte a token, 256 the end of a text), the path of a tokenizer.json, or a folder that has one,
 * or vocab.json and merges.txt, or OpenAI's encoder.json and vocab.bpe. GPT-2's kind only: byte-level BPE, with added tokens. On
 * failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_open(ls_tokenizer **out, const char *name);
LS_API void ls_tokenizer_free(ls_tokenizer **tokenizer);
/* Writes tokenizer.json, tokenizer_config.json, vocab.json and merges.txt into a folder, as Hugging Face's libraries read them.
 * What was read from a tokenizer.json and the files beside it (tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json, chat_template.jinja) is written as it was. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *folder);
/* All tokens are below this. */
LS_API uint32_t ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer);
/* The token that ends a text; -1 if there is none. It is the eos_token of the folder's tokenizer_config.json, or else the
 * eos_token_id of config.json or generation_config.json, or the eos_token of special_tokens_map.json, or "<|endoftext|>", or
 * else the only one of the usual names (</s>, <eos>, <|im_end|>...) among the special tokens. */
LS_API int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer);
/* Makes another token the one that ends a text; LS_EINVAL if there is no such token. Before the tokenizer is used. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_set_end(ls_tokenizer *tokenizer, const char *text);
/* The bytes of one token; NULL if there is no such token. */
LS_API const uint8_t *ls_tokenizer_bytes(const ls_tokenizer *tokenizer, int32_t token, size_t *count);
/* The text of `tokens`, in memory that the caller frees, with a 0 byte behind it that does not count. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                                                   char **out, size_t *bytes);

/* `tokenizer` stays the caller's and must outlive the encoder. */
LS_API LS_MUST_CHECK ls_status ls_encoder_open(ls_encoder **out, const ls_tokenizer *tokenizer);
LS_API void ls_encoder_free(ls_encoder **encoder);
/* The tokens of a text, in the encoder's memory until its next call. Any bytes will do: what is not valid UTF-8 is
 * split like punctuation, byte by byte, and decoding gives the very same bytes back (but for white space that an added token
 * takes along). The text of an added token, "<|endoftext|>" for example, becomes that token, as in Hugging Face's libraries. */
LS_API LS_MUST_CHECK ls_status ls_encode(ls_encoder *encoder, const void *text, size_t bytes, const int32_t **tokens,
                                         size_t *count);

/* ---- Text: files of it as a dataset, as shards, and to learn a tokenizer from. */

typedef enum ls_text_format {
    LS_TEXT_AUTO =
        0, /* jsonl for names that end in .jsonl, .ndjson or .json, otherwise plain; files that are no text by
                          their first bytes are refused */
    LS_TEXT_PLAIN = 1, /* a file is a document, whatever its bytes are */
    LS_TEXT_LINES = 2, /* a line is a document; empty lines are none */
    LS_TEXT_JSONL = 3, /* a line is a JSON object, and its text a field of that */
} ls_text_format;
#define LS_TEXT_FORMAT_COUNT 4
LS_API const char *ls_text_format_name(ls_text_format format);
LS_API LS_MUST_CHECK ls_status ls_text_format_parse(const char *name, ls_text_format *out);

/* Files of text may be compressed with gzip or zstd; their first bytes tell, and an end .gz or .zst of the name does not
 * count. To be read at any place, for ls_text_open(), they are unpacked into a file without a name in $TMPDIR or /var/tmp. */

/* Called now and then with the bytes done and the bytes there are. Not from several threads at once. */
typedef void (*ls_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Documents that are kept back from training, to evaluate on: each is chosen or not by itself, by the seed and its place in the
 * files (of plain files read as packed text, a document is a whole file). */
typedef struct ls_hold_out {
    double fraction; /* how many of them, about; 0: none */
    uint64_t seed;
    bool held_out; /* the dataset has those that were chosen; default: all others */
} ls_hold_out;

typedef struct ls_text_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_text_format format;         /* 0: auto */
    const char *field;             /* jsonl: the field with the text; NULL: "text" */
    const char *prompt_field;      /* jsonl, padded: a text before it that carries no loss; NULL: none */
    const char *weight_field;      /* jsonl, padded: a number, what the document's loss counts; NULL: 1 */
    const ls_tokenizer *tokenizer; /* stays the caller's and must outlive the dataset */
    size_t seq_len;
    bool
        padded; /* a sample is a document (of plain files: a line), cut or padded to seq_len; default: packed, as ls_tokens_open() has it, with
                    the tokenizer's end token behind each document */
    bool
        lengths; /* padded: count every document's tokens at the start, for the balanced order, which then deals tokens;
                     default: bytes stand for them */
    bool skip_bad;        /* jsonl: leave out lines that are wrong, and log how many; default: they are LS_EFORMAT */
    ls_hold_out hold_out; /* which documents the dataset has; all zero: all */
    int threads;          /* how many count the tokens at the start; 0: as many as there are cores */
} ls_text_options;

/* Text that the workers tokenize as they go. Packed, all of it is tokenized once at the start to learn where samples
 * begin; shards made by ls_tokenize() start at once. Padded, a document longer than seq_len loses its end. On failure
 * *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_text_open(ls_dataset **out, const ls_text_options *options);
/* How many documents a dataset of text has. */
LS_API uint64_t ls_text_documents(const ls_dataset *text);

typedef struct ls_tokenize_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_text_format format; /* 0: auto */
    const char *field;     /* jsonl: NULL: "text" */
    bool skip_bad;         /* jsonl: see ls_text_options */
    const ls_tokenizer *tokenizer;
    const char *output; /* shards are output-00000.bin and so on; their folder is made if need be */
    bool
        replace; /* shards of that name that are there already are replaced, and any beyond the new ones removed; default:
                     they are LS_EINVAL, because old and new ones would be taken for one row */
    ls_shard_format shard_format; /* 0: llmc16 if the vocabulary fits, otherwise llmc32 */
    uint64_t shard_tokens;        /* of a shard; 0: 100,000,000 */
    int threads;                  /* 0: as many as there are cores */
    ls_progress_fn progress;      /* NULL: none */
    void *user;
} ls_tokenize_options;

typedef struct ls_tokenize_result {
    uint64_t documents, bytes, tokens, shards;
    uint64_t bad_lines; /* that were skipped */
} ls_tokenize_result;

/* Tokenizes files into shards, with the end token behind each document. The shards do not depend on the number of
 * threads. All get their names at the end, or none: on failure, and when the process is killed, those that were there stay. (What is
 * killed while names are changed is completed by the next who reads or writes these shards with this library.) */
LS_API LS_MUST_CHECK ls_status ls_tokenize(const ls_tokenize_options *options, ls_tokenize_result *result);

typedef struct ls_bpe_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_text_format format;   /* 0: auto */
    const char *field;       /* jsonl: NULL: "text" */
    bool skip_bad;           /* jsonl: see ls_text_options */
    uint32_t vocabulary;     /* tokens to learn, the 256 bytes and the end token among them; at least 257 */
    uint64_t least;          /* pairs that are seen less often are not merged; 0: 2 */
    const char *output;      /* folder for vocab.json, merges.txt and tokenizer.json */
    int threads;             /* 0: as many as there are cores */
    ls_progress_fn progress; /* NULL: none */
    void *user;
} ls_bpe_options;

/* Learns a byte-pair encoding. *learned is how many tokens it has: fewer than asked for if the text gives no more. */
LS_API LS_MUST_CHECK ls_status ls_bpe_train(const ls_bpe_options *options, uint32_t *learned);

/* ---- Staging: copies of files on a disk of this machine, made once, for all ranks and later runs. */

typedef struct ls_stage_options {
    const char
        *folder; /* where copies live; made if need be. Several jobs and users may use it at the same time: each user
                           has a folder of their own in it, which nobody else can enter */
    uint64_t
        limit; /* bytes that all of the user's copies together may take; the least recently used ones that nobody reads go
                           first. 0: what the disk has room for, less a twentieth */
    bool strict; /* a file that cannot be staged is an error; default: it is read where it is, and the log says why */
    bool verify; /* check the checksums of copies that are there already; default: their size and time */
    bool background; /* do not wait: until its copy is there, a file is read where it is. `ready` tells when */
    /* background: called from a thread of the stage when the copy of file number `file` is there. `path` stays valid
     * until ls_stage_free(). */
    void (*ready)(void *user, size_t file, const char *path);
    ls_progress_fn progress; /* of the copying, over all files; NULL: none */
    void *user;
} ls_stage_options;

/* What staging did, and what it is worth. Rates are bytes a second; 0: not measured, because nothing was copied. */
typedef struct ls_stage_report {
    size_t files;   /* all */
    size_t copied;  /* by us, now */
    size_t found;   /* that were there, or that another process made while we waited */
    size_t failed;  /* read where they are */
    uint64_t bytes; /* of all files */
    uint64_t copied_bytes;
    double seconds;     /* it took, waiting included */
    double source_rate; /* of the original files, as they were copied */
    double local_rate;  /* of the copies, read back from the disk (its cache was asked to forget them) */
} ls_stage_report;

typedef struct ls_stage ls_stage;

/* Copies the files (and globs) that are not there yet, or waits while another process does. As long as the stage is
 * open its copies are not removed. A copy is complete, checked and of the very file that is there now, or it is not
 * used: the original's size and times are part of its name. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_stage_open(ls_stage **out, const char *const *paths, size_t n_paths,
                                             const ls_stage_options *options);
/* Ends copying in the background, and lets go of the copies; they stay on the disk. */
LS_API void ls_stage_free(ls_stage **stage);
/* Where file number `file` is to be read: its copy, or the original. background: the original, see `ready`. NULL: there
 * are not so many files. */
LS_API const char *ls_stage_path(const ls_stage *stage, size_t file);
LS_API ls_stage_report ls_stage_report_get(const ls_stage *stage);
/* One line on whether it pays, for example "source 112.0 MB/s, local 1900.0 MB/s: pays from the 2nd epoch on". */
LS_API void ls_stage_verdict(const ls_stage_report *report, char *out, size_t room);

/* ---- Loader: batches, built ahead of time by worker threads, in the order of the sampler. */

#define LS_WORKERS_AUTO (-1)

typedef struct ls_loader_options {
    int workers;     /* threads that build batches; 0: none, ls_loader_next() builds them itself; LS_WORKERS_AUTO: as
                        many, and as far ahead, as it takes that the trainer does not wait; found while training */
    int prefetch;    /* batches that may be ready or under way for each worker; 0: 2 (auto: found) */
    int max_workers; /* auto: at most so many; 0: 32 */
    size_t rows;     /* samples of a batch; 0: 1 */
    int slots;       /* batches of a step, over all ranks; 0: `ranks` */
    int rank, ranks; /* this rank gets slots [rank * slots / ranks, (rank + 1) * slots / ranks); 0 of 0: 0 of 1 */
    ls_order order;  /* this, seed, drop_last, drop_step and no_shuffle: see ls_sampler_options */
    int order_ranks; /* torch: the ranks that the order deals to; 0: `ranks` */
    uint64_t seed;
    bool drop_last;
    bool drop_step;
    bool no_shuffle;
    uint64_t epochs; /* then comes LS_END; 0: without end */
    int timeout_ms;  /* how long ls_loader_next() waits for a batch; 0: as long as it takes */
    /* Called once in each worker's thread before its first sample (inline: in the caller's thread). */
    ls_status (*worker_init)(void *user, int worker);
    void *user;
} ls_loader_options;

typedef struct ls_batch {
    uint64_t epoch, step;
    int slot;
    size_t rows;                 /* fewer than asked for, even 0, in the last step of an epoch */
    size_t tokens;               /* sum of the rows' tokens */
    size_t longest;              /* the largest of the rows' lengths */
    const uint64_t *samples;     /* (rows): which samples they are */
    void *fields[LS_MAX_FIELDS]; /* (rows, count of the field), aligned to 64 */
} ls_batch;

/* Where a run is in its data: all that a checkpoint needs. The same on every rank, and valid for any number of ranks.
 */
typedef struct ls_loader_state {
    uint64_t epoch, step;
    uint64_t fingerprint; /* of order, seed, samples and batch shape: those must be the same again */
} ls_loader_state;

typedef struct ls_loader_stats {
    uint64_t batches;
    int64_t wait_ns;    /* time that ls_loader_next() kept its caller */
    int64_t load_ns;    /* time that it took to build those batches, wherever */
    int workers;        /* now */
    int prefetch;       /* now; each worker's */
    size_t batch_bytes; /* memory of one batch */
    int ready;          /* batches that were waiting when the last one was asked for */
    int worker;         /* that built the last one; -1: none, ls_loader_next() built it */
    int64_t built;      /* ls_now() when it was done */
} ls_loader_stats;

typedef struct ls_loader ls_loader;

/* `dataset` stays the caller's and must outlive the loader. Workers start at once. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_loader_open(ls_loader **out, const ls_dataset *dataset,
                                              const ls_loader_options *options);
/* Waits for the samples that workers are just reading, then frees all. */
LS_API void ls_loader_free(ls_loader **loader);

/* The next batch of this rank: the slots of its block, step by step, epoch after epoch. It belongs to the caller, who
 * may write to it, until the next call on the loader. LS_END after the last epoch. If a sample cannot be had, the
 * error comes in its turn, after all batches before it, and again until ls_loader_seek(). LS_ETIMEOUT may be tried
 * again. */
LS_API LS_MUST_CHECK ls_status ls_loader_next(ls_loader *loader, ls_batch **out);

/* Steps of an epoch. */
LS_API uint64_t ls_loader_steps(const ls_loader *loader);
/* The first step of which not all batches were handed out. */
LS_API ls_loader_state ls_loader_tell(const ls_loader *loader);
/* The next batch will be the first of that step. A state of other data or another order is LS_EINVAL. */
LS_API LS_MUST_CHECK ls_status ls_loader_seek(ls_loader *loader, const ls_loader_state *state);
LS_API ls_loader_stats ls_loader_stats_get(const ls_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
