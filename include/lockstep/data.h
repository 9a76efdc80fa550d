/* lockstep/data.h: datasets, the order of samples, tokenizers, and the loader that builds batches ahead of time.
 *
 * Order    an epoch consists of steps, a step of `slots` micro-batches over all ranks, a slot of `batch_size` samples. The
 *          sample at (epoch, step, slot, row) depends only on the seed and the data, never on ranks or workers.
 * Files    are given by name, by a glob, or by a folder. Of a folder, the files directly in it are used whose names end in .txt,
 *          .text, .jsonl, .ndjson (each also with .gz or .zst), .json.gz, .json.zst or .bin. Empty files are skipped with a
 *          warning.
 * Options  structs are zero-initialized; zero means the default, which is in the field's comment.
 * Failure  messages about files name the file and the byte at which it is invalid. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <stdbool.h>
#include "lockstep/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sampler: (epoch, step, slot) -> samples. */

/* shuffled    a keyed permutation of each epoch; any position in constant time and memory
 * sequential  0, 1, 2...
 * torch       the order of torch's DistributedSampler on `world_size` ranks; needs 4 bytes per sample (8 from 2^32 samples on) for each of
 *             two epochs
 * balanced    micro-batches of samples of similar length, in random order, with equal work for all slots of a step; see `length` */
#define LS_ORDER_LIST(X)                    \
    X(LS_ORDER_SHUFFLED, 0, "shuffled")     \
    X(LS_ORDER_SEQUENTIAL, 1, "sequential") \
    X(LS_ORDER_TORCH, 2, "torch")           \
    X(LS_ORDER_BALANCED, 3, "balanced")

typedef enum ls_order {
#define X(name, value, text) name = (value),
    LS_ORDER_LIST(X)
#undef X
} ls_order;
enum { LS_ORDER_COUNT = 0 LS_ORDER_LIST(LS_COUNT_ENTRY) };

typedef struct ls_sampler_options {
    uint64_t samples; /* number of samples; at least 1 */
    ls_order order;   /* 0: shuffled */
    uint64_t seed;
    size_t batch_size; /* samples per slot; 0: 1 */
    int slots;         /* slots per step, over all ranks; 0: world_size */
    int world_size;  /* torch: what the order depends on; must divide `slots`. Other orders do not depend on it; 0: 1 */
    bool drop_last;  /* drop the samples that do not fill a step; default: the epoch's last step is short, its
                          samples spread evenly over the slots. torch: DistributedSampler's drop_last */
    bool drop_step;  /* torch: DataLoader's drop_last: drop each rank's samples that do not fill its part of a step;
                          other orders: same as drop_last */
    bool no_shuffle; /* torch: DistributedSampler(shuffle=False) */
    /* balanced: the length of a sample in tokens, without padding. Called from the threads that request samples, one at a
     * time. */
    uint64_t (*length)(void *user, uint64_t sample);
    void *user;
    void *reserved[2];
} ls_sampler_options;

typedef struct ls_sampler ls_sampler;

/* On failure *out is NULL. Several threads may use the sampler at the same time. */
LS_API LS_MUST_CHECK ls_status ls_sampler_open(ls_sampler **out, const ls_sampler_options *options);
LS_API void ls_sampler_free(ls_sampler **sampler);

/* Steps of an epoch; 0 if all samples are dropped. */
LS_API uint64_t ls_sampler_steps(const ls_sampler *sampler);
/* The samples of one slot: `samples` has room for `batch_size`; *count is the number written (less than that, even 0, in a
 * short last step). A step or slot out of range is LS_EINVAL. */
LS_API LS_MUST_CHECK ls_status ls_sampler_get_samples(ls_sampler *sampler, uint64_t epoch, uint64_t step, int slot,
                                                      uint64_t *samples, size_t *count);

/* ---- Datasets: samples by number. The library has datasets of tokens and of text, see below; a program can fill in an
 * ls_dataset itself. */

#define LS_MAX_FIELDS 4

/* One array of a sample: tokens, pixels, a label... */
typedef struct ls_field {
    const char *name;
    ls_dtype type;
    size_t count; /* elements per sample */
} ls_field;

/* Where get() writes one sample, and what it reports about it. */
typedef struct ls_row {
    void *fields[LS_MAX_FIELDS]; /* room for the `count` elements of each field */
    size_t tokens;               /* set by get(): number of targets that have a loss, the sample's weight in a mean */
    size_t length;               /* set by get(): positions in use; the rest is padding */
} ls_row;

typedef struct ls_dataset {
    uint64_t count; /* number of samples; at least 1 */
    int n_fields;
    ls_field fields[LS_MAX_FIELDS];
    void *self; /* passed to the functions */
    /* Writes one sample, from 0 to count - 1. Called from several threads at once, each with the state that worker_open() made
     * for it, or NULL if the dataset has no worker_open(). The library's own datasets return LS_EINVAL if the sample does not
     * exist, or the state is NULL and one is needed. To fail, return ls_error_set(): the loader's caller gets the message, with the
     * place in the order in front. */
    ls_status (*get)(void *self, void *worker, uint64_t sample, ls_row *row);
    /* The functions below may be NULL. */
    uint64_t (*length)(void *self, uint64_t sample); /* a sample's length in tokens, for the balanced order */
    ls_status (*worker_open)(void *self, int worker, void **state);
    void (*worker_free)(void *self, void *state);
    /* Reads file number `file` (in the order of the files) from `path`, a copy of it, from now on. Other threads may be in get().
     * On failure nothing changes. NULL: the data are not in files, or cannot be staged. */
    ls_status (*redirect)(void *self, size_t file, const char *path);
    void (*free)(void *self); /* for datasets made by the library; also frees the struct */
    void *reserved[2];
} ls_dataset;

/* Calls dataset->free, if there is one. */
LS_API void ls_dataset_free(ls_dataset **dataset);

/* The format of data files. */
typedef enum ls_data_format {
    LS_FORMAT_AUTO = 0, /* by the file's name and first bytes: jsonl for .jsonl, .ndjson and .json; llmc16 and llmc32 by
                           their magic number; u16 for .bin that looks like it; otherwise plain. Files of other known
                           formats (Parquet, ZIP...) are refused */
    /* text: */
    LS_FORMAT_PLAIN = 1, /* a file is a document, whatever its bytes are */
    LS_FORMAT_LINES = 2, /* a line is a document; empty lines are skipped */
    LS_FORMAT_JSONL = 3, /* a line is a JSON object with the text in one field */
    /* shards of tokens: */
    LS_FORMAT_LLMC16 = 4, /* llm.c: header, then uint16 */
    LS_FORMAT_LLMC32 = 5, /* llm.c: header, then uint32 */
    LS_FORMAT_U16 = 6,    /* uint16 without a header, as nanoGPT writes it */
    LS_FORMAT_U32 = 7,    /* uint32 without a header */
    LS_FORMAT_COUNT
} ls_data_format;

/* The fields of datasets of tokens, (batch_size, seq_len) each in a batch. Targets are the inputs shifted by one. */
enum {
    LS_FIELD_INPUTS = 0,  /* int32 */
    LS_FIELD_TARGETS = 1, /* int32 */
    LS_FIELD_WEIGHTS = 2, /* float32: weight of each target's loss; padded datasets only */
    LS_FIELD_MASK = 3,    /* uint8: 1 for an input, 0 for padding; padded datasets only */
};

typedef struct ls_tokens_options {
    const char *const *paths; /* files, globs and folders, read as one sequence of tokens */
    size_t n_paths;
    size_t seq_len;        /* tokens per sample; at least 1 */
    ls_data_format format; /* of shards; 0: auto */
    uint32_t vocab_size;   /* a token >= vocab_size is an error; 0: any token below 2^31 is accepted */
    void *reserved[2];
} ls_tokens_options;

/* Shards of tokens, packed: sample i is the seq_len tokens from i * seq_len on, across documents and files. All files are
 * opened and their sizes checked; tokens are checked as they are read. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_tokens_open(ls_dataset **out, const ls_tokens_options *options);

/* ---- Tokenizers: text to tokens and back. */

typedef struct ls_tokenizer ls_tokenizer; /* read-only once open; any number of threads may use it */
typedef struct ls_encoder ls_encoder;     /* working memory of encoding; one thread at a time */

typedef struct ls_tokenizer_options {
    const char *end_token; /* the text of the token that ends a text; NULL: see ls_tokenizer_end_token() */
    /* the template of its chats, which is saved with it: "chatml", "llama2", "llama3" or "zephyr", or the path of a .jinja file; NULL:
     * that of its files */
    const char *chat_template;
    void *reserved[2];
} ls_tokenizer_options;

/* `name` is "bytes" (each byte is a token, 256 ends a text), the path of a tokenizer.json, or a folder with tokenizer.json,
 * with vocab.json and merges.txt, or with OpenAI's encoder.json and vocab.bpe. A tokenizer.json may be a byte-level BPE with the split
 * pattern of GPT-2, Llama 3, Qwen2 or SmolLM2, a BPE of characters with byte fallback (Llama 2, Mistral), or WordPiece (BERT);
 * anything else in it is LS_EUNSUPPORTED with its place. options may be NULL. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_open(ls_tokenizer **out, const char *name,
                                                 const ls_tokenizer_options *options);
LS_API void ls_tokenizer_free(ls_tokenizer **tokenizer);
/* Writes tokenizer.json, tokenizer_config.json, and for GPT-2's kind vocab.json and merges.txt into a folder, in the form that Hugging
 * Face's libraries read. Files that came with a tokenizer.json (tokenizer_config.json, special_tokens_map.json, added_tokens.json,
 * chat_template.jinja) are written unchanged. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *folder);
/* All tokens are below this. */
LS_API uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer);
/* The token that ends a text; -1: none. The first that exists of: eos_token in the folder's tokenizer_config.json;
 * eos_token_id in config.json or generation_config.json; eos_token in special_tokens_map.json; "<|endoftext|>"; the only
 * common name (</s>, <eos>, <|im_end|>...) among the special tokens. */
LS_API int32_t ls_tokenizer_end_token(const ls_tokenizer *tokenizer);
/* The bytes of one token, as it stands inside a text; NULL for a token that does not exist. */
LS_API const uint8_t *ls_tokenizer_token_bytes(const ls_tokenizer *tokenizer, int32_t token, size_t *count);
/* The text of `tokens`, 0-terminated, in memory that the caller frees. *bytes does not count the final 0. */
LS_API LS_MUST_CHECK ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                                                   char **out, size_t *bytes);

/* `tokenizer` stays the caller's and must outlive the encoder. */
LS_API LS_MUST_CHECK ls_status ls_encoder_open(ls_encoder **out, const ls_tokenizer *tokenizer);
LS_API void ls_encoder_free(ls_encoder **encoder);
/* The tokens of a text, in the encoder's memory, valid until its next call. Any bytes are accepted. Byte-level models split invalid
 * UTF-8 like punctuation, byte by byte, and if there is no normalizer, decoding returns the same bytes (except white space that an
 * added token strips); BERT's normalizer takes such bytes for U+FFFD. No special tokens of a template are added. The text of an
 * added token, such as "<|endoftext|>", becomes that token, as in Hugging Face's libraries. */
LS_API LS_MUST_CHECK ls_status ls_encode(ls_encoder *encoder, const void *text, size_t bytes, const int32_t **tokens,
                                         size_t *count);

/* ---- Chats: messages as text, by the template of a model (Jinja, as transformers has it).
 *
 * Supported are for, if, set, macro, generation, break and continue; operators, slices and choices; namespaces; loop's attributes;
 * the filters, tests and methods that templates of models use. A template that uses anything else is refused with its name.
 * Templates do not get the date: strftime_now is not defined, so that the same messages always give the same text. */

typedef struct ls_chat_template ls_chat_template; /* read-only; any number of threads may use it */

/* The template of a tokenizer: options.chat_template, its folder's chat_template.jinja, or chat_template in tokenizer_config.json.
 * LS_EINVAL: it has none. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_chat_template_open(ls_chat_template **out, const ls_tokenizer *tokenizer);
LS_API void ls_chat_template_free(ls_chat_template **chat);
/* The text of messages, a JSON list of {"role": ..., "content": ...}, 0-terminated, in memory that the caller frees; `prompt`: and the
 * beginning of an answer. LS_EFORMAT: the messages are not such a list, or the template refuses them. */
LS_API LS_MUST_CHECK ls_status ls_chat_render(const ls_chat_template *chat, const char *messages, size_t bytes,
                                              bool prompt, char **out, size_t *out_bytes);
/* The text that ends an answer, such as "<|im_end|>"; "": not known. Lives as long as the template. */
LS_API const char *ls_chat_template_end(const ls_chat_template *chat);

/* ---- Text files: as a dataset, converted to shards, and to train a tokenizer.
 *
 * They may be compressed with gzip or zstd, which is detected by their first bytes; a suffix .gz or .zst is ignored when the
 * format is chosen. ls_text_open() needs random access, so it decompresses them to an unnamed file in $TMPDIR or /var/tmp. */

/* Called repeatedly with the bytes done and the total. Never from several threads at once. */
typedef void (*ls_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Documents held out of training for evaluation. Each is chosen independently, by the seed and its position in the files (in
 * packed plain files a document is a whole file). */
typedef struct ls_hold_out {
    double fraction; /* of the documents, approximately; 0: none */
    uint64_t seed;
    bool held_out; /* the dataset has the held-out documents; default: all others */
} ls_hold_out;

typedef struct ls_text_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_data_format format;         /* of text; 0: auto */
    const char *field;             /* jsonl: the field with the text; NULL: "text", or "messages" of chats */
    const char *prompt_field;      /* jsonl, padded: a text in front that has no loss; NULL: none */
    const char *weight_field;      /* jsonl, padded: a number, the weight of the document's loss; NULL: 1 */
    const ls_tokenizer *tokenizer; /* stays the caller's and must outlive the dataset */
    size_t seq_len;                /* tokens per sample; at least 1 */
    /* a sample is a document (of plain files: a line), truncated or padded to seq_len; default: packed, as in
     * ls_tokens_open(), with the end token after each document */
    bool padded;
    /* jsonl, padded: a document is a list of messages, {"role": "user", "content": "..."}, in the field "messages" or `field`. It becomes
     * text by the tokenizer's chat template, and only the answers of the role "assistant", with the end of their turn, have a loss */
    bool chat;
    bool count_tokens; /* padded: count each document's tokens at open, as lengths for the balanced order; default: its
                          bytes are used instead */
    bool skip_bad;     /* jsonl: skip invalid lines and log how many; default: they are LS_EFORMAT */
    ls_hold_out hold_out; /* all zero: all documents */
    int threads;          /* that count tokens at open; 0: one per core */
    void *reserved[2];
} ls_text_options;

/* Text that the loader's workers tokenize while training runs. Packed text is tokenized once at open to find where samples
 * begin; shards made by ls_tokenize() do not need that. Padded, a document longer than seq_len is truncated. On failure *out
 * is NULL. */
LS_API LS_MUST_CHECK ls_status ls_text_open(ls_dataset **out, const ls_text_options *options);

typedef struct ls_tokenize_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_data_format format; /* of the text; 0: auto */
    const char *field;     /* jsonl: the field with the text; NULL: "text" */
    bool skip_bad;         /* jsonl: see ls_text_options */
    const ls_tokenizer *tokenizer;
    /* shards are OUTPUT-00000.bin, OUTPUT-00001.bin...; the folder is created if it does not exist */
    const char *output;
    /* replace existing shards of that name and remove those beyond the new ones; default: they are LS_EINVAL, because
     * old and new shards would be read as one dataset */
    bool replace;
    ls_data_format shard_format; /* 0: llmc16 if the vocabulary fits, otherwise llmc32 */
    uint64_t shard_tokens;       /* tokens per shard; 0: 100,000,000 */
    int threads;                 /* 0: one per core */
    ls_progress_fn progress;     /* NULL: none */
    void *user;
    void *reserved[2];
} ls_tokenize_options;

typedef struct ls_tokenize_result {
    uint64_t documents, bytes, tokens, shards;
    uint64_t bad_lines; /* skipped */
    uint64_t reserved[3];
} ls_tokenize_result;

/* Tokenizes text files into shards, with the end token after each document. The shards do not depend on the number of
 * threads. Either all get their names at the end, or none: on failure, or if the process is killed, existing shards stay. (If
 * it is killed while files are being renamed, the next call of this library that reads or writes these shards completes it.) */
LS_API LS_MUST_CHECK ls_status ls_tokenize(const ls_tokenize_options *options, ls_tokenize_result *result);

typedef struct ls_bpe_options {
    const char *const *paths; /* files, globs and folders */
    size_t n_paths;
    ls_data_format format;   /* of the text; 0: auto */
    const char *field;       /* jsonl: the field with the text; NULL: "text" */
    bool skip_bad;           /* jsonl: see ls_text_options */
    uint32_t vocab_size;     /* including the 256 bytes and the end token; at least 257 */
    uint64_t min_count;      /* pairs that occur less often are not merged; 0: 2 */
    const char *output;      /* folder for vocab.json, merges.txt and tokenizer.json */
    int threads;             /* 0: one per core */
    ls_progress_fn progress; /* NULL: none */
    void *user;
    void *reserved[2];
} ls_bpe_options;

/* Trains a byte-pair encoding. *vocab_size is the number of tokens it has: less than requested if the text is too small. */
LS_API LS_MUST_CHECK ls_status ls_bpe_train(const ls_bpe_options *options, uint32_t *vocab_size);

/* ---- Pictures: datasets with a field of pixels, (H, W, C) uint8, and one of labels, int32. */

/* The one list of formats of pictures: name, value, name for options. */
#define LS_IMAGE_FORMAT_LIST(X)                                                                       \
    X(LS_IMAGES_AUTO, 0, auto)         /* by the files' names, sizes and first bytes */               \
    X(LS_IMAGES_BUILT_IN, 1, built_in) /* striped patterns, computed: 10 classes of 32 x 32 x 3 */    \
    X(LS_IMAGES_CIFAR10, 2, cifar10)   /* binary version: a label and 3 x 32 x 32 bytes */            \
    X(LS_IMAGES_CIFAR100, 3, cifar100) /* binary version: coarse and fine label, 3 x 32 x 32 bytes */ \
    X(LS_IMAGES_IDX, 4, idx)           /* MNIST's: a file of images, and one of labels beside it */   \
    X(LS_IMAGES_FOLDER, 5, folder)     /* a folder per class with PNG and JPEG files */

typedef enum ls_image_format {
#define X(name, value, text) name = (value),
    LS_IMAGE_FORMAT_LIST(X)
#undef X
} ls_image_format;
enum { LS_IMAGE_FORMAT_COUNT = 0 LS_IMAGE_FORMAT_LIST(LS_COUNT_ENTRY) };

enum {
    LS_FIELD_PIXELS = 0, /* uint8, (H, W, C) */
    LS_FIELD_LABELS = 1, /* int32, (1) */
};

typedef struct ls_images_options {
    /* CIFAR: its .bin files, or a folder of them. idx: files of images (labels are beside them, with "labels" for "images" and
     * "idx1" for "idx3" in the name), also .gz. folder: one folder with a folder per class. */
    const char *const *paths;
    size_t n_paths;         /* 0: LS_IMAGES_BUILT_IN */
    ls_image_format format; /* 0: auto */
    int size; /* folder: pictures are scaled so that their shorter side is this, and cut to a square; 0: 256; built-in: at
                    least this */
    int classes; /* a label >= classes is an error; 0: as many as the format or the files have */
    void *reserved[2];
} ls_images_options;

/* What a dataset of pictures has. */
typedef struct ls_images_info {
    ls_image_format format;
    int height, width, channels;
    int classes;
    /* (classes): of folders; NULL: the classes have numbers alone. Lives as long as the dataset */
    const char *const *names;
    int64_t reserved[2];
} ls_images_info;

/* Sizes and labels are checked at open where they are known without reading all pictures; the rest as pictures are read, with
 * file and number. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_images_open(ls_dataset **out, const ls_images_options *options);
/* Of a dataset of ls_images_open(). */
LS_API ls_images_info ls_images_get_info(const ls_dataset *images);

/* How pixels become the input of a model: a square of `size` x `size` is cut out, at random or in the middle, perhaps
 * mirrored, and value v of channel c becomes (v / 255 - mean[c]) / std[c]. */
typedef struct ls_augment {
    int size;              /* 0: the picture's own; not larger than picture and padding */
    int padding;           /* black pixels around the picture, for random squares */
    bool crop;             /* squares are random; default: in the middle, without padding */
    bool flip;             /* every other picture, at random, is mirrored */
    float mean[3], std[3]; /* std 0: 1 */
    uint64_t seed;
    void *reserved[2];
} ls_augment;
/* One picture, (size, size, C), from pixels (H, W, C). What is random is a function of (seed, epoch, sample) alone. */
LS_API void ls_augment_apply(const ls_augment *augment, const ls_images_info *info, const uint8_t *pixels,
                             uint64_t epoch, uint64_t sample, float *out);

/* ---- Staging: copies of data files on a local disk, made once per machine, for all ranks and later runs. */

typedef struct ls_stage_options {
    /* for the copies; created if it does not exist. Several jobs and users may use it at the same time: each user has a
     * private subfolder */
    const char *folder;
    /* bytes that all of the user's copies may use; the least recently used copies that are not in use are removed
     * first. 0: the free space of the disk, less 5 % */
    uint64_t limit;
    bool strict;     /* a file that cannot be staged is an error; default: the original is read, with a warning */
    bool verify;     /* check the checksums of existing copies; default: their size and time */
    bool background; /* do not wait: a file's original is read until its copy is complete; see `ready` */
    /* background: called from a thread of the stage when the copy of file number `file` is complete. `path` is valid until
     * ls_stage_free(). */
    void (*ready)(void *user, size_t file, const char *path);
    ls_progress_fn progress; /* of copying, over all files; NULL: none */
    void *user;
    void *reserved[2];
} ls_stage_options;

/* Whether reading the copies is faster than reading the originals. */
typedef enum ls_stage_verdict {
    LS_STAGE_UNMEASURED = 0, /* nothing was copied */
    LS_STAGE_FASTER = 1,     /* each epoch takes `saved_seconds` less */
    LS_STAGE_NOT_FASTER = 2,
} ls_stage_verdict;

/* What staging did and whether it pays. Rates are in bytes per second; 0: not measured. */
typedef struct ls_stage_report {
    size_t files;   /* all */
    size_t copied;  /* by this call */
    size_t found;   /* existed, or another process made them meanwhile */
    size_t failed;  /* their originals are read */
    uint64_t bytes; /* of all files */
    uint64_t copied_bytes;
    double seconds;     /* including waiting */
    double source_rate; /* of the originals, while they were copied */
    double local_rate;  /* of the copies, read from the disk and not from its cache */
    ls_stage_verdict verdict;
    double saved_seconds; /* of reading per epoch; compare with `seconds` */
    double reserved[4];
} ls_stage_report;

typedef struct ls_stage ls_stage;

/* Copies the files (and globs) that have no copy yet, or waits while another process does. While the stage is open its
 * copies are not removed. A copy is used only if it is complete, verified, and of the file as it is now: the original's size
 * and times are part of its key. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_stage_open(ls_stage **out, const char *const *paths, size_t n_paths,
                                             const ls_stage_options *options);
/* Ends copying in the background and releases the copies; they stay on the disk. */
LS_API void ls_stage_free(ls_stage **stage);
/* The path to read file number `file` from: its copy, or the original. background: the original, see `ready`. NULL: out of
 * range. */
LS_API const char *ls_stage_path(const ls_stage *stage, size_t file);
LS_API ls_stage_report ls_stage_get_report(const ls_stage *stage);

/* ---- Loader: batches built ahead of time by worker threads, in the order of the sampler. */

#define LS_WORKERS_AUTO (-1)

typedef struct ls_loader_options {
    /* threads that build batches; 0: none, ls_loader_next() builds them; LS_WORKERS_AUTO: number and prefetch are
     * adjusted while training runs, until the caller does not wait */
    int workers;
    int prefetch;      /* batches per worker that may be ready or in progress; 0: 2 (auto: adjusted) */
    int max_workers;   /* auto: upper limit; 0: 32 */
    size_t batch_size; /* samples per batch; 0: 1 */
    int slots;         /* batches per step, over all ranks; 0: world_size */
    /* this rank gets the slots of ls_slots_of_rank() (lockstep/ddp.h), so there must be at least one for each; 0 of 0: 0 of 1 */
    int rank, world_size;
    ls_order order;       /* for this, seed, drop_last, drop_step and no_shuffle see ls_sampler_options */
    int torch_world_size; /* torch: world size that the order assumes; 0: world_size */
    uint64_t seed;
    bool drop_last;
    bool drop_step;
    bool no_shuffle;
    uint64_t epochs; /* then LS_END; 0: endless */
    int timeout_ms;  /* how long ls_loader_next() waits for a batch; 0: forever */
    /* Called once in each worker's thread before its first sample (without workers: in the caller's thread). */
    ls_status (*worker_init)(void *user, int worker);
    void *user;
    void *reserved[2];
} ls_loader_options;

typedef struct ls_batch {
    uint64_t epoch, step;
    int slot;
    size_t batch_size;           /* less than requested, even 0, in the last step of an epoch */
    size_t tokens;               /* sum of the rows' tokens */
    size_t longest;              /* the largest of the rows' lengths */
    const uint64_t *samples;     /* (batch_size): which samples they are */
    void *fields[LS_MAX_FIELDS]; /* (batch_size, count of the field), aligned to 64 */
} ls_batch;

/* The position of a run in its data, for checkpoints. Equal on every rank, and valid for any number of ranks. */
typedef struct ls_loader_state {
    uint64_t epoch, step;
    uint64_t fingerprint; /* of order, seed, samples and batch shape, which must be equal when it is restored */
} ls_loader_state;

typedef struct ls_loader_stats {
    uint64_t batches;
    int64_t wait_ns;    /* time that ls_loader_next() blocked its caller */
    int64_t load_ns;    /* time to build those batches, in any thread */
    int workers;        /* current number */
    int prefetch;       /* current number, per worker */
    size_t batch_bytes; /* memory of one batch */
    int ready;          /* batches that were ready when the last one was requested */
    int worker;         /* that built the last one; -1: ls_loader_next() built it */
    int64_t built;      /* ls_now() when it was complete */
    int64_t reserved[4];
} ls_loader_stats;

typedef struct ls_loader ls_loader;

/* `dataset` stays the caller's and must outlive the loader. Workers start immediately. On failure *out is NULL. */
LS_API LS_MUST_CHECK ls_status ls_loader_open(ls_loader **out, const ls_dataset *dataset,
                                              const ls_loader_options *options);
/* Waits for the samples that workers are reading, then frees everything. */
LS_API void ls_loader_free(ls_loader **loader);

/* The next batch of this rank: its slots, step by step, epoch after epoch. The caller may read and write it until the next
 * call on the loader. LS_END after the last epoch. If a sample cannot be read, the error is returned in order, after all
 * batches before it, and again until ls_loader_seek(). After LS_ETIMEOUT the call can be repeated. */
LS_API LS_MUST_CHECK ls_status ls_loader_next(ls_loader *loader, ls_batch **out);

/* Steps of an epoch. */
LS_API uint64_t ls_loader_steps(const ls_loader *loader);
/* The first step of which not all batches were returned. */
LS_API ls_loader_state ls_loader_get_state(const ls_loader *loader);
/* The next batch will be the first of that step. A state of other data or another order is LS_EINVAL. */
LS_API LS_MUST_CHECK ls_status ls_loader_seek(ls_loader *loader, const ls_loader_state *state);
LS_API ls_loader_stats ls_loader_get_stats(const ls_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
