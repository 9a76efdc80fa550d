/* lockstep train: trains a GPT on one rank or several, shows progress, and saves the model. The first rank prints and writes
 * for all. */
#include <dirent.h>
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
#include "cli/coordinator.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/launch.h"
#include "cli/machine.h"
#include "cli/model_folder.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/sample.h"
#include "cli/start_ranks.h"
#include "cli/train_options.h"
#include "cli/tune.h"
#include "comm/launcher.h"
#include "kern/select.h"
#include "train/kept.h"

static volatile sig_atomic_t stop_signal, is_starting;
static bool is_first = true; /* whether this rank prints */
static bool on_terminal;     /* the progress line is redrawn, and cleared before a message */

static void on_signal(int number)
{
    static const char text[] = "lockstep train: will stop after startup; a second signal ends it immediately\n";
    stop_signal = number;
    if (!is_starting || !is_first) return;
    int error = errno;
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    errno = error;
}

/* The first signal ends the run after the current step, or before the first one; a second one ends the program immediately. Our
 * launcher starts ranks with these signals blocked, so that none is lost before there is a handler. */
static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART }, was;
    sigset_t ours;
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    sigemptyset(&ours);
    is_starting = 1;
    for (int i = 0; i < 3; i++) {
        sigaddset(&ours, numbers[i]);
        if (numbers[i] != SIGHUP || (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN))
            sigaction(numbers[i], &action, NULL);
    }
    sigprocmask(SIG_UNBLOCK, &ours, NULL);
}

/* A closed pipe (`| head`) must not end the run: writing fails instead, and that is reported. Programs that we start do not
 * inherit a handler, as they would SIG_IGN. */
static void on_closed_pipe(int number)
{
    (void)number;
}

static void keep_without_reader(void)
{
    struct sigaction was;
    if (!sigaction(SIGPIPE, NULL, &was) && was.sa_handler == SIG_DFL)
        sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = on_closed_pipe, .sa_flags = SA_RESTART }, NULL);
}

enum {
    SAVE_SECONDS = 300, /* for the first rank to save the model after another rank failed */
    LEAVE_POLL_US = 5000,
};

/* All ranks have the message of a failure; the first one prints it. */
static int report_failure(ls_status status)
{
    return is_first ? exit_failure("train", status) : exit_code(status);
}

/* "runs/20261115-193000", to which the library may append a number; or --run-dir. */
static const char *choose_run_dir(train_arguments *a, char *path, size_t bytes)
{
    char name[64];
    time_t now = time(NULL);
    struct tm local;
    if (a->run_dir) return a->run_dir;
    strftime(name, sizeof name, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    snprintf(path, bytes, "runs/%s", a->name ? a->name : name);
    if (!a->name) a->train.run_dir_mode = LS_RUN_DIR_NUMBERED;
    return path;
}

/* "lockstep", if the shell finds this program under that name, otherwise its path. */
static const char *program_name(void)
{
    const char *self = launch_self();
    char *paths = getenv("PATH") ? strdup(getenv("PATH")) : NULL, found[4096];
    bool ours = false;
    for (char *rest = paths, *folder; paths && (folder = strsep(&rest, ":"));) {
        snprintf(found, sizeof found, "%s/lockstep", folder);
        if (access(found, X_OK)) continue;
        char *real = realpath(found, NULL);
        ours = real && !strcmp(real, self);
        free(real);
        break;
    }
    free(paths);
    return ours ? "lockstep" : self;
}

static bool has_checkpoint(const char *run_dir)
{
    char path[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/checkpoints", run_dir);
    DIR *d = opendir(path);
    for (const struct dirent *e; d && !found && (e = readdir(d));) found = !strncmp(e->d_name, "step-", 5);
    if (d) closedir(d);
    return found;
}

/* The command that resumes this run. The number of ranks that we start is among the run's settings. */
static void print_resume(FILE *to, const train_arguments *a, const char *run_dir)
{
    fputs("resume with: ", to);
    if (a->launcher) fprintf(to, "%s -n %d ", a->launcher, ls_world_size(a->train.world));
    put_shell_word(to, program_name());
    fputs(" train --resume ", to);
    if (*run_dir == '-') fputs("./", to);
    put_shell_word(to, run_dir);
    fputc('\n', to);
}

/* Without a checkpoint, the model can be where a new run starts. */
static void print_init(FILE *to, const char *run_dir)
{
    fputs("without a checkpoint a run cannot be resumed; start a new one from this model with: ", to);
    put_shell_word(to, program_name());
    fputs(" train --init ", to);
    if (*run_dir == '-') fputs("./", to);
    put_shell_word(to, run_dir);
    fputc('\n', to);
}

static void introduce(const ls_train *t, const char *run_dir)
{
    const ls_train_options *o = ls_train_get_options(t);
    ls_model_options model = ls_model_get_options(ls_train_model(t));
    const ls_lm_options *m = model.kind == LS_MODEL_LM ? &model.lm : NULL;
    int ranks = o->world ? ls_world_size(o->world) : 1;
    printf("%s%.2fM parameters", o->init ? "fine-tuning: " : "", (double)ls_model_param_count(ls_train_model(t)) / 1e6);
    if (m)
        printf(" (%d layer%s, width %d, %d head%s, vocabulary %d)", m->layers, ls__s(m->layers), m->width, m->heads,
               ls__s(m->heads), m->vocab_size);
    printf(", %lld step%s of %d", (long long)o->steps, ls__s(o->steps), o->batch_size * o->slots);
    if (m) printf(" x %d", o->seq_len);
    printf(" %s, %d rank%s of %d thread%s\n", ls_task_get_info(o->task)->unit, ranks, ls__s(ranks), o->threads,
           ls__s(o->threads));
    printf("run folder: %s\n", printable(run_dir));
    if (ls_train_steps_made(t)) printf("resuming after step %lld\n", (long long)ls_train_steps_made(t));
    fflush(stdout);
}

/* A text that the model wrote after a step. */
static void show_text(progress *p, const ls_train_metrics *m)
{
    screen out = { .to = stdout, .terminal = on_terminal };
    progress_end(p);
    printf("\nsample after step %lld:\n", (long long)m->step);
    screen_put(&out, m->sample, strlen(m->sample));
    screen_end(&out);
    printf("\n");
    fflush(stdout);
}

/* All steps, or until a signal reaches any rank: then *stopped is set on all of them. *made counts steps. */
static ls_status run_steps(ls_train *t, const train_arguments *a, int64_t *made, bool *stopped)
{
    progress p;
    ls_train_metrics m = { 0 };
    ls_status status = LS_OK;
    progress_init(&p, ls_train_get_options(t), a->log_every, on_terminal);
    for (;;) {
        if (stop_signal == SIGTERM)
            ls__train_leave_job(t);
        else if (stop_signal)
            ls_train_stop(t);
        if ((status = ls_train_step(t, &m)) != LS_OK) break;
        ++*made;
        if (a->quiet || !is_first) continue;
        progress_show(&p, &m, ls_train_get_best(t).step == m.step);
        if (m.sample) show_text(&p, &m);
        exit_check_output("training continues without it");
    }
    progress_end(&p);
    *stopped =
        status == LS_END && *made && m.step < m.steps && !ls_train_get_best(t).ended && !ls__train_is_changing(t);
    return status;
}

/* Waits without a timeout until the first rank has saved the model: launchers end the other ranks soon after a rank has ended with
 * a code other than 0. */
static void leave_together(ls_world *world)
{
    ls_work *work;
    ls_status status = ls_barrier_start(ls_world_group(world), &work);
    if (!status)
        while ((status = ls_work_test(&work)) == LS_PENDING) usleep(LEAVE_POLL_US);
}

/* Text from the model that was saved: the last one, or the best. */
static ls_status show_sample(ls_train *t, const train_arguments *a, const char *run_dir)
{
    static const char story[] = "One morning, ";
    const ls_train_options *o = ls_train_get_options(t);
    ls_train_best best = ls_train_get_best(t);
    ls_model *saved = NULL;
    if (a->quiet || o->sample_tokens < 0 || !ls_train_tokenizer(t) || o->task != LS_TASK_LM) return LS_OK;
    const char *prompt = a->train.prompt ? a->train.prompt : o->n_data ? "\n" : story;
    ls_status status = best.step && best.step != ls_train_steps_made(t) ? model_folder_load(&saved, run_dir) : LS_OK;
    if (status) return status;
    printf("\nsample:\n");
    sample_options options = { .max_tokens = o->sample_tokens };
    options.generator = (ls_generator_options){ .temperature = 0.8f, .top_k = 40, .threads = o->threads };
    status = sample_text(saved ? saved : ls_train_model(t), ls_train_tokenizer(t), &options, prompt, stdout, NULL);
    printf("\n");
    ls_model_free(&saved);
    return status;
}

/* Whether the run folder is the one that the initial model came from. That model is replaced only at the end of the run. */
static bool is_in_place(const ls_train *t, const char *run_dir)
{
    struct stat from, to;
    const char *init = ls_train_get_options(t)->init;
    return init && !stat(init, &from) && !stat(run_dir, &to) && from.st_dev == to.st_dev && from.st_ino == to.st_ino;
}

/* All steps are done, or a signal stopped the run. There is a checkpoint already; saves the model. */
static int finish(ls_train *t, const train_arguments *a, const char *run_dir, int64_t made, bool stopped)
{
    long long step = ls_train_steps_made(t), steps = ls_train_get_options(t)->steps;
    bool save = !a->no_save && (!stopped || !is_in_place(t, run_dir));
    if (is_first && save) {
        ls_status status = ls_train_save(t);
        if (status) {
            int code = report_failure(status);
            if (!a->train.no_checkpoint && (status = ls_train_checkpoint(t))) report_failure(status);
            if (!a->train.no_checkpoint && has_checkpoint(run_dir)) print_resume(stderr, a, run_dir);
            return code;
        }
        if (!stopped && made && (status = show_sample(t, a, run_dir))) return report_failure(status);
    }
    FILE *to = stopped ? stderr : stdout;
    if (is_first && stopped) {
        fprintf(to, "stopped after step %lld of %lld", step, steps);
        if (!a->no_save) fprintf(to, "; the %s model is in %s", save ? "current" : "initial", printable(run_dir));
        fputc('\n', to);
        if (!a->train.no_checkpoint)
            print_resume(to, a, run_dir);
        else if (save)
            print_init(to, run_dir);
    } else if (is_first && !a->quiet) {
        ls_train_best best = ls_train_get_best(t);
        if (best.ended)
            fprintf(to, "ended after step %lld of %lld: the last %lld evaluation%s no better %s%s\n", step, steps,
                    (long long)best.evaluations, best.evaluations == 1 ? " has" : "s have", best.metric,
                    made ? "" : "; a larger --patience continues");
        else if (!made)
            fprintf(to, "all %lld step%s already done; use --steps for more\n", steps, steps == 1 ? " was" : "s were");
        if (save && best.step && !a->train.no_checkpoint)
            fprintf(to, "the model of step %lld, with the best %s (%.4f), is in %s\n", (long long)best.step,
                    best.metric, best.value, printable(run_dir));
        else if (save)
            fprintf(to, "the model is in %s\n", printable(run_dir));
    }
    /* Only the rank that got the signal returns its code. */
    return stopped && stop_signal ? EXIT_SIGNAL + stop_signal : EXIT_DONE;
}

/* A step failed. Saves a checkpoint of the step before, if that is consistent, or if training cannot continue from
 * it (numbers are not finite) its weights as a model. */
static int give_up(ls_train *t, const train_arguments *a, ls_status failed, const char *run_dir, int64_t made)
{
    char *why = strdup(ls_error());
    int code = report_failure(failed);
    long long step = ls_train_steps_made(t);
    bool model = failed == LS_ENOTFINITE && !a->no_save && !is_in_place(t, run_dir);
    if (is_first && made && !(a->train.no_checkpoint && !model)) {
        ls_status kept = model ? ls_train_save(t) : ls_train_checkpoint(t);
        if (kept && why && strcmp(why, ls_error()) != 0 && kept != LS_ENOTFINITE) report_failure(kept);
        if (!kept && model)
            fprintf(stderr, "the model after step %lld is in %s\n", step, printable(run_dir));
        else if (!kept)
            fprintf(stderr, "the state after step %lld is saved; ", step);
    }
    if (is_first && !model && made && !a->train.no_checkpoint && has_checkpoint(run_dir))
        print_resume(stderr, a, run_dir);
    free(why);
    return code;
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
    return status ? report_failure(status) : EXIT_DONE;
}

static const char *from_environment(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Opens the launcher's world; alone there is none. */
static ls_status join_world(train_arguments *a, ls__launcher launcher, ls_world **world)
{
    *world = NULL;
    if (launcher == LS__LAUNCHER_NONE) return LS_OK;
    ls_status status = ls_world_open(world, NULL);
    if (status) return status;
    int size = ls_world_size(*world);
    is_first = ls_world_rank(*world) == 0;
    a->train.world = *world;
    if (a->ranks && a->ranks != size && !a->elastic) {
        if (is_first)
            fprintf(stderr, "lockstep train: -n %d, but the launcher started %d rank%s; leave out -n\n", a->ranks, size,
                    ls__s(size));
        return LS_EINVAL;
    }
    return LS_OK;
}

/* Warnings and information, on the first rank. Any thread may log while the progress line is drawn. */
static void show_log(void *user, ls_log_level level, const char *text)
{
    const train_arguments *a = user;
    const char *clear = on_terminal && isatty(STDERR_FILENO) ? "\r\033[K" : "";
    if (level >= LS_LOG_WARNING)
        fprintf(stderr, "%slockstep train: %s\n", clear, text);
    else if (level == LS_LOG_INFO && !a->quiet)
        printf("%s%s\n", clear, text);
}

static int train_here(train_arguments *a)
{
    char path[4096];
    if (is_first) a->train.config = a->config_text;
    a->train.run_dir = choose_run_dir(a, path, sizeof path);
    if (a->accumulate) a->train.slots = a->accumulate * (a->train.world ? ls_world_size(a->train.world) : 1);
    ls_log_set(is_first ? show_log : NULL, a);
    ls_train *t;
    ls_status status = ls_train_open(&t, &a->train);
    is_starting = 0;
    if (status) return report_failure(status);
    const char *run_dir = ls_train_run_dir(t);
    if (stop_signal && !a->train.world) { /* several ranks agree on it after a step */
        fprintf(stderr, "stopped before the first step; %s\n", a->resume ? "the run is unchanged" : "nothing is saved");
        if (a->resume) print_resume(stderr, a, run_dir);
        ls_train_free(&t);
        return EXIT_SIGNAL + stop_signal;
    }
    bool again = ls__train_kept_is_ready(t); /* a later generation of an elastic run */
    if (is_first && !again && !a->no_save) last_run_set(run_dir);
    if (!a->quiet && is_first && !again) introduce(t, run_dir);
    int64_t made = 0;
    bool stopped;
    status = run_steps(t, a, &made, &stopped);
    if (again) made = ls_train_steps_made(t); /* those of earlier generations are in no file yet */
    if (status == LS_END && ls__train_is_changing(t) && ls_train_steps_made(t) < ls_train_get_options(t)->steps) {
        ls_train_free(&t);
        return LS__KEPT_EXIT;
    }
    int code = status == LS_END ? finish(t, a, run_dir, made, stopped) : give_up(t, a, status, run_dir, made);
    if (stopped && a->train.world) leave_together(a->train.world);
    if (a->train.profile && made && code == EXIT_DONE) code = show_profile(t, a, run_dir);
    ls_train_free(&t);
    return code;
}

/* Tunes, and starts this program again with the settings that were found. */
static int train_tuned(int argc, char **argv)
{
    char choice[200], *rest;
    const char **words = calloc((size_t)argc + sizeof choice + 2, sizeof *words);
    int n = 0, first;
    if (!words) return EXIT_FAILED;
    words[n++] = launch_self();
    first = n;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--tune") != 0 && strncmp(argv[i], "--tune=", 7) != 0) words[n++] = argv[i];
    int code = tune_settings(n - first, (char **)words + first, choice, sizeof choice);
    if (code == EXIT_DONE) {
        n = first +
            tune_copy_words(n - first, (char **)words + first, strstr(choice, "--slots"), (char **)words + first);
        for (char *w = strtok_r(choice, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) words[n++] = w;
        fflush(stdout);
        execv(words[0], (char **)words);
        fprintf(stderr, "lockstep train: %s: %s\n", printable(words[0]), strerror(errno));
        code = EXIT_FAILED;
    }
    free(words);
    return code;
}

/* On several machines: reads the list and coordinates them. */
static int train_on_hosts(const train_arguments *a, const launch_options *o)
{
    coordinator_options c = { .hostfile = a->hostfile,
                              .rsh = a->rsh ? a->rsh : "ssh",
                              .machine_timeout = a->machine_timeout > 0 ? a->machine_timeout : 2 };
    char why[300];
    bool good = a->hosts ? hosts_parse(&c.hosts, a->hosts, why, sizeof why)
                         : hosts_read(&c.hosts, a->hostfile, why, sizeof why);
    if (!good) {
        fprintf(stderr, "lockstep train: %s%s%s: %s\n", a->hosts ? "--hosts" : "--hostfile", a->hosts ? "" : " ",
                a->hosts ? "" : printable(a->hostfile), why);
        return EXIT_USAGE;
    }
    return coordinate(&c, o, a->argc, a->argv);
}

int train_command(int argc, char **argv)
{
    train_arguments a;
    ls__launch_info identity;
    ls_world *world = NULL;
    int code = train_arguments_read(&a, argc, argv);
    ls_status status = LS_OK;
    if (code < 0 && a.print_config) {
        train_config_write(&a, stdout);
        code = EXIT_DONE;
    }
    if (code < 0) a.config_text = train_config_text(&a);
    if (code < 0 && (status = ls__launch_info_read(&identity, from_environment, NULL))) code = report_failure(status);
    if (code < 0 && (status = ls__kernels_check())) code = report_failure(status);
    bool alone = code < 0 && identity.launcher == LS__LAUNCHER_NONE;
    if (code < 0 && a.tune && !alone) {
        fprintf(stderr, "lockstep train: --tune: ranks were started already; use 'lockstep tune --launcher' before\n");
        code = EXIT_USAGE;
    } else if (code < 0 && a.tune)
        code = train_tuned(argc, argv);
    if (code < 0 && a.elastic && !alone && !identity.kept_fd) {
        fprintf(
            stderr,
            "lockstep train: --elastic: its ranks must be started by 'lockstep train --elastic -n N' itself, on one "
            "machine\n");
        code = EXIT_USAGE;
    }
    int ranks = a.ranks ? a.ranks : a.saved ? a.saved->ranks : 1;
    if (code < 0 && alone && (ranks > 1 || a.elastic)) {
        launch_options o = { .ranks = ranks, .grace = SAVE_SECONDS };
        o.elastic = a.elastic;
        o.max_restarts = a.elastic ? a.max_restarts : 0;
        o.stop_timeout = a.rank_timeout;
        if (a.rank_timeout > 20)
            o.timeout = a.rank_timeout + 10; /* the other ranks wait for longer than the launcher */
        code = a.hosts || a.hostfile ? train_on_hosts(&a, &o) : start_ranks_with(&o, a.argc, a.argv);
    } else if (code < 0) {
        keep_without_reader();
        catch_signals();
        if (alone && !a.train.threads) a.train.threads = machine_threads();
        if (!alone && identity.launcher != LS__LAUNCHER_LOCKSTEP)
            a.launcher = identity.launcher == LS__LAUNCHER_SLURM ? "srun" : "mpirun";
        /* mpirun's ranks have a terminal even if its output is a file. */
        on_terminal = !a.launcher && isatty(STDOUT_FILENO) == 1;
        status = join_world(&a, identity.launcher, &world);
        code = !status ? train_here(&a) : world ? EXIT_USAGE : report_failure(status);
    }
    ls_world_free(&world);
    train_arguments_free(&a);
    return code;
}
