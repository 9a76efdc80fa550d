/* print_logits FOLDER TOKEN...: the logits of a language model for each position, a line each. For check_transformers.py. */
#include <stdio.h>
#include <stdlib.h>
#include "lockstep/nn.h"

int main(int argc, char **argv)
{
    enum { MAX = 1024 };
    int32_t tokens[MAX];
    int n = argc - 2;
    ls_model_options options;
    ls_model *model = NULL;
    ls_tape *tape = NULL;
    ls_param *params;
    if (n < 1 || n > MAX) return 2;
    for (int i = 0; i < n; i++) tokens[i] = atoi(argv[i + 2]);
    ls_status status = ls_model_options_read(argv[1], &options);
    options.lora.r = 0; /* an adapter is merged */
    if (!status) status = ls_model_open(&model, &options);
    if (!status) status = ls_model_bind(model, NULL, NULL, false);
    if (!status) status = ls_model_load(model, argv[1]);
    if (!status) status = ls_tape_open(&tape, NULL);
    int n_params = status ? 0 : ls_model_params(model, &params);
    if (!status) status = ls_tape_begin(tape, params, n_params, &(ls_pass){ .mode = LS_PASS_EVAL });
    if (!status) {
        ls_tensor *x =
            ls_model_logits(model, tape, &(ls_model_batch){ .batch_size = 1, .seq_len = n, .tokens = tokens });
        status = ls_tape_status(tape);
        for (int i = 0; !status && i < n * options.lm.vocab_size; i++)
            printf("%.9g%c", (double)x->data[i], (i + 1) % options.lm.vocab_size ? ' ' : '\n');
    }
    if (status) fprintf(stderr, "print_logits: %s\n", ls_error());
    ls_tape_free(&tape);
    ls_model_free(&model);
    return status ? 1 : 0;
}
