/* Texts that the model writes while it is trained, every `sample_every` steps: in samples.jsonl of the run folder, one object per line.
 *
 * The first rank writes them. A text is a function of weights, seed and step, so it is the same on any number of ranks and in a
 * resumed run, which removes the texts of steps that it repeats. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "train/prompt.h"
#include "train/training.h"

enum { DEFAULT_TOKENS = 300 };

ls_status ls__samples_open(ls_train *t)
{
    ls_train_options *o = &t->options;
    if (!o->sample_tokens) o->sample_tokens = DEFAULT_TOKENS;
    if (o->sample_every < 0)
        return ls__fail(LS_EINVAL, "sample_every=%lld: must not be negative", (long long)o->sample_every);
    if (!o->sample_every) return LS_OK;
    if (o->task != LS_TASK_LM)
        return ls__fail(LS_EINVAL, "sample_every: the task %s trains no model that generates text", t->task->info.name);
    if (!t->tokenizer)
        return ls__fail(LS_EINVAL, "sample_every: text needs a tokenizer; set the one that the shards were made with");
    if (o->sample_tokens < 0) return ls__fail(LS_EINVAL, "sample_every: sample_tokens is 0");
    t->prompt = strdup(o->prompt ? o->prompt : o->n_data ? "\n" : "One morning, ");
    return t->prompt ? LS_OK : ls__fail(LS_ENOMEM, "train: out of memory");
}

void ls__samples_close(ls_train *t)
{
    free(t->prompt);
    free(t->sample);
}

/* The prompt and the text, in t->sample. */
static ls_status generate(ls_train *t)
{
    const ls_train_options *o = &t->options;
    ls_generator *g;
    size_t bytes;
    ls_generator_options options = {
        .temperature = 0.8f, .top_k = 40, .seed = o->seed + (uint64_t)t->step, .threads = o->threads
    };
    free(t->sample);
    t->sample = NULL;
    FILE *to = open_memstream(&t->sample, &bytes);
    if (!to) return ls__fail(LS_ENOMEM, "sample: out of memory");
    fputs(t->prompt, to);
    ls_status status = ls_generator_open(&g, t->model, &options);
    if (!status) status = ls__prompt_feed(g, 0, t->tokenizer, t->prompt, NULL);
    for (int i = 0; i < o->sample_tokens && !status; i++) {
        int32_t token = 0;
        size_t count = 0;
        status = ls_generator_next(g, &token, NULL);
        if (status || token == ls_tokenizer_end_token(t->tokenizer)) break;
        const uint8_t *text = ls_tokenizer_token_bytes(t->tokenizer, token, &count);
        if (text) fwrite(text, 1, count, to);
    }
    ls_generator_free(&g);
    if (fclose(to) && !status) status = ls__fail(LS_ENOMEM, "sample: out of memory");
    return status;
}

/* JSON is UTF-8. A token may end within a character, and models invent bytes: those become U+FFFD. Zeros would end the text. */
static char *valid_text(const char *text)
{
    char *out = malloc(3 * strlen(text) + 1), *end = out;
    for (const char *at = text; out && *at;) {
        int n = ls__utf8_length(at);
        memcpy(end, n ? at : "\xef\xbf\xbd", n ? (size_t)n : 3);
        end += n ? n : 3;
        at += n ? n : 1;
    }
    if (out) *end = 0;
    return out;
}

static ls_status add_line(const ls_train *t)
{
    char *path = NULL, *text = valid_text(t->sample + strlen(t->prompt)), *prompt = valid_text(t->prompt);
    json_t *root = text && prompt
                       ? json_pack("{s:I, s:s, s:s}", "step", (json_int_t)t->step, "prompt", prompt, "text", text)
                       : NULL;
    char *line = root ? json_dumps(root, JSON_COMPACT) : NULL;
    ls_status status = LS_OK;
    if (!line || asprintf(&path, "%s/samples.jsonl", t->run.path) < 0) {
        status = ls__fail(LS_ENOMEM, "sample: out of memory");
    } else {
        size_t n = strlen(line);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
        line[n++] = '\n'; /* instead of the 0 */
        ssize_t done = fd < 0 ? -1 : write(fd, line, n);
        if (done < 0)
            status = ls__fail_errno("%s: writing the sample of step %lld", path, (long long)t->step);
        else if ((size_t)done != n)
            status = ls__fail(LS_EIO, "%s: the disk is full", path);
        if (fd >= 0) close(fd);
    }
    free(line);
    free(path);
    free(text);
    free(prompt);
    json_decref(root);
    return status;
}

ls_status ls__samples_add(ls_train *t, ls_train_metrics *m)
{
    const ls_train_options *o = &t->options;
    if (!o->sample_every || !ls__train_is_first(t) || t->step % o->sample_every) return LS_OK;
    ls_status status = generate(t);
    if (!status) m->sample = t->sample;
    return !status && t->run.path ? add_line(t) : status;
}
