/* lockstep tune: finds the fastest settings of a training run. Set-ups are predicted from short runs, the best few race each other in
 * short runs in turns, and the choice is written as a file for `lockstep train --config`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/amount.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/launch.h"
#include "cli/machine.h"
#include "cli/train_options.h"
#include "cli/tune.h"
#include "cli/tune_race.h"
#include "cli/tune_result.h"
#include "cli/tune_setups.h"
#include "cli/tune_trials.h"

static const char intro[] =
    "usage: lockstep tune [OPTIONS] [TRAIN OPTIONS]\n\n"
    "Finds the fastest settings for 'lockstep train' with these options: ranks and threads, gradient buckets, workers "
    "and prefetch of the "
    "loader. What is given stays; the rest is tuned, and the result of the training keeps its bits. "
    "Set-ups are predicted from a few short runs; the best of them are compared by short runs in turns until one is "
    "surely the "
    "fastest, or less than 1% is left to gain. Results are kept in --tune-dir after each run: after a kill, the same "
    "command continues. "
    "The choice is written to config.toml there.\n";

enum {
    MAX_SETUPS = 96,
    MAX_PROBES = 16,
    PROBE_STEPS = 16,
    LEAST_STEPS = 8,
    MOST_STEPS = 400,
    LAYOUTS = 4,  /* in the first race, besides the given set-up */
    VARIANTS = 2, /* of buckets and of loaders in the second */
};
/* A predicted step that is so many times the best one cannot win. The model knows layouts less well than what buckets and loaders change in
 * one of them: those must promise a gain. */
static const double LAYOUT_LIMIT = 1.25, VARIANT_LIMIT = 0.99;
static const double DATA_SHARE = 0.01; /* of a step; below it the loader is not tuned */
static const double SAME =
    0.001; /* variants whose predicted steps differ by less are the same to the model: one of them races */

typedef struct probe {
    ls_predictor *predictor;
    tune_setup setup;
    double step;
} probe;

typedef struct tuning {
    tune_trials trials;
    tune_space space;
    tune_setup base; /* what the given set-up comes to */
    probe probes[MAX_PROBES];
    size_t n_probes;
    double seconds; /* of a run */
    int rounds;     /* at most */
    char slots[32]; /* " --slots 6" for the given --accumulate; "": there is none, or the launcher has the ranks */
    char *config;   /* path of config.toml */
    bool quiet;
} tuning;

/* ---- Options: those of tune are taken out, the rest is train's. */

typedef struct asked {
    const char *dir, *launcher;
    double seconds;
    int rounds;
    bool wire, batch, quiet;
} asked;

static int read_own(asked *a, int argc, char **argv, int *train_argc, char **train_argv)
{
    const option_row rows[] = {
        { OPTION_TEXT, "--tune-dir", &a->dir, "DIR", "results, short runs and the choice (runs/tune)", 0, 0, NULL },
        { OPTION_DOUBLE, "--tune-seconds", &a->seconds, "X", "seconds of steps of a short run (1.5)", 0.01, 1e5, NULL },
        { OPTION_INT, "--tune-rounds", &a->rounds, "N", "short runs of each set-up, at most (8)", 1, TUNE_MAX_ROUNDS,
          NULL },
        { OPTION_FLAG, "--allow-bfloat16", &a->wire, NULL, "also try --wire bfloat16, which changes the result", 0, 0,
          NULL },
        { OPTION_FLAG, "--allow-batch", &a->batch, NULL,
          "also try other micro-batches of the same number of sequences, which changes rounding", 0, 0, NULL },
        { OPTION_TEXT, "--launcher", &a->launcher, "COMMAND",
          "start runs with this, e.g. 'mpirun -n 4': ranks stay as it starts them", 0, 0, NULL },
        { OPTION_FLAG, "--tune-quiet", &a->quiet, NULL, "print only the choice and errors", 0, 0, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    char **own = calloc((size_t)argc + 1, sizeof *own);
    int n = 0;
    if (!own) return EXIT_FAILED;
    own[n++] = argv[0];
    train_argv[(*train_argc)++] = argv[0];
    for (int i = 1; i < argc; i++) {
        const option_row *r = rows;
        size_t length = strcspn(argv[i], "=");
        while (r->name && (strlen(r->name) != length || strncmp(r->name, argv[i], length) != 0)) r++;
        bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        if (!r->name && !help) {
            train_argv[(*train_argc)++] = argv[i];
            continue;
        }
        own[n++] = argv[i];
        if (r->name && r->kind != OPTION_FLAG && !argv[i][length] && i + 1 < argc) own[n++] = argv[++i];
    }
    int code = options_read("tune", intro, rows, NULL, n, own);
    free(own);
    return code;
}

static bool given(const char *option, int argc, char **argv)
{
    return train_option_given(option, argc, argv);
}

/* Options of train that do something else than a training run from its start. */
static int refuse_options(int argc, char **argv)
{
    static const struct {
        const char *name, *what;
    } rows[] = { { "--resume", "tune before the run starts, without this option" },
                 { "--elastic", "tune before the run starts, without this option" },
                 { "--tune", "'lockstep tune' does that already; leave it out" },
                 { "--print-config", "the choice is written to config.toml of --tune-dir; leave it out" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!given(rows[i].name, argc, argv)) continue;
        fprintf(stderr, "lockstep tune: %s: %s\n", rows[i].name, rows[i].what);
        return EXIT_USAGE;
    }
    return -1;
}

/* ---- Predictions. */

static double predicted(const tuning *t, const tune_setup *s)
{
    ls_setup question = tune_setup_question(s, &t->space);
    ls_prediction out;
    for (int strict = 1; strict >= 0; strict--) /* best of all from a run with as many ranks */
        for (size_t i = 0; i < t->n_probes; i++) {
            const probe *p = &t->probes[i];
            if (p->setup.threads != s->threads || p->setup.slots != s->slots || (strict && p->setup.ranks != s->ranks))
                continue;
            if (p->predictor && !ls_predict(p->predictor, &question, &out)) return out.step;
        }
    return NAN;
}

/* ---- Short runs. */

static void say(const tuning *t, const char *what, const char *options, double step)
{
    if (t->quiet) return;
    printf("%-9s %s %s\n", what, isfinite(step) ? amount_field(amount_ns(step), 9).text : "   failed",
           *options ? options : " as given");
    exit_check_output("tuning continues without it");
}

static int steps_of(const tuning *t, double step, int least)
{
    return (int)fmin(MOST_STEPS, fmax(least, ceil(t->seconds * 1e9 / step) + 3));
}

/* A run that predictions start from. */
static ls_status add_probe(tuning *t, const tune_setup *s, const char *options)
{
    char name[32], key[256], *path;
    probe *p = &t->probes[t->n_probes];
    int steps = t->n_probes ? steps_of(t, t->probes[0].step, PROBE_STEPS) : PROBE_STEPS;
    snprintf(name, sizeof name, "probe-%zu", t->n_probes);
    snprintf(key, sizeof key, "probe %zu%s", t->n_probes, options);
    ls_status status = tune_trial(&t->trials, key, options, name, steps, &p->step);
    if (status == LS_EABORTED || (status && !t->n_probes)) return status;
    say(t, "probe", options, p->step);
    p->setup = *s;
    t->n_probes++;
    ls_run *run;
    if (status || asprintf(&path, "%s/%s", t->trials.dir, name) < 0) return LS_OK;
    if (!ls_run_open(&run, path,
                     NULL)) { /* without a record it cannot predict, and set-ups are compared by runs alone */
        if (ls_predictor_open(&p->predictor, run)) p->predictor = NULL;
        ls_run_free(&run);
    }
    free(path);
    return LS_OK;
}

static bool is_base(const tuning *t, const tune_setup *s)
{
    return !s->slots && (!s->ranks || s->ranks == t->base.ranks) && (!s->threads || s->threads == t->base.threads);
}

static ls_status add_probes(tuning *t, const tune_setup *layouts, size_t n)
{
    char options[160];
    ls_status status = add_probe(t, &t->base, "");
    for (size_t i = n; i-- > 0 && !status && t->n_probes < MAX_PROBES;) { /* from many ranks to few */
        bool covered = is_base(t, &layouts[i]);
        for (size_t k = 0; k < t->n_probes; k++)
            covered = covered || (t->probes[k].setup.threads == layouts[i].threads &&
                                  t->probes[k].setup.slots == layouts[i].slots);
        if (covered) continue;
        tune_setup_options(&layouts[i], options, sizeof options);
        status = add_probe(t, &layouts[i], options);
    }
    return status;
}

static ls_status run_race(tuning *t, tune_race *race, const char *label)
{
    ls_status status = LS_OK;
    for (int round = 0; round < t->rounds && race->count > 1; round++) {
        for (size_t i = 0; i < race->count; i++) {
            tune_runner *r = &race->runners[(i + (size_t)round) % race->count];
            char key[256], what[32];
            if (r->out) continue;
            snprintf(key, sizeof key, "%s %d%s", label, round, r->options);
            snprintf(what, sizeof what, "%s %d", label, round + 1);
            status = tune_trial(&t->trials, key, r->options, "trial", steps_of(t, t->probes[0].step, LEAST_STEPS),
                                &r->step[round]);
            if (status == LS_EABORTED || (status && r == race->runners)) return status; /* nothing to compare with */
            say(t, what, r->options, r->step[round]);
            if (status && !t->quiet) printf("          %s\n", printable(ls_error()));
            if (status)
                r->out = true;
            else
                r->rounds = round + 1;
        }
        if (tune_race_judge(race)) break;
    }
    return LS_OK;
}

/* ---- The two races. */

static ls_status race_layouts(tuning *t, const tune_setup *layouts, size_t n, tune_race *race, tune_setup *winner)
{
    tune_runner found[MAX_SETUPS];
    size_t count = 0;
    double best = predicted(t, &t->base);
    tune_race_add(race, "", best);
    for (size_t i = 0; i < n && count < MAX_SETUPS; i++) {
        if (is_base(t, &layouts[i])) continue;
        tune_runner *f = &found[count++];
        *f = (tune_runner){ .predicted = predicted(t, &layouts[i]) };
        tune_setup_options(&layouts[i], f->options, sizeof f->options);
        if (!(f->predicted >= best)) best = f->predicted;
    }
    tune_race_add_best(race, found, count, LAYOUTS, best * LAYOUT_LIMIT, 0);
    ls_status status = run_race(t, race, "layout");
    *winner = (tune_setup){ 0 };
    const char *chosen = race->runners[tune_race_winner(race)].options;
    char options[160];
    for (size_t i = 0; i < n; i++) {
        tune_setup_options(&layouts[i], options, sizeof options);
        if (*chosen && !strcmp(options, chosen)) *winner = layouts[i];
    }
    return status;
}

/* The loader, buckets and wire type of the layout that won, which they must beat: the given set-up has raced already. */
static ls_status race_variants(tuning *t, const tune_setup *from, tune_race *race)
{
    tune_setup variants[MAX_SETUPS];
    tune_runner buckets[MAX_SETUPS], loaders[MAX_SETUPS], wires[MAX_SETUPS];
    size_t n_buckets = 0, n_loaders = 0, n_wires = 0, n = tune_variants(&t->space, from, variants, MAX_SETUPS);
    char options[160];
    tune_setup full = *from;
    if (!full.ranks) full.ranks = t->base.ranks;
    if (!full.threads) full.threads = t->base.threads;
    double now = predicted(t, &full);
    tune_setup_options(from, options, sizeof options);
    tune_race_add(race, options, now);
    for (size_t i = 0; i < n; i++) {
        tune_setup question = variants[i];
        question.ranks = full.ranks;
        question.threads = full.threads;
        tune_runner f = { .predicted = predicted(t, &question) };
        tune_setup_options(&variants[i], f.options, sizeof f.options);
        if (variants[i].bfloat16)
            wires[n_wires++] = f;
        else if (variants[i].workers)
            loaders[n_loaders++] = f;
        else
            buckets[n_buckets++] = f;
    }
    tune_race_add_best(race, buckets, n_buckets, VARIANTS, now * VARIANT_LIMIT, SAME);
    tune_race_add_best(race, loaders, n_loaders, VARIANTS, now * VARIANT_LIMIT, SAME);
    tune_race_add_best(race, wires, n_wires, VARIANTS, INFINITY, 0); /* asked for */
    return run_race(t, race, "variant");
}

/* ---- The result. */

/* config.toml: the evidence as comments, and what `train --print-config` says of the options with the choice. */
static ls_status write_config(const tuning *t, const tune_race *races, const char *options, char **argv, int argc)
{
    char *text = NULL, *copy = NULL, *rest;
    const char *path = t->config;
    const char **words = calloc((size_t)argc + strlen(t->slots) + strlen(options) + 4, sizeof *words);
    size_t n = 0, bytes = 0;
    int ends[2];
    if (asprintf(&copy, "%s%s", t->slots, options) < 0) copy = NULL;
    if (!copy || !words || pipe(ends)) return ls__fail(LS_ESYS, "%s: out of memory or descriptors", t->trials.dir);
    words[n++] = launch_self();
    words[n++] = "train";
    n += (size_t)tune_copy_words(argc - 1, argv + 1, *t->slots, (char **)words + n);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) words[n++] = w;
    words[n++] = "--print-config";
    FILE *to = open_memstream(&text, &bytes);
    int runs = t->trials.made + t->trials.reused;
    fprintf(to, "# Chosen by 'lockstep tune' from %d short run%s. Use: lockstep train --config ", runs, ls__s(runs));
    put_shell_word(to, path);
    fprintf(to, "\n#\n");
    for (int i = 0; i < 2; i++)
        if (!i || races[i].count > 1) tune_print_race(to, "# ", &races[i]);
    tune_print_gain(to, "# ", races, options);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], STDOUT_FILENO);
        execv(words[0], (char **)words);
        _exit(127);
    }
    close(ends[1]);
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) fwrite(part, 1, (size_t)got, to);
    close(ends[0]);
    int code = -1;
    if (pid > 0) waitpid(pid, &code, 0);
    bool whole = !fclose(to) && !code;
    ls_status status = whole ? ls__file_write(path, text, bytes)
                             : ls__fail(LS_ESYS, "%s: 'lockstep train --print-config' failed", path);
    free(text);
    free(copy);
    free(words);
    return status;
}

static int tune(tuning *t, int argc, char **argv, char *choice, size_t bytes)
{
    tune_setup layouts[MAX_SETUPS], winner;
    tune_race races[2] = { 0 };
    size_t n = tune_layouts(&t->space, layouts, MAX_SETUPS);
    ls_prediction base;
    ls_status status = add_probes(t, layouts, n);
    for (size_t i = 0; i < t->n_probes && !status; i++)
        if (t->probes[i].predictor && !ls_predict(t->probes[i].predictor, NULL, &base) &&
            base.term[LS_TERM_DATA] < DATA_SHARE * base.step && i == 0)
            t->space.loader = false;
    if (!status) status = race_layouts(t, layouts, n, &races[0], &winner);
    if (!status) status = race_variants(t, &winner, &races[1]);
    const tune_race *last = &races[races[1].count > 0];
    const char *found = last->count ? last->runners[tune_race_winner(last)].options : "";
    snprintf(choice, bytes, "%s%s", t->slots, found);
    if (!status) status = write_config(t, races, found, argv, argc);
    if (status == LS_EABORTED) {
        fprintf(stderr, "lockstep tune: stopped; the results so far are in %s, and the same command continues\n",
                printable(t->trials.dir));
        return EXIT_SIGNAL + tune_stop_signal();
    }
    if (status) return exit_failure("tune", status);
    printf("\n");
    for (int i = 0; i < 2 && !t->quiet; i++)
        if (!i || races[i].count > 1) tune_print_race(stdout, "", &races[i]);
    tune_print_gain(stdout, t->quiet ? "" : "\n", races, found);
    printf("%d short run%s", t->trials.made, ls__s(t->trials.made));
    if (t->trials.reused) printf(" and %d result%s from before", t->trials.reused, ls__s(t->trials.reused));
    printf(", %.0f s; use it with: lockstep train --config ", t->trials.seconds);
    put_shell_word(stdout, t->config);
    printf("\n");
    return EXIT_DONE;
}

/* Whether the result of the training depends on the number of ranks, although the micro-batches of a step are the same. */
static bool needs_its_ranks(const ls_train_options *o)
{
    return (o->order == LS_ORDER_TORCH && !o->torch_ranks) || o->wire != LS_WIRE_F32 ||
           o->sum_order != LS_SUM_ORDER_CANONICAL;
}

/* What may be tuned, by what is not given. */
static void set_space(tuning *t, const train_arguments *a, const asked *own, int argc, char **argv)
{
    int ranks = a->ranks ? a->ranks : 1, cores = machine_cores();
    int slots = a->train.slots ? a->train.slots : (a->accumulate ? a->accumulate : 1) * ranks;
    bool launched = own->launcher != NULL;
    t->space = (tune_space){ .ranks = !launched && !a->ranks && slots > 1 && !needs_its_ranks(&a->train),
                             .threads = !launched && !given("--threads", argc, argv),
                             .bucket = !given("--bucket-mb", argc, argv) && (launched || slots > 1),
                             .loader = !given("--workers", argc, argv) && !given("--prefetch", argc, argv),
                             .wire = own->wire && !given("--wire", argc, argv),
                             .batch = own->batch && !launched,
                             .cores = cores,
                             .batch_size = a->train.batch_size ? a->train.batch_size : 8,
                             .slots = launched ? 0 : slots,
                             .given_ranks = launched ? 0 : ranks,
                             .given_threads = launched ? 0 : a->train.threads };
    t->base = (tune_setup){ .ranks = t->space.given_ranks,
                            .threads = launched            ? 0
                                       : a->train.threads  ? a->train.threads
                                       : cores / ranks > 0 ? cores / ranks
                                                           : 1 };
    if (!t->space.given_threads) t->space.given_threads = t->base.threads;
    t->seconds = own->seconds > 0 ? own->seconds : 1.5;
    t->rounds = own->rounds ? own->rounds : TUNE_MAX_ROUNDS;
    t->quiet = own->quiet;
    if (a->accumulate && !launched) snprintf(t->slots, sizeof t->slots, " --slots %d", slots);
}

int tune_copy_words(int argc, char **argv, bool fixed, char **to)
{
    int n = 0;
    for (int i = 0, skip; i < argc; i += skip ? skip : 1)
        if (!(skip = fixed ? tune_option_words("--accumulate", 2, argc, argv, i) : 0)) to[n++] = argv[i];
    return n;
}

/* The options of all short runs. NULL: out of memory. */
static char **words_of_runs(tuning *t, const train_arguments *a)
{
    char **words = calloc((size_t)a->argc + 5, sizeof *words);
    int n = words ? tune_copy_words(a->argc - 1, a->argv + 1, *t->slots, words) : 0, kept = 0;
    if (!words) return NULL;
    for (int i = 0, skip; i < n; i += skip ? skip : 1)
        if (!(skip = tune_trial_ignores(n, words, i))) words[kept++] = words[i];
    if (*t->slots) {
        words[kept++] = (char *)"--slots";
        words[kept++] = strrchr(t->slots, ' ') + 1;
    }
    if (a->train.n_val_data || given("--val-fraction", a->argc, a->argv)) {
        words[kept++] = (char *)"--eval-every";
        words[kept++] = (char *)"1000000000";
    }
    words[kept] = NULL;
    return words;
}

/* Words separated by spaces. */
static char **split(char *text)
{
    char **words = calloc(strlen(text) + 2, sizeof *words), *rest;
    size_t n = 0;
    for (char *w = words ? strtok_r(text, " ", &rest) : NULL; w; w = strtok_r(NULL, " ", &rest)) words[n++] = w;
    return words;
}

int tune_settings(int argc, char **argv, char *choice, size_t bytes)
{
    asked own = { 0 };
    tuning t = { 0 };
    train_arguments a = { 0 };
    char **train_argv = calloc((size_t)argc + 1, sizeof *train_argv), **kept = NULL;
    char *launcher = NULL, **launcher_words = NULL;
    int train_argc = 0, code = train_argv ? read_own(&own, argc, argv, &train_argc, train_argv) : EXIT_FAILED;
    if (code >= 0) goto done;
    if ((code = refuse_options(train_argc, train_argv)) >= 0) goto done;
    if ((code = train_arguments_read(&a, train_argc, train_argv)) >= 0) goto done;
    if ((code = refuse_options(a.argc, a.argv)) >= 0) goto done; /* now with those of --config */
    set_space(&t, &a, &own, a.argc, a.argv);
    kept = words_of_runs(&t, &a);
    launcher = strdup(own.launcher ? own.launcher : "");
    launcher_words = launcher ? split(launcher) : NULL;
    if (asprintf(&t.config, "%s/config.toml", own.dir ? own.dir : "runs/tune") < 0) t.config = NULL;
    if (!kept || !launcher_words || !t.config) {
        code = EXIT_FAILED;
        goto done;
    }
    t.trials = (tune_trials){ .dir = own.dir ? own.dir : "runs/tune", .launcher = launcher_words, .options = kept };
    tune_catch_signals();
    ls_status status = tune_trials_open(&t.trials, t.space.cores);
    code = status == LS_EABORTED ? EXIT_SIGNAL + tune_stop_signal()
           : status              ? exit_failure("tune", status)
                                 : tune(&t, a.argc, a.argv, choice, bytes);
    for (size_t i = 0; i < t.n_probes; i++) ls_predictor_free(&t.probes[i].predictor);
    if (!status) tune_trials_close(&t.trials);
done:
    train_arguments_free(&a);
    free(train_argv);
    free(kept);
    free(t.config);
    free(launcher);
    free(launcher_words);
    return code;
}

int tune_command(int argc, char **argv)
{
    char choice[200];
    return tune_settings(argc, argv, choice, sizeof choice);
}
