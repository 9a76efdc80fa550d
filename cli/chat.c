/* lockstep chat: a conversation with a trained model, turn by turn.
 *
 * After each message the whole conversation is made text by the model's template and tokenized. What the generator has read of that
 * already stays in its cache, and only the rest is read, so that a turn costs what is new in it. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/machine.h"
#include "cli/model_folder.h"
#include "cli/sampling.h"

static const char intro[] =
    "usage: lockstep chat [MODEL] [OPTIONS]\n"
    "\n"
    "Talks with the model in the folder MODEL (runs/last): a line is a message, and the model answers. "
    "/reset begins a new conversation, /exit or Ctrl-D ends, Ctrl-C stops an answer. From a pipe, each line is "
    "answered in turn.\n\n";

typedef struct chat {
    /* the command line: */
    const char *folder, *system, *template_name, *tokenizer_name;
    sampling sampling;
    sample_options sample;
    bool stats;
    /* what it opens: */
    ls_generation generation;
    ls_model *model;
    ls_tokenizer *tokenizer;
    ls_chat_template *template;
    ls_generator *generator;
    ls_encoder *encoder;
    const char *stop;
    size_t context;
    /* the conversation: */
    json_t *messages;
    int32_t *read; /* [context]: what the generator has read */
    size_t n_read;
    bool terminal; /* somebody types */
} chat;

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int read_arguments(chat *c, int argc, char **argv)
{
    enum { SAMPLING_AT = 3 };
    const option_row later = { .kind = OPTION_FLAG }; /* of sampling_rows() */
    ls_generator_options *o = &c->sample.generator;
    option_row rows[] = {
        { OPTION_TEXT, "--system", &c->system, "TEXT", "a message of the role system, before all others", 0, 0, NULL },
        { OPTION_TEXT, "--template", &c->template_name, "NAME",
          "chatml, llama2, llama3, zephyr, or a .jinja file (the model's)", 0, 0, NULL },
        { OPTION_TEXT, "--tokenizer", &c->tokenizer_name, "NAME", "bytes, tokenizer.json, or a folder (the model's)", 0,
          0, NULL },
        later,
        later,
        later,
        later,
        later,
        { OPTION_INT, "--max-tokens", &c->sample.max_tokens, "N", "longest answer in tokens (1024)", 1, 2147483647,
          NULL },
        { OPTION_SEED, "--seed", &o->seed, "N", "random seed (0)", 0, 0, NULL },
        { OPTION_INT, "--threads", &o->threads, "N", "number of threads (all cores)", 1, 4096, NULL },
        { OPTION_FLAG, "--stats", &c->stats, NULL, "print tokens per second after each answer", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    c->sample.max_tokens = 1024;
    sampling_rows(&c->sampling, rows + SAMPLING_AT);
    int code = options_read("chat", intro, rows, &c->folder, argc, argv);
    if (code >= 0) return code;
    if (!(c->folder = last_run_or(c->folder, "chat"))) return EXIT_USAGE;
    if (!o->threads) o->threads = machine_threads();
    c->terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    c->sample.stop = &interrupted;
    return -1;
}

/* ---- The conversation. */

static ls_status add_message(chat *c, const char *role, const char *content, size_t bytes)
{
    json_t *text = json_stringn(content, bytes);
    if (!text) return ls__fail(LS_EFORMAT, "the message is not valid UTF-8");
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", text);
    if (message && !json_array_append_new(c->messages, message)) return LS_OK;
    return ls__fail(LS_ENOMEM, "out of memory");
}

static ls_status begin(chat *c)
{
    json_array_clear(c->messages);
    return c->system ? add_message(c, "system", c->system, strlen(c->system)) : LS_OK;
}

/* The tokens of the conversation and of the beginning of an answer, in the encoder's memory. */
static ls_status encode(chat *c, const int32_t **tokens, size_t *count)
{
    char *json = json_dumps(c->messages, JSON_COMPACT), *text = NULL;
    size_t bytes;
    if (!json) return ls__fail(LS_ENOMEM, "out of memory");
    ls_status status = ls_chat_render(c->template, json, strlen(json), true, &text, &bytes);
    if (!status) status = ls_encode(c->encoder, text, bytes, tokens, count);
    free(json);
    free(text);
    return status;
}

/* The same, without the oldest messages if the context has no room for them and for an answer. */
static ls_status encode_recent(chat *c, const int32_t **tokens, size_t *count)
{
    size_t first = c->system ? 1 : 0, half = c->context / 2, most = (size_t)c->sample.max_tokens;
    size_t room = most < half ? most : half;
    int dropped = 0;
    ls_status status = encode(c, tokens, count);
    while (!status && *count + room > c->context && json_array_size(c->messages) > first + 2) {
        json_array_remove(c->messages, first);
        json_array_remove(c->messages, first);
        dropped++;
        status = encode(c, tokens, count);
    }
    if (dropped)
        fprintf(stderr, "lockstep chat: the context of %zu tokens is full: the oldest %d turn%s left out\n", c->context,
                dropped, dropped == 1 ? " is" : "s are");
    if (!status && *count >= c->context)
        return ls__fail(LS_EINVAL, "the message has %zu tokens, too many for the model's context of %zu", *count,
                        c->context);
    return status;
}

/* Reads the part of the tokens that is new. */
static ls_status feed(chat *c, const int32_t *tokens, size_t count, sample_cost *cost)
{
    size_t same = 0;
    int64_t begins = ls_now();
    while (same < c->n_read && same < count - 1 && c->read[same] == tokens[same]) same++;
    ls_status status = ls_generator_rewind(c->generator, 0, same);
    if (status) return status;
    status = ls_generator_feed(c->generator, 0, tokens + same, count - same);
    memcpy(c->read + same, tokens + same, (count - same) * sizeof *tokens);
    c->n_read = status ? 0 : count;
    cost->prompt_tokens = (int64_t)(count - same);
    cost->prompt_ns = ls_now() - begins;
    return status;
}

static ls_status answer(chat *c)
{
    const int32_t *tokens;
    size_t count;
    char *text = NULL;
    sample_cost cost = { 0 };
    sample_options options = c->sample;
    ls_status status = encode_recent(c, &tokens, &count);
    if (!status) status = feed(c, tokens, count, &cost);
    if (status) return status;
    size_t left = c->context - count;
    if ((size_t)options.max_tokens > left) options.max_tokens = (int)left;
    interrupted = 0;
    status = sample_answer(c->generator, c->tokenizer, &options, stdout, c->read + count, &text, &cost);
    printf(c->terminal ? "\n\n" : "\n");
    fflush(stdout);
    c->n_read += (size_t)cost.tokens;
    /* An answer that was cut inside of a character. */
    size_t bytes = text ? strlen(text) : 0;
    json_t *check = NULL;
    while (bytes && !(check = json_stringn(text, bytes))) bytes--;
    json_decref(check);
    if (!status) status = add_message(c, "assistant", text ? text : "", bytes);
    if (!status && c->stats) sample_print_cost(&cost);
    free(text);
    return status;
}

/* A turn that fails leaves the conversation as it was. */
static ls_status turn(chat *c, const char *line, size_t bytes)
{
    json_t *before = json_copy(c->messages);
    ls_status status = before ? add_message(c, "user", line, bytes) : ls__fail(LS_ENOMEM, "out of memory");
    if (!status) status = answer(c);
    if (status && before) {
        json_decref(c->messages);
        c->messages = json_incref(before);
    }
    json_decref(before);
    return status;
}

/* ---- Lines. */

/* On a terminal: asks for a line and waits until there is one; false: Ctrl-C. The signal is blocked except while waiting, so that
 * it cannot come just before. */
static bool wait_for_input(void)
{
    sigset_t own, before;
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    sigemptyset(&own);
    sigaddset(&own, SIGINT);
    sigprocmask(SIG_BLOCK, &own, &before);
    interrupted = 0;
    fputs("> ", stdout);
    fflush(stdout);
    int ready = ppoll(&input, 1, NULL, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready >= 0 || errno != EINTR || !interrupted;
}

/* The next line without its line feed; false: there is none. */
static bool read_line(const chat *c, char **line, size_t *room, size_t *bytes)
{
    for (;;) {
        if (c->terminal && !wait_for_input()) { /* what was typed is gone */
            puts("");
            continue;
        }
        ssize_t n = getline(line, room, stdin);
        if (n < 0 && c->terminal) puts("");
        if (n < 0) return false;
        while (n > 0 && strchr("\r\n", (*line)[n - 1])) n--;
        (*line)[n] = 0;
        *bytes = (size_t)n;
        if (strspn(*line, " \t") < *bytes) return true;
    }
}

static ls_status talk(chat *c)
{
    char *line = NULL;
    size_t room = 0, bytes;
    ls_status status = begin(c);
    while (!status && read_line(c, &line, &room, &bytes)) {
        if (!strcmp(line, "/exit")) break;
        if (!strcmp(line, "/reset")) {
            status = begin(c);
        } else if (line[0] == '/' && !strchr(line, ' ')) {
            fprintf(stderr, "lockstep chat: unknown command '%s'; there are /reset and /exit\n", printable(line));
        } else {
            status = turn(c, line, bytes);
            /* Who types can try again. */
            if (status && c->terminal) fprintf(stderr, "lockstep chat: %s\n", ls_error());
            if (c->terminal) status = LS_OK;
        }
    }
    free(line);
    return status;
}

/* ---- Opening. */

static ls_status open_all(chat *c)
{
    ls_status status = ls_chat_template_open(&c->template, c->tokenizer);
    if (status == LS_EINVAL && !c->template_name) return ls__fail_within(status, "%s: --template", c->folder);
    if (!status) status = sampling_choose(&c->sampling, c->folder, &c->generation, &c->sample);
    if (!status) status = ls_generator_open(&c->generator, c->model, &c->sample.generator);
    if (!status) status = ls_encoder_open(&c->encoder, c->tokenizer);
    if (status) return status;
    c->context = (size_t)ls_model_get_options(c->model).lm.context;
    c->stop = ls_chat_template_end(c->template);
    c->sample.stops = &c->stop;
    c->sample.n_stops = *c->stop ? 1 : 0;
    c->messages = json_array();
    c->read = calloc(c->context, sizeof *c->read);
    return c->messages && c->read ? LS_OK : ls__fail(LS_ENOMEM, "out of memory");
}

static void close_all(chat *c)
{
    ls_encoder_free(&c->encoder);
    ls_generator_free(&c->generator);
    ls_chat_template_free(&c->template);
    ls_tokenizer_free(&c->tokenizer);
    ls_model_free(&c->model);
    json_decref(c->messages);
    free(c->read);
}

int chat_command(int argc, char **argv)
{
    chat c = { 0 };
    int code = read_arguments(&c, argc, argv);
    if (code >= 0) return code;
    ls_status status = model_folder_load(&c.model, c.folder);
    if (status) return exit_failure("chat", status);
    code = model_folder_open_tokenizer("chat", &c.tokenizer, c.tokenizer_name, c.template_name, c.folder,
                                       ls_model_get_options(c.model).lm.vocab_size);
    if (code < 0) {
        if (c.terminal) {
            setvbuf(stdin, NULL, _IONBF, 0); /* what is there can be seen by poll() */
            /* An answer's write() goes on after Ctrl-C; ppoll() never does. */
            sigaction(SIGINT, &(struct sigaction){ .sa_handler = interrupt, .sa_flags = SA_RESTART }, NULL);
        }
        status = open_all(&c);
        if (!status) status = talk(&c);
        code = status ? exit_failure("chat", status) : EXIT_DONE;
    }
    close_all(&c);
    return code;
}
