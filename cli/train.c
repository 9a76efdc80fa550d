/* lockstep train: trains a GPT on one rank or several, shows how it goes, and keeps what it learned. The first rank speaks
 * and writes for all. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/text.h"
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/launch.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/sample.h"
#include "cli/train_options.h"
#include "comm/identity.h"

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

/* The first signal ends the training after its step; a second one ends the program at once. */
static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

enum {
    SAVE_SECONDS = 300, /* what the first rank may take to save the model after another one failed */
    LEAVE_POLL_US = 5000,
};

static bool is_first = true; /* whether this rank speaks */
static bool on_terminal;     /* whether the progress is drawn, and the line it is on cleared before a message */

/* What went wrong on one rank, the others know too: the first one tells it. */
static int complain(ls_status status)
{
    return is_first ? exit_failure("train", status) : exit_code(status);
}

/* "runs/20261115-193000", or with a number behind if that is taken. */
static void choose_run_dir(const train_arguments *a, char *path, size_t bytes)
{
    char name[64];
    time_t now = time(NULL);
    struct tm local;
    strftime(name, sizeof name, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    snprintf(path, bytes, "runs/%s", a->name ? a->name : name);
    for (int i = 2; !a->name && access(path, F_OK) == 0; i++) snprintf(path, bytes, "runs/%s-%d", name, i);
}

static void introduce(const ls_train *t, const char *run_dir)
{
    const ls_train_options *o = ls_train_options_of(t);
    const ls_gpt2_options *m = &o->model;
    int ranks = o->world ? ls_world_size(o->world) : 1;
    printf("%s%.2fM parameters (%d layer%s, width %d, %d head%s, vocabulary %d), %lld step%s of %d x %d tokens, %d "
           "rank%s of %d thread%s\n",
           o->init ? "fine-tuning: " : "", (double)ls_model_size(ls_train_model(t)) / 1e6, m->layers, ls__s(m->layers),
           m->width, m->heads, ls__s(m->heads), m->vocab, (long long)o->steps, ls__s(o->steps), o->rows * o->slots,
           o->length, ranks, ls__s(ranks), o->threads, ls__s(o->threads));
    printf("run folder: %s\n", printable(run_dir));
    fflush(stdout);
}

/* All steps, or until a signal comes, to whichever rank: then all of them know that they have *stopped. *made counts them. */
static ls_status run_steps(ls_train *t, const train_arguments *a, int64_t *made, bool *stopped)
{
    progress p;
    ls_train_metrics m = { 0 };
    ls_status status = LS_OK;
    progress_init(&p, ls_train_options_of(t)->steps, a->log_every, on_terminal);
    int ranks = a->train.world ? ls_world_size(a->train.world) : 1;
    for (;;) {
        if (stop_signal) ls_train_stop(t);
        if ((status = ls_train_step(t, &m)) != LS_OK) break;
        ++*made;
        if (a->quiet || !is_first) continue;
        /* Measured behind the first step, so that the first step comes soon; and again if it cannot have been right,
         * because others used the machine. */
        if (m.gflops > p.peak) p.peak = ls_train_peak_gflops(t) * ranks;
        progress_show(&p, &m);
    }
    progress_end(&p);
    *stopped = status == LS_END && *made && m.step < m.steps;
    return status;
}

/* Waits until the first rank has saved the model, however long that takes: where a rank ends with another code than 0, launchers
 * soon end the others. */
static void leave_together(ls_world *world)
{
    ls_work *work;
    ls_status status = ls_barrier_start(ls_world_group(world), &work);
    if (!status)
        while ((status = ls_work_test(&work)) == LS_PENDING) usleep(LEAVE_POLL_US);
}

static ls_status show_sample(ls_train *t, const train_arguments *a)
{
    static const char story[] = "One morning, ";
    if (a->quiet || a->sample_tokens == 0 || !ls_train_tokenizer(t)) return LS_OK;
    const char *prompt = a->prompt ? a->prompt : a->data.count ? "\n" : story;
    printf("\nsample:\n");
    ls_generator_options options = { .temperature = 0.8f, .top_k = 40, .threads = ls_train_options_of(t)->threads };
    ls_status status =
        sample_text(ls_train_model(t), ls_train_tokenizer(t), &options, prompt, a->sample_tokens, stdout);
    printf("\n");
    return status;
}

/* What is done when the steps are over, one way or another: the model is saved whenever there is something to save. */
static int finish(ls_train *t, const train_arguments *a, ls_status status, int64_t made, bool stopped,
                  const char *run_dir)
{
    int code = EXIT_DONE;
    if (status != LS_OK && status != LS_END) code = complain(status);
    if (!made || !is_first)
        return code || !stop_signal ? code : EXIT_SIGNAL + stop_signal; /* the weights are those it started from */
    ls_status saved = ls_train_save(t);
    if (saved) {
        /* Weights that are not finite have been named already. */
        if (status != LS_ENOTFINITE) complain(saved);
        return EXIT_FAILED;
    }
    if (code == EXIT_DONE && !stopped) {
        status = show_sample(t, a);
        if (status) code = complain(status);
    }
    FILE *to = code || stopped ? stderr : stdout;
    if (!a->quiet || code) fprintf(to, "%sthe model is in %s\n", stopped ? "stopped; " : "", printable(run_dir));
    return stop_signal ? EXIT_SIGNAL + stop_signal : code;
}

static int show_profile(ls_train *t, const train_arguments *a, const char *run_dir)
{
    ls_status status = ls_train_save_profile(t);
    if (status) {
        fprintf(stderr, "lockstep train: %s\n", ls_error());
        return EXIT_FAILED;
    }
    if (a->quiet || !is_first) return EXIT_DONE;
    printf("\n");
    status = profile_print(run_dir, 0, stdout);
    return status ? complain(status) : EXIT_DONE;
}

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Starts this very command once per rank. */
static int start_ranks(int ranks, int argc, char **argv)
{
    launch_options launch = {
        .ranks = ranks, .no_prefix = true, .no_stdin = true, .own_voice = true, .grace = SAVE_SECONDS
    };
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) {
        fprintf(stderr, "lockstep train: out of memory\n");
        return EXIT_FAILED;
    }
    words[0] = launch_self();
    for (int i = 0; i < argc; i++) words[1 + i] = argv[i];
    int code = launch_ranks(&launch, (char **)words);
    free(words);
    return code;
}

/* Joins the world that a launcher made; alone there is none to join. */
static ls_status join_world(train_arguments *a, ls__launcher launcher, ls_world **world)
{
    *world = NULL;
    if (launcher == LS__LAUNCHER_ALONE) return LS_OK;
    ls_status status = ls_world_open(world, NULL);
    if (status) return status;
    int size = ls_world_size(*world);
    is_first = ls_world_rank(*world) == 0;
    a->train.world = *world;
    if (a->ranks && a->ranks != size) {
        if (is_first)
            fprintf(stderr, "lockstep train: -n %d, but the launcher started %d rank%s; leave -n to it\n", a->ranks,
                    size, ls__s(size));
        return LS_EINVAL;
    }
    return LS_OK;
}

/* Warnings, and on the first rank what is good to know. Any thread may have something to say while the bar is drawn. */
static void show_log(void *user, ls_log_level level, const char *text)
{
    const train_arguments *a = user;
    const char *clear = on_terminal && isatty(STDERR_FILENO) ? "\r\033[K" : "";
    if (level >= LS_LOG_WARNING)
        fprintf(stderr, "%slockstep train: %s\n", clear, text);
    else if (level == LS_LOG_INFO && !a->quiet)
        printf("%s%s\n", clear, text);
}

/* How the data came, at the end of a run: nothing if they were always there. */
static ls_status show_loading(ls_train *t, const train_arguments *a)
{
    int ranks = a->train.world ? ls_world_size(a->train.world) : 1;
    char text[400];
    ls_train_loading *all = malloc((size_t)ranks * sizeof *all);
    if (!all) return LS_OK;
    ls_status status = ls_train_loading_get(t, all);
    if (!status && is_first && !a->quiet) {
        double wait = 0, total = 0;
        for (int r = 0; r < ranks; r++) wait += all[r].wait_ms, total += all[r].total_ms;
        if (ls_train_late_rank(all, ranks, text, sizeof text) >= 0)
            printf("data: %s; --stage, more --workers or a faster disk would help\n", text);
        else if (wait > 0.05 * total && all[0].load_ms > 0.5 * all[0].compute_ms) /* else it waited for a core */
            printf("data: %.0f %% of the time was spent waiting for them; a batch takes %.1f ms to load with %d "
                   "worker%s\n",
                   100 * wait / total, all[0].load_ms, all[0].workers, all[0].workers == 1 ? "" : "s");
    }
    free(all);
    return status;
}

static int train_here(train_arguments *a)
{
    char run_dir[4096];
    if (a->run_dir)
        snprintf(run_dir, sizeof run_dir, "%s", a->run_dir);
    else
        choose_run_dir(a, run_dir, sizeof run_dir);
    a->train.run_dir = run_dir;
    if (a->accumulate) a->train.slots = a->accumulate * (a->train.world ? ls_world_size(a->train.world) : 1);
    ls_log_set(is_first ? show_log : NULL, a);
    ls_train *t;
    ls_status status = ls_train_open(&t, &a->train);
    if (status) return complain(status);
    if (is_first) last_run_set(run_dir);
    if (!a->quiet && is_first) introduce(t, run_dir);
    catch_signals();
    int64_t made = 0;
    bool stopped;
    status = run_steps(t, a, &made, &stopped);
    if (status == LS_END && !stopped) {
        ls_status shown = show_loading(t, a);
        if (shown) status = shown;
    }
    int code = finish(t, a, status, made, stopped, run_dir);
    if (stopped && a->train.world) leave_together(a->train.world);
    if (a->train.profile && made && code == EXIT_DONE) code = show_profile(t, a, run_dir);
    ls_train_free(&t);
    return code;
}

int train_command(int argc, char **argv)
{
    train_arguments a;
    ls__identity identity;
    ls_world *world = NULL;
    int code = train_arguments_read(&a, argc, argv);
    if (code >= 0) return code;
    ls_status status = ls__identity_find(&identity, from_environment, NULL);
    if (status) return complain(status);
    if (identity.launcher == LS__LAUNCHER_ALONE && a.ranks > 1) return start_ranks(a.ranks, argc, argv);
    /* mpirun gives its ranks a terminal of their own, also where its output goes to a file. */
    bool ours = identity.launcher == LS__LAUNCHER_ALONE || identity.launcher == LS__LAUNCHER_LOCKSTEP;
    on_terminal = ours && isatty(STDOUT_FILENO) == 1;
    status = join_world(&a, identity.launcher, &world);
    if (status)
        code = world ? EXIT_USAGE : complain(status);
    else
        code = train_here(&a);
    ls_world_free(&world);
    return code;
}
