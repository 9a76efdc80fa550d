/* Drawing what `lockstep top` shows: a line for the run, a line for each rank with its step as a bar, and the first findings. */
#include <math.h>
#include <string.h>
#include "cli/amount.h"
#include "cli/generations.h"
#include "cli/top_view.h"

static const struct {
    ls_phase phase;
    char letter;
    int color; /* of the background, of 256 */
    const char *name;
} look[LS_PHASE_COUNT] = { { LS_PHASE_DATA, 'd', 178, "data" },        { LS_PHASE_FORWARD, 'f', 32, "forward" },
                           { LS_PHASE_BACKWARD, 'b', 98, "backward" }, { LS_PHASE_UPDATE, 'u', 36, "update" },
                           { LS_PHASE_WAIT, 'w', 160, "waiting" },     { LS_PHASE_COMM, 'c', 175, "communication" },
                           { LS_PHASE_EVAL, 'e', 107, "eval" },        { LS_PHASE_CHECKPOINT, 'k', 137, "checkpoint" },
                           { LS_PHASE_OTHER, '.', 243, "other" } };

static void end_line(const top_form *f)
{
    fputs(f->terminal ? "\033[K\r\n" : "\n", f->to);
}

/* Text for a terminal: what is not printable ASCII becomes '?'. Cut to `columns`. */
static void put_plain(const top_form *f, const char *text, int columns)
{
    for (; *text && columns > 0; text++, columns--) fputc(*text >= ' ' && *text < 127 ? *text : '?', f->to);
    for (; columns > 0; columns--) fputc(' ', f->to);
}

static void draw_bar(const top_form *f, const top_rank *r, int columns, double longest)
{
    double at = 0;
    int drawn = 0;
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        at += longest > 0 ? r->ns[look[i].phase] / longest : 0;
        int to = (int)floor(at * columns + 0.5);
        if (to > columns) to = columns;
        if (to <= drawn) continue;
        if (f->color) fprintf(f->to, "\033[48;5;%d;38;5;231m", look[i].color);
        for (; drawn < to; drawn++) fputc(f->color ? ' ' : look[i].letter, f->to);
        if (f->color) fputs("\033[0m", f->to);
    }
    for (; drawn < columns; drawn++) fputc(' ', f->to);
}

/* Its lines. */
static int draw_legend(const top_form *f, const top_view *v, bool draw)
{
    int at = 0, lines = 1;
    for (int i = 0; i < LS_PHASE_COUNT; i++) {
        bool used = false;
        for (int r = 0; r < v->ranks; r++) used = used || v->rank[r].ns[look[i].phase] > 0;
        if (!used) continue;
        int columns = (int)strlen(look[i].name) + (f->color ? 3 : 2);
        if (at && at + 2 + columns > f->columns) {
            if (draw) end_line(f);
            at = 0;
            lines++;
        }
        if (draw && at) fputs("  ", f->to);
        at += columns + (at ? 2 : 0);
        if (draw && f->color)
            fprintf(f->to, "\033[48;5;%dm  \033[0m %s", look[i].color, look[i].name);
        else if (draw)
            fprintf(f->to, "%c %s", look[i].letter, look[i].name);
    }
    if (draw) end_line(f);
    return lines;
}

static void draw_state(const top_form *f, const top_view *v)
{
    const char *color = v->killed ? "\033[1;31m" : v->ended ? "\033[1m" : v->idle_s > 10 ? "\033[1;33m" : "\033[1;32m";
    if (f->color) fputs(color, f->to);
    if (v->ended)
        fputs("ended", f->to);
    else if (v->killed)
        fputs("killed: its processes ended without closing their records", f->to);
    else if (v->idle_s > 10)
        fprintf(f->to, "no event for %.0f s", v->idle_s);
    else
        fputs("running", f->to);
    if (f->color) fputs("\033[0m", f->to);
}

static void draw_head(const top_view *v, const char *path, const top_form *f)
{
    put_plain(f, path, (int)strlen(path) < 40 ? (int)strlen(path) : 40);
    fprintf(f->to, "  step %lld", (long long)v->step);
    if (v->steps > 0) fprintf(f->to, "/%lld", (long long)v->steps);
    if (isfinite(v->loss)) fprintf(f->to, "  loss %.4f", v->loss);
    fputs("  ", f->to);
    draw_state(f, v);
    end_line(f);
    if (v->window) {
        fprintf(f->to, "%s per step", amount_ns(v->step_ns).text);
        if (f->columns >= 70) fprintf(f->to, " (mean of the newest %zu)", v->window);
        if (v->tokens_per_s > 0) fprintf(f->to, "  %s tokens/s", amount_count(v->tokens_per_s).text);
        if (v->steps > v->step && !v->ended && !v->killed)
            fprintf(f->to, "  %s left", amount_ns((double)(v->steps - v->step) * v->step_ns).text);
    } else {
        fputs("no step has ended yet", f->to);
    }
    end_line(f);
    char changed[300];
    generations_newest(path, changed, sizeof changed);
    if (*changed) {
        put_plain(f, changed, f->columns < (int)strlen(changed) ? f->columns : (int)strlen(changed));
        end_line(f);
    }
    end_line(f);
}

/* What a rank's line has room for. */
typedef struct columns {
    bool host, cause, cores, sched_delay;
    int bar;
} columns;

/* In a narrow terminal, the least important is left out first: phases, waiting and memory stay. */
static columns fit_columns(int width)
{
    enum { ALWAYS = 30, HOST = 11, CAUSE = 10, CORES = 6, SCHED_DELAY = 12, LEAST = 10 };
    columns c = { true, true, true, true, 0 };
    int fixed = ALWAYS + HOST + CAUSE + CORES + SCHED_DELAY;
    if (width < fixed + LEAST) c.host = false, fixed -= HOST;
    if (width < fixed + LEAST) c.sched_delay = false, fixed -= SCHED_DELAY;
    if (width < fixed + LEAST) c.cores = false, fixed -= CORES;
    if (width < fixed + LEAST) c.cause = false, fixed -= CAUSE;
    c.bar = width - fixed < LEAST ? LEAST : width - fixed > 100 ? 100 : width - fixed;
    return c;
}

static void draw_titles(const top_form *f, columns c)
{
    fprintf(f->to, "%4s ", "rank");
    if (c.host) fprintf(f->to, "%-10s ", "host");
    fprintf(f->to, "%-*s %5s", c.bar, "a step", "waits");
    if (c.cause) fprintf(f->to, " %-9s", "for");
    if (c.cores) fprintf(f->to, " %5s", "cores");
    if (c.sched_delay) fprintf(f->to, " %11s", "sched delay");
    fprintf(f->to, " %9s", "memory");
    end_line(f);
}

static const char *state_of(const top_rank *r)
{
    if (r->closed) return "ended";
    if (!r->local) return "";
    return r->state == 'T' || r->state == 't' ? "stopped" : r->state == 'D' ? "disk" : "runs";
}

static void draw_rank(const top_form *f, const top_view *v, int rank, columns c, double longest)
{
    const top_rank *r = &v->rank[rank];
    fprintf(f->to, "%4d ", rank);
    if (!r->present) {
        fputs("its record is missing", f->to);
        end_line(f);
        return;
    }
    if (c.host) {
        put_plain(f, r->host, 10);
        fputc(' ', f->to);
    }
    draw_bar(f, r, c.bar, longest);
    double wait = r->step_ns > 0 ? r->ns[LS_PHASE_WAIT] / r->step_ns : 0;
    fprintf(f->to, " %5s", amount_share(wait).text);
    char cause[24] = "-", cpu[16] = "-";
    if (r->waits_for >= 0) snprintf(cause, sizeof cause, "rank %d", r->waits_for);
    if (c.cause) fprintf(f->to, " %-9s", cause);
    if (r->cpu >= 0) snprintf(cpu, sizeof cpu, "%.2f", r->cpu);
    if (c.cores) fprintf(f->to, " %5s", cpu);
    if (c.sched_delay) fprintf(f->to, " %s", amount_field(amount_ns(r->sched_delay_ns), 11).text);
    fprintf(f->to, " %9s  %s", r->memory > 0 ? amount_bytes(r->memory).text : "-", state_of(r));
    end_line(f);
}

void top_draw(const top_view *v, const char *path, const top_form *f)
{
    columns c = fit_columns(f->columns);
    int ranks = v->ranks;
    double longest = 0;
    /* Besides the ranks: the head, titles, "and more", an empty line, the legend, the findings, and what the caller writes below. */
    int others = 3 + 1 + 1 + 1 + draw_legend(f, v, false) + v->findings + 1;
    if (f->rows > 0 && ranks > f->rows - others + 1) ranks = f->rows - others;
    if (ranks < 1) ranks = 1;
    for (int r = 0; r < v->ranks; r++) longest = fmax(longest, v->rank[r].step_ns);
    draw_head(v, path, f);
    draw_titles(f, c);
    int shown = 0;
    for (int row = 0; row < ranks && shown < v->ranks; row++, shown++) {
        int first = shown;
        while (!v->rank[first].present && shown + 1 < v->ranks && !v->rank[shown + 1].present) shown++;
        if (shown == first) {
            draw_rank(f, v, first, c, longest);
            continue;
        }
        fprintf(f->to, "%4d to %d: their records are missing", first, shown);
        end_line(f);
    }
    if (shown < v->ranks) {
        fprintf(f->to, "     and %d more", v->ranks - shown);
        end_line(f);
    }
    end_line(f);
    draw_legend(f, v, true);
    for (int i = 0; i < v->findings; i++) {
        fputs(v->finding[i], f->to);
        end_line(f);
    }
}
