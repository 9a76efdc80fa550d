/* The command line of `lockstep train`. */
#include "cli/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/format_choices.h"
#include "cli/last_run.h"
#include "cli/suggest.h"
#include "train/settings.h"

static const char intro[] =
    "usage: lockstep train [OPTIONS]\n"
    "\n"
    "Trains a language model (GPT-2, Llama family), an encoder (BERT) or an image classifier (ResNet, ViT).\n"
    "Without --data: a small model on a built-in corpus of stories, in less than a minute.\n"
    "Writes run.json, metrics.jsonl (one object per step) and the model as a Hugging Face folder\n"
    "(config.json, model.safetensors) to the run folder. Ctrl-C stops after the current step and saves; 'lockstep "
    "train --resume' continues.\n";

/* Reading moves the arguments, and lists point into them, so a second reader needs a copy. NULL: out of memory. */
static char **copy_words(int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (copy) memcpy(copy, argv, (size_t)argc * sizeof *copy);
    return copy;
}

/* Options that are not settings of the run (train/settings.h), shown first in their section of the help. */
typedef struct own_row {
    const char *section;
    option_row row;
} own_row;

static option_row row_of(train_arguments *a, const ls__setting *s)
{
    static const option_kind kinds[] = {
        [LS__SET_INT] = OPTION_INT,       [LS__SET_LONG] = OPTION_LONG,     [LS__SET_SIZE] = OPTION_SEED,
        [LS__SET_FLOAT] = OPTION_FLOAT,   [LS__SET_DOUBLE] = OPTION_DOUBLE, [LS__SET_FLAG] = OPTION_FLAG,
        [LS__SET_CHOICE] = OPTION_CHOICE, [LS__SET_FORMAT] = OPTION_CHOICE, [LS__SET_TEXT] = OPTION_TEXT,
        [LS__SET_PATH] = OPTION_TEXT,     [LS__SET_PATHS] = OPTION_LIST
    };
    option_row r = {
        kinds[s->kind], s->option, (char *)&a->train + s->at, s->value, s->help, s->low, s->high, s->words
    };
    if (s->flags & LS__SET_AUTO && s->kind == LS__SET_INT) r.kind = OPTION_AUTO;
    if (s->flags & LS__SET_AUTO && s->kind == LS__SET_SIZE) r.kind = OPTION_SIZE;
    if (s->kind == LS__SET_FORMAT) r.choices = format_choices(FORMATS_ALL); /* in the order of ls_data_format */
    if (s->kind == LS__SET_PATHS) r.to = s->at == offsetof(ls_train_options, data) ? &a->data : &a->val_data;
    return r;
}

/* On the command line 0 is 0 and auto is a word; in the library 0 is the default or auto, and none is negative. */
static void convert(ls_train_options *o, const ls__setting *s)
{
    void *at = (char *)o + s->at;
    bool none = s->flags & LS__SET_NONE;
    if (s->kind == LS__SET_INT) {
        int x = *(int *)at;
        *(int *)at = x < 0 ? 0 : x == 0 && none ? -1 : x;
    } else if (s->kind == LS__SET_FLOAT && none && *(float *)at == 0) {
        *(float *)at = -1;
    } else if (s->kind == LS__SET_DOUBLE && none && *(double *)at == 0) {
        *(double *)at = -1;
    }
}

/* The names that --model takes. */
static void list_models(char *out, size_t bytes)
{
    snprintf(out, bytes, "small (default)");
    for (int kind = 0; kind < LS_MODEL_KINDS; kind++) {
        const char *name;
        for (int i = 0; (name = ls_model_preset_name((ls_model_kind)kind, i)); i++) {
            size_t at = strlen(out);
            snprintf(out + at, bytes - at, "%s%s", kind == LS_MODEL_RESNET && !i ? "; images: " : ", ", name);
        }
    }
}

option_row *train_rows(train_arguments *a)
{
    ls_train_options *t = &a->train;
    const double many = 2147483647, any = 1e18;
    static char names[1024];
    list_models(names, sizeof names);
    const own_row own[] = {
        { "Ranks",
          { OPTION_INT, "-n", &a->ranks, "N", "ranks to start on this machine (1; mpirun: its ranks)", 1, 512, NULL } },
        { "Ranks",
          { OPTION_INT, "--accumulate", &a->accumulate, "N", "micro-batches per step on each rank (1)", 1, many,
            NULL } },
        { "Ranks",
          { OPTION_FLAG, "--elastic", &a->elastic, NULL, "continue when ranks are killed, with the same result", 0, 0,
            NULL } },
        { "Ranks",
          { OPTION_INT, "--max-restarts", &a->max_restarts, "K", "elastic: number of lost ranks to replace (3)", 0,
            1000000, NULL } },
        { "Ranks",
          { OPTION_DOUBLE, "--rank-timeout", &a->rank_timeout, "S", "seconds that a rank may be stopped (30)", 0.01,
            1e6, NULL } },
        { "Ranks",
          { OPTION_TEXT, "--hosts", &a->hosts, "LIST",
            "elastic: machines and their ranks, node0:2,node1:2; slurm: those of the allocation", 0, 0, NULL } },
        { "Ranks",
          { OPTION_TEXT, "--hostfile", &a->hostfile, "FILE",
            "elastic: machines, one per line, node0 slots=2; read again when it changes", 0, 0, NULL } },
        { "Ranks",
          { OPTION_TEXT, "--rsh", &a->rsh, "CMD", "what starts commands on other machines (ssh)", 0, 0, NULL } },
        { "Ranks",
          { OPTION_DOUBLE, "--machine-timeout", &a->machine_timeout, "S",
            "seconds without a sign of life after which a machine is lost (2)", 0.3, 1e6, NULL } },
        { "Model", { OPTION_TEXT, "--model", &a->model, "NAME", names, 0, 0, NULL } },
        { "Training",
          { OPTION_DOUBLE, "--epochs", &t->epochs, "X", "passes over the data, instead of --steps", 1e-9, 1e9, NULL } },
        { "Output",
          { OPTION_TEXT, "--run-dir", &a->run_dir, "DIR", "run folder (runs/NAME; runs/last links to it)", 0, 0,
            NULL } },
        { "Output", { OPTION_TEXT, "--name", &a->name, "NAME", "name of the run (its start time)", 0, 0, NULL } },
        { "Output",
          { OPTION_PERHAPS, "--resume", &a->resume, "[DIR]",
            "continue the run in DIR (runs/last) with its options; --steps may be larger", 0, 0, NULL } },
        { "Output",
          { OPTION_FLAG, "--overwrite", &a->overwrite, NULL, "replace a run or model that is in the run folder", 0, 0,
            NULL } },
        { "Output",
          { OPTION_TEXT, "--config", &a->config, "FILE",
            "options from a TOML file (name = value); those of the command line have priority", 0, 0, NULL } },
        { "Output",
          { OPTION_FLAG, "--print-config", &a->print_config, NULL,
            "print the configuration in the form of --config, and do not train", 0, 0, NULL } },
        { "Measurement",
          { OPTION_TEXT, "--inject", &a->inject, "R:P:MS", "for tests: delay rank R by MS ms in phase P of each step",
            0, 0, NULL } },
        { "Output",
          { OPTION_LONG, "--log-every", &a->log_every, "N", "steps between log lines, if not on a terminal", 1, any,
            NULL } },
        { "Output", { OPTION_FLAG, "--quiet", &a->quiet, NULL, "print only errors", 0, 0, NULL } },
        { "Output",
          { OPTION_FLAG, "--no-save", &a->no_save, NULL, "write neither checkpoints nor the model, to measure only", 0,
            0, NULL } },
        { "Ranks",
          { OPTION_FLAG, "--tune", &a->tune, NULL, "find the fastest settings first; see 'lockstep tune'", 0, 0,
            NULL } },
    };
    enum { OWN = sizeof own / sizeof *own, SECTIONS = 6 };
    option_row *rows = calloc((size_t)ls__n_settings + OWN + SECTIONS + 1, sizeof *rows), *r = rows;
    if (!rows) {
        fprintf(stderr, "lockstep train: out of memory\n");
        return NULL;
    }
    for (int i = 0; i < ls__n_settings;) {
        const char *section = ls__settings[i].section;
        *r++ = (option_row){ OPTION_HEADING, section, NULL, NULL, NULL, 0, 0, NULL };
        for (int k = 0; k < OWN; k++)
            if (!strcmp(own[k].section, section)) *r++ = own[k].row;
        do
            if (ls__settings[i].help) *r++ = row_of(a, &ls__settings[i]);
        while (++i < ls__n_settings && !ls__settings[i].section);
    }
    return rows;
}

/* Reads argv over what is in `a`. */
static int read_rows(train_arguments *a, int argc, char **argv)
{
    option_row *rows = train_rows(a);
    char **copy = copy_words(argc, argv); /* reading moves the words */
    if (rows && !copy) fprintf(stderr, "lockstep train: out of memory\n");
    int code = rows && copy ? options_read("train", intro, rows, NULL, argc, argv) : EXIT_FAILED;
    for (int i = 0; i < ls__n_settings && code < 0; i++)
        if (train_option_given(ls__settings[i].option, argc, copy)) convert(&a->train, &ls__settings[i]);
    free(rows);
    free(copy);
    return code;
}

/* A ResNet by name, for the task images. */
static int choose_resnet(train_arguments *a, const char *name)
{
    ls_resnet_options *r = &a->train.resnet;
    ls_model_options named;
    if (ls_model_preset(name, &named) || named.kind == LS_MODEL_LM) {
        const char *other;
        fprintf(stderr, "lockstep train: --model: '%s' is not a model of images; there are", printable(name));
        for (int kind = LS_MODEL_RESNET; kind <= LS_MODEL_VIT; kind++)
            for (int i = 0; (other = ls_model_preset_name((ls_model_kind)kind, i)); i++)
                fprintf(stderr, "%s %s", kind == LS_MODEL_RESNET && !i ? "" : ",", other);
        fprintf(stderr, "\n");
        return EXIT_USAGE;
    }
    a->train.vit = named.vit;
    const ls_lm_options *m = &a->train.model;
    if (m->layers || m->width || m->heads || m->vocab_size || m->context || a->train.seq_len) {
        fprintf(stderr,
                "lockstep train: --layers, --width, --heads, --vocab-size, --context and --seq-len are for language "
                "models\n");
        return EXIT_USAGE;
    }
    if (m->classes) {
        fprintf(stderr, "lockstep train: --classes is for --task classify; pictures have the classes of their data\n");
        return EXIT_USAGE;
    }
    memcpy(r->blocks, named.resnet.blocks, sizeof r->blocks);
    r->stem = named.resnet.stem;
    r->bottleneck = named.resnet.bottleneck;
    a->train.task = LS_TASK_IMAGES;
    return -1;
}

/* Options of rotary positions that their kind does not have. */
static bool rope_is_valid(const ls_rope *r)
{
    bool turns = r->low_freq_factor != 0 || r->high_freq_factor != 0 || r->original_context;
    if (!(r->factor != 0 && !r->kind) && !(turns && r->kind != LS_ROPE_LLAMA3)) return true;
    fprintf(
        stderr,
        "lockstep train: --rope-factor needs --rope linear or llama3, and --rope-low, --rope-high and --rope-context "
        "need --rope llama3\n");
    return false;
}

/* The model's size by name; --layers, --width and --heads override it. */
static int choose_model(train_arguments *a)
{
    ls_lm_options *m = &a->train.model, size = { .layers = 2, .width = 128, .heads = 4 };
    const char *name = a->model ? a->model : ls_task_get_info(a->train.task)->model;
    if (a->train.task == LS_TASK_IMAGES || !strncmp(name, "resnet", 6) || !strncmp(name, "vit", 3))
        return choose_resnet(a, name);
    if (strcmp(name, "small") != 0) {
        ls_model_options named;
        if (ls_model_preset(name, &named)) {
            near_word near = { .asked = name, .length = strlen(name) };
            near_offer(&near, "small");
            const char *other;
            for (int kind = 0; kind < LS_MODEL_KINDS; kind++)
                for (int i = 0; (other = ls_model_preset_name((ls_model_kind)kind, i)); i++) near_offer(&near, other);
            fprintf(stderr, "lockstep train: --model: %s, or small%s\n", ls_error(), near_text(&near));
            return EXIT_USAGE;
        }
        size = named.lm;
        /* Without options, the vocabulary follows from the data, and the context from the sequence length. */
        size.vocab_size = size.context = 0;
    } else if (a->train.schedule.lr == 0) {
        a->train.schedule.lr = 0.003f;
    }
    m->kind = size.kind;
    bool reshaped = m->width && m->width != size.width, regrouped = reshaped || (m->heads && m->heads != size.heads);
    if (!m->layers) m->layers = size.layers;
    if (!m->width) m->width = size.width;
    if (!m->heads) m->heads = reshaped ? 0 : size.heads;
    if (!m->kv_heads) m->kv_heads = regrouped ? 0 : size.kv_heads;
    if (!m->head_dim) m->head_dim = regrouped ? 0 : size.head_dim;
    if (!m->inner) m->inner = reshaped ? 0 : size.inner;
    if (!m->head) m->head = size.head;
    if (!m->window) m->window = size.window;
    if (m->norm_eps == 0) m->norm_eps = size.norm_eps;
    if (!rope_is_valid(&m->rope)) return EXIT_USAGE;
    if (!m->rope.kind && m->rope.theta == 0)
        m->rope = size.rope;
    else if (m->rope.theta == 0)
        m->rope.theta = size.rope.theta;
    if (m->rope.kind == LS_ROPE_LLAMA3) {
        if (m->rope.low_freq_factor == 0) m->rope.low_freq_factor = 1;
        if (m->rope.high_freq_factor == 0) m->rope.high_freq_factor = 4;
        if (!m->rope.original_context) m->rope.original_context = 8192;
    }
    return -1;
}

/* RANK:PHASE:MS[:EVERY[:FIRST[:HOW]]] */
static int read_inject(const char *text, ls_train_delay *d)
{
    static const ls_phase phases[] = { LS_PHASE_DATA, LS_PHASE_FORWARD, LS_PHASE_BACKWARD, LS_PHASE_UPDATE };
    char phase[16] = "", how[8] = "work", more;
    long long every = 1, first = 1;
    int n = sscanf(text, "%d:%15[a-z]:%lf:%lld:%lld:%7[a-z]%c", &d->rank, phase, &d->ms, &every, &first, how, &more);
    d->every = every;
    d->first = first;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(phase, ls_phase_name(phases[i]))) d->phase = phases[i];
    d->off_cpu = !strcmp(how, "sleep");
    bool good = n >= 3 && n <= 6 && (d->off_cpu || !strcmp(how, "work")) && every >= 0 && first >= 1;
    if (good && d->phase && d->rank >= 0 && d->ms > 0 && d->ms < 1e6) return -1;
    fprintf(stderr,
            "lockstep train: --inject: '%s' must be RANK:PHASE:MS[:EVERY[:FIRST[:HOW]]]; PHASE is data, forward, "
            "backward or update, HOW is work or sleep\n",
            text);
    return EXIT_USAGE;
}

/* Options that contradict each other, or need others. `a` has the command line's options and nothing else. */
static int check_together(const train_arguments *a)
{
    const ls_train_options *t = &a->train;
    const char *wrong = NULL;
    if (t->init &&
        (t->model.layers || t->model.width || t->model.heads || t->model.vocab_size || t->model.context ||
         t->model.norm_eps != 0 || t->model.kv_heads || t->model.head_dim || t->model.inner || t->model.head ||
         t->model.attention_bias || t->model.mlp_bias || t->model.window || t->model.window_first ||
         t->model.rope.kind || t->model.rope.theta != 0 || t->model.types || a->model))
        wrong = "--init: the folder defines the model; leave out --model, --vocab-size, --context, --norm-eps and all "
                "else that is in its config.json: --layers, --width, --heads, ...";
    else if (a->run_dir && a->name)
        wrong = "--run-dir and --name exclude each other";
    else if (a->run_dir && !*a->run_dir)
        wrong = "--run-dir: must not be empty";
    else if (a->name && (!*a->name || *a->name == '.' || strchr(a->name, '/') || !strcmp(a->name, "last")))
        wrong =
            "--name: must be the name of a folder in runs/, without '/' or a leading dot, and not 'last'; --run-dir "
            "takes any path";
    else if (t->steps && t->epochs > 0)
        wrong = "--steps and --epochs exclude each other";
    else if (a->resume && a->overwrite)
        wrong = "--overwrite and --resume exclude each other";
    else if (a->resume && *a->resume && (a->run_dir || a->name))
        wrong = "--resume selects the run; leave out --run-dir and --name";
    else if ((t->no_checkpoint || a->no_save) && t->checkpoint_every)
        wrong = "--checkpoint-every excludes --no-checkpoint and --no-save";
    else if ((a->hosts || a->hostfile) && !a->elastic)
        wrong = "--hosts and --hostfile are for --elastic; without it, start the ranks with mpirun or srun";
    else if (a->hosts && a->hostfile)
        wrong = "--hosts and --hostfile exclude each other";
    else if ((a->hosts || a->hostfile) && a->ranks)
        wrong = "-n: the list of machines has the number of ranks on each; leave it out";
    else if (a->tune && (a->resume || a->elastic))
        wrong = "--tune: the settings of a resumed run or of --elastic cannot be tuned";
    else if (a->accumulate && t->slots)
        wrong = "--accumulate (micro-batches per rank) and --slots (over all ranks) exclude each other";
    else if (a->resume)
        return -1;
    else if (t->stage_limit && !t->stage)
        wrong = "--stage-limit needs --stage";
    else if (!a->data.count && t->stage)
        wrong = "--stage: the built-in corpus is not in a file; give files with --data";
    else if (t->order == LS_ORDER_BALANCED && !t->pad && !t->chat)
        wrong = "--order balanced needs --pad; packed sequences have equal lengths";
    if (!wrong) return -1;
    fprintf(stderr, "lockstep train: %s\n", wrong);
    return EXIT_USAGE;
}

/* Finds the run, reads its options, and reads the command line once more over them. `a` holds what was given. */
static int resume(train_arguments *a, int argc, char **argv)
{
    const ls_train_options given = a->train;
    train_arguments own = *a;
    if (*own.resume) own.run_dir = own.resume;
    if (own.name && asprintf(&own.named, "runs/%s", own.name) >= 0) own.run_dir = own.named;
    if (!own.run_dir && !(own.run_dir = last_run_or(NULL, "train"))) return EXIT_USAGE;
    *a = own;
    ls_status status = ls_train_saved_open(&a->saved, own.run_dir);
    if (status == LS_ENOENT) {
        fprintf(stderr, "lockstep train: --resume %s: not a run folder: it has no run.json\n", printable(own.run_dir));
        return EXIT_USAGE;
    }
    if (status) return exit_failure("train", status);
    a->train = a->saved->options;
    int code = read_rows(a, argc, argv);
    a->run_dir = own.run_dir;
    ls_train_options *t = &a->train;
    t->run_dir_mode = LS_RUN_DIR_RESUME;
    if (code >= 0) return code;
    if (given.epochs > 0) t->steps = 0; /* --epochs replaces the saved --steps */
    if (a->accumulate) t->slots = 0;
    if (a->model) {
        ls_lm_options *m = &t->model;
        if (!given.model.layers) m->layers = 0;
        if (!given.model.width) m->width = 0;
        if (!given.model.heads) m->heads = 0;
        return choose_model(a);
    }
    return -1;
}

train_arguments train_arguments_defaults(void)
{
    return (train_arguments){ .max_restarts = 3,
                              .train = { .schedule = { .kind = LS_SCHEDULE_COSINE, .warmup = -1 } } };
}

/* What a->argv has, over the defaults. */
static int read_command_line(train_arguments *a)
{
    for (int i = 0; i < 2; i++) {
        free(a->words[i]);
        if ((a->words[i] = copy_words(a->argc, a->argv))) continue;
        fprintf(stderr, "lockstep train: out of memory\n");
        return EXIT_FAILED;
    }
    return read_rows(a, a->argc, a->words[0]);
}

int train_arguments_read(train_arguments *a, int argc, char **argv)
{
    *a = train_arguments_defaults();
    a->argc = argc;
    a->argv = argv;
    int code = read_command_line(a);
    if (code < 0 && a->config && (code = train_config_merge(a, argc, argv)) < 0) {
        train_arguments given = *a;
        *a = train_arguments_defaults();
        for (int i = 0; i < 2; i++) a->words[i] = given.words[i];
        a->argc = given.argc;
        a->argv = a->merged = given.merged;
        a->merged_text = given.merged_text;
        code = read_command_line(a);
    }
    if (code < 0) code = check_together(a);
    if (code >= 0) return code;
    ls_train_options *t = &a->train;
    if (a->resume) {
        code = resume(a, a->argc, a->words[1]);
    } else {
        if (a->overwrite) t->run_dir_mode = LS_RUN_DIR_OVERWRITE;
        if (!t->init) code = choose_model(a);
        if (!t->seq_len && !t->init && t->task != LS_TASK_IMAGES) t->seq_len = a->data.count ? 256 : 64;
    }
    if (code >= 0) return code;
    if (a->inject && (code = read_inject(a->inject, &t->inject)) >= 0) return code;
    if (a->no_save) t->no_checkpoint = true;
    if (a->data.count) {
        t->data = (const char *const *)a->data.items;
        t->n_data = a->data.count;
    }
    if (a->val_data.count) {
        t->val_data = (const char *const *)a->val_data.items;
        t->n_val_data = a->val_data.count;
    }
    return train_arguments_check(a, a->argc, a->argv);
}

void train_arguments_free(train_arguments *a)
{
    ls_train_saved_free(&a->saved);
    free(a->named);
    free(a->words[0]);
    free(a->words[1]);
    free(a->merged);
    free(a->merged_text);
    free(a->config_text);
}
