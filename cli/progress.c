/* The progress of a training run. See progress.h. */
#include "cli/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Steps may be short: more frequent updates cannot be read, and cost time on a slow connection. */
#define REDRAW_NS INT64_C(50000000)

void progress_init(progress *p, const ls_train_options *o, int64_t every, bool terminal)
{
    *p = (progress){ .task = o->task, .terminal = terminal };
    p->every = every > 0 ? every : o->steps / 20;
    if (p->every < 1) p->every = 1;
}

static void format_count(char *text, size_t bytes, double x)
{
    if (x >= 1e6)
        snprintf(text, bytes, "%.2fM", x / 1e6);
    else if (x >= 1e4)
        snprintf(text, bytes, "%.1fk", x / 1e3);
    else
        snprintf(text, bytes, "%.0f", x);
}

static void format_time(char *text, size_t bytes, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%ld:%02ld", s / 60, s % 60);
}

/* The figures that both forms show, in the order in which they are shown. The numbers are the order in which they are left out
 * where a line is too short; those with 0 stay. */
enum { FIGURES = 5 };
typedef struct figure {
    char text[48];
    int left_out;
} figure;

static void format_figures(const progress *p, const ls_train_metrics *m, figure f[FIGURES])
{
    char speed[32], left[32];
    format_count(speed, sizeof speed, m->tokens_per_s);
    format_time(left, sizeof left, (double)(m->steps - m->step) * p->smoothed / 1e3);
    for (int i = 0; i < FIGURES; i++) f[i] = (figure){ 0 };
    snprintf(f[0].text, sizeof f->text, "loss %.4f", m->loss);
    snprintf(f[1].text, sizeof f->text, "%s %s/s", speed, ls_task_get_info(p->task)->unit);
    f[1].left_out = 3;
    if (m->peak_gflops > 0) snprintf(f[2].text, sizeof f->text, "%.0f%% of SGEMM", 100 * m->gflops / m->peak_gflops);
    f[2].left_out = 1;
    snprintf(f[3].text, sizeof f->text, "%.0f MB", (double)m->memory_bytes / 1e6);
    f[3].left_out = 2;
    snprintf(f[4].text, sizeof f->text, "%s left", left);
}

/* "STEP/STEPS [###---] FIGURES": the bar has the room that is left, and figures go where it would have too little. */
void progress_line(const progress *p, const ls_train_metrics *m, int columns, char *line, size_t bytes)
{
    enum { LEAST_BAR = 8, LONGEST_BAR = 24 };
    figure f[FIGURES];
    char head[48], bar[LONGEST_BAR + 1];
    int used = snprintf(head, sizeof head, "%lld/%lld", (long long)m->step, (long long)m->steps), room;
    format_figures(p, m, f);
    for (int i = 0; i < FIGURES; i++) used += *f[i].text ? 2 + (int)strlen(f[i].text) : 0;
    for (int out = 1; used + 3 + LEAST_BAR > columns && out <= 3; out++)
        for (int i = 0; i < FIGURES; i++)
            if (f[i].left_out == out && *f[i].text) {
                used -= 2 + (int)strlen(f[i].text);
                *f[i].text = 0;
            }
    room = columns - used - 3;
    if (room > LONGEST_BAR) room = LONGEST_BAR;
    for (int i = 0; i < room; i++) bar[i] = i < room * (double)m->step / (double)m->steps ? '#' : '-';
    bar[room > 0 ? room : 0] = 0;
    size_t n = (size_t)snprintf(line, bytes, room >= LEAST_BAR ? "%s [%s]" : "%s", head, bar);
    for (int i = 0; i < FIGURES && n < bytes; i++)
        if (*f[i].text) n += (size_t)snprintf(line + n, bytes - n, "%s%s", i ? "  " : " ", f[i].text);
    if (columns > 0 && (size_t)columns < bytes && n > (size_t)columns) line[columns] = 0;
}

static void draw(progress *p, const ls_train_metrics *m)
{
    char line[512];
    struct winsize size;
    /* The last column stays free: a character there would move the cursor to the next line on some terminals. */
    int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
    progress_line(p, m, columns, line, sizeof line);
    printf("\r%s\033[K", line);
    p->drawn = true;
    p->drawn_at = ls_now();
    p->pending.step = 0;
}

static void print_line(const progress *p, const ls_train_metrics *m)
{
    figure f[FIGURES];
    format_figures(p, m, f);
    printf("step %lld/%lld", (long long)m->step, (long long)m->steps);
    for (int i = 0; i < FIGURES; i++)
        if (*f[i].text) printf("  %s", f[i].text);
    printf("\n");
}

void progress_show(progress *p, const ls_train_metrics *m, bool best)
{
    /* The first steps are slower (pages come on first touch), so they are soon forgotten. */
    p->smoothed = m->step <= 2 ? m->step_ms : 0.9 * p->smoothed + 0.1 * m->step_ms;
    bool last = m->step == m->steps || m->eval_loss >= 0;
    if (p->terminal && !last && ls_now() - p->drawn_at < REDRAW_NS)
        p->pending = *m;
    else if (p->terminal)
        draw(p, m);
    else if (m->step == 1 || m->step == m->steps || m->step % p->every == 0)
        print_line(p, m);
    if (m->eval_loss >= 0) {
        progress_end(p);
        printf("step %lld  validation loss %.4f", (long long)m->step, m->eval_loss);
        const ls_task_info *info = ls_task_get_info(p->task);
        for (int i = 0; info->metrics[i]; i++)
            if (isfinite(m->eval_metrics[i])) {
                printf("  ");
                for (const char *c = info->metrics[i]; *c; c++) putchar(*c == '_' ? ' ' : *c);
                printf(" %.4f", m->eval_metrics[i]);
            }
        printf(best ? " (best)\n" : "\n");
    }
    fflush(stdout);
}

void progress_end(progress *p)
{
    if (p->pending.step) draw(p, &p->pending);
    if (p->drawn) printf("\n");
    p->drawn = false;
}
