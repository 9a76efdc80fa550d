/* The progress of a training. See progress.h. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void progress_init(progress *p, int64_t steps, int64_t every)
{
    *p = (progress){ .terminal = isatty(STDOUT_FILENO) == 1 };
    p->every = every > 0 ? every : steps / 20;
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

/* The figures that both forms show. */
static void format_figures(const progress *p, const ls_train_metrics *m, char *out, size_t bytes)
{
    char speed[32], left[32], share[32] = "";
    format_count(speed, sizeof speed, m->tokens_per_s);
    format_time(left, sizeof left, (double)(m->steps - m->step) * p->smoothed / 1e3);
    if (p->peak > 0) snprintf(share, sizeof share, "  %.0f%% of SGEMM", 100 * m->gflops / p->peak);
    snprintf(out, bytes, "loss %.4f  %s tokens/s%s  %.0f MB  %s left", m->loss, speed, share,
             (double)m->memory_bytes / 1e6, left);
}

static void draw(progress *p, const ls_train_metrics *m, const char *figures)
{
    enum { BAR = 24 };
    char line[512], bar[BAR + 1];
    int filled = (int)(BAR * m->step / m->steps);
    for (int i = 0; i < BAR; i++) bar[i] = i < filled ? '#' : '-';
    bar[BAR] = 0;
    int n = snprintf(line, sizeof line, "%lld/%lld [%s] %s", (long long)m->step, (long long)m->steps, bar, figures);
    struct winsize size;
    int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
    if (n > columns) line[columns] = 0;
    printf("\r%s\033[K", line);
    fflush(stdout);
    p->drawn = true;
}

void progress_show(progress *p, const ls_train_metrics *m)
{
    char figures[256];
    /* The first steps are slower (pages come on first touch), so they are soon forgotten. */
    p->smoothed = m->step <= 2 ? m->step_ms : 0.9 * p->smoothed + 0.1 * m->step_ms;
    format_figures(p, m, figures, sizeof figures);
    if (p->terminal)
        draw(p, m, figures);
    else if (m->step == 1 || m->step == m->steps || m->step % p->every == 0)
        printf("step %lld/%lld  %s\n", (long long)m->step, (long long)m->steps, figures);
    if (m->eval_loss >= 0) {
        progress_end(p);
        printf("step %lld  validation loss %.4f\n", (long long)m->step, m->eval_loss);
    }
    fflush(stdout);
}

void progress_end(progress *p)
{
    if (p->drawn) printf("\n");
    p->drawn = false;
}
