/* `lockstep predict --probe`: a short run with other options, where what was recorded does not say how long computing takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "cli/amount.h"
#include "cli/escape.h"
#include "cli/predict_table.h"
#include "cli/tune_trials.h"

enum { STEPS = 24 };

/* The folder of the run with these options: a probe is made once. */
static unsigned hash(const char *text)
{
    unsigned h = 2166136261u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

/* Options with which train does something else than one run from the start. */
static ls_status check_words(const char *options)
{
    static const char *const others[] = { "--tune", "--print-config", "--help", "-h", "--resume" };
    for (const char *at = options + strspn(options, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " "), name = strcspn(at, " =");
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (strlen(others[i]) == name && !strncmp(at, others[i], name))
                return ls__fail(LS_EINVAL,
                                "--probe: %s is not possible there: a probe trains for %d steps from the start; give "
                                "options of the model, the batches or the threads, such as '--batch-size 8'",
                                others[i], (int)STEPS);
        at += length;
    }
    return LS_OK;
}

ls_status predict_probe(const char *run, const char *options, bool quiet, char **folder)
{
    char *config = NULL, *dir = NULL, *none[] = { NULL }, name[32];
    double step;
    ls_status status = LS_OK;
    *folder = NULL;
    if (options[strspn(options, " ")] != '-')
        return ls__fail(LS_EINVAL, "--probe %s: must be options of 'lockstep train', such as '--batch-size 8'",
                        printable(options));
    if ((status = check_words(options))) return status;
    snprintf(name, sizeof name, "%08x", hash(options));
    if (asprintf(&config, "%s/config.toml", run) < 0) config = NULL;
    if (asprintf(&dir, "%s/probes", run) < 0) dir = NULL;
    if (!config || !dir || asprintf(folder, "%s/%s", dir, name) < 0) {
        *folder = NULL;
        status = ls__fail(LS_ENOMEM, "%s: out of memory", run);
    } else if (access(config, R_OK))
        status = ls__fail(LS_EINVAL, "%s: cannot be read; --probe repeats a run of 'lockstep train' with other options",
                          config);
    char *base[] = { (char *)"--config", config, NULL };
    tune_trials t = { .dir = dir, .launcher = none, .options = base };
    if (!status) status = tune_trials_open(&t, (int)sysconf(_SC_NPROCESSORS_ONLN));
    if (!status) {
        tune_catch_signals();
        status = tune_trial(&t, options, options, name, STEPS, &step);
        tune_trials_close(&t);
        if (!status && !quiet)
            printf("probe: %d steps with %s: %s per step\n", (int)STEPS, printable(options), amount_ns(step).text);
    }
    free(config);
    free(dir);
    if (status) {
        free(*folder);
        *folder = NULL;
    }
    return status;
}
