/* probe_model FOLDER TOKENS SAVED OUT: what lockstep computes of a language model, for check_transformers.py and check_peft.py (a
 * folder with an adapter: that is trained). TOKENS has three numbers, steps, rows and length, and then (steps, rows, length + 1)
 * tokens. OUT gets the logits of the first batch, 16 tokens of greedy text after its first four tokens, the gradients of its loss,
 * and the losses of a step of AdamW on each. The model is saved to SAVED before the first step. */
#include "probe.h"

enum { PROMPT = 4, GREEDY = 16, MOST = 64 };

typedef struct batches {
    int steps, rows, length;
    int32_t *inputs, *targets; /* (steps, rows, length) */
} batches;

static int read_tokens(batches *p, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%d %d %d", &p->steps, &p->rows, &p->length) != 3 || p->steps < 1 || p->steps > MOST) return -1;
    size_t count = (size_t)p->steps * (size_t)p->rows * (size_t)p->length, at = 0;
    p->inputs = calloc(count, sizeof *p->inputs);
    p->targets = calloc(count, sizeof *p->targets);
    for (int row = 0; row < p->steps * p->rows; row++)
        for (int i = 0; i <= p->length; i++) {
            int token;
            if (fscanf(f, "%d", &token) != 1) return -1;
            if (i < p->length) p->inputs[at + (size_t)i] = token;
            if (i) p->targets[at + (size_t)i - 1] = token;
            if (i == p->length) at += (size_t)p->length;
        }
    fclose(f);
    return 0;
}

static ls_model_batch batch_of(const void *user, size_t step)
{
    const batches *p = user;
    size_t at = step * (size_t)p->rows * (size_t)p->length;
    return (ls_model_batch){
        .batch_size = p->rows, .seq_len = p->length, .tokens = p->inputs + at, .targets = p->targets + at
    };
}

static ls_status greedy_text(probe *p, const int32_t *prompt)
{
    ls_generator *g;
    int32_t text[GREEDY];
    ls_status status = ls_generator_open(&g, p->model, &(ls_generator_options){ .temperature = -1 });
    if (!status) status = ls_generator_feed(g, 0, prompt, PROMPT);
    for (int i = 0; i < GREEDY && !status; i++) status = ls_generator_next(g, &text[i], NULL);
    ls_generator_free(&g);
    if (!status) probe_add(p, "", "greedy", LS__ST_I32, 1, (int64_t[]){ GREEDY }, text);
    return status;
}

int main(int argc, char **argv)
{
    probe p = { 0 };
    batches in;
    ls_model_options options;
    if (argc != 5 || read_tokens(&in, argv[2])) return 2;
    ls_model_batch first = batch_of(&in, 0);
    ls_status status = ls_model_options_read(argv[1], &options);
    if (!status) options.lm.dropout = options.lm.embd_dropout = options.lm.attn_dropout = options.lora.dropout = 0;
    if (!status) status = probe_open(&p, &options, argv[1], argv[3]);
    if (!status) status = probe_logits(&p, &first);
    if (!status) status = greedy_text(&p, in.inputs);
    if (!status) status = probe_train(&p, (size_t)in.steps, batch_of, &in, NULL, 1, 3e-3f);
    return probe_end(&p, status, "probe_model", argv[4]);
}
