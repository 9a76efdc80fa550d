/* lockstep top: a live monitor in the terminal. Drawn in place twice per second; 'q' leaves. Not on a terminal, or with --once, it is
 * printed once. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include "cli/commands.h"
#include "cli/escape.h"
#include "cli/last_run.h"
#include "cli/options.h"
#include "cli/top_view.h"

static const char intro[] =
    "usage: lockstep top [RUN] [OPTIONS]\n"
    "\n"
    "Live monitor of a run (runs/last): the newest steps of each rank as a bar of phases, who waits for whom,\n"
    "throughput, CPU use and memory. 'q' quits; the run is not affected. If not on a terminal, it prints once.\n\n";

static volatile sig_atomic_t stopped, paused;
static struct termios saved;
static bool is_raw;

static void on_stop(int number)
{
    stopped = number;
}

static void on_pause(int number)
{
    paused = number;
}

/* Keys come at once and are not shown; Ctrl-C and Ctrl-Z stay what they are. */
static void raw_keys(void)
{
    struct termios t;
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &saved)) return;
    t = saved;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
}

static void restore_keys(void)
{
    if (is_raw) tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    is_raw = false;
}

static top_form form_here(bool terminal)
{
    struct winsize size;
    top_form f = { .to = stdout, .columns = 100, .terminal = terminal, .color = terminal && !getenv("NO_COLOR") };
    if (terminal && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0) {
        f.columns = size.ws_col;
        f.rows = size.ws_row;
    }
    return f;
}

/* Ctrl-Z: the shell gets its terminal as it was, and top takes it again when it continues. */
static void pause_here(void)
{
    struct sigaction standard = { .sa_handler = SIG_DFL }, ours = { .sa_handler = on_pause };
    paused = 0;
    restore_keys();
    sigaction(SIGTSTP, &standard, NULL);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
    raw_keys();
    fputs("\033[2J", stdout);
}

/* As much of the picture as the terminal is high, the last line left free. */
static void show(const char *text, int rows)
{
    const char *end = text;
    for (int line = 1; *end && (rows <= 0 || line < rows); line++) {
        const char *next = strchr(end, '\n');
        end = next ? next + 1 : end + strlen(end);
    }
    fwrite(text, 1, (size_t)(end - text), stdout);
}

/* Waits for a key; true if it was 'q' or the input ended. */
static bool wants_to_leave(double seconds)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    char key;
    if (!is_raw) {
        struct timespec pause = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
        nanosleep(&pause, NULL);
        return false;
    }
    if (poll(&p, 1, (int)(seconds * 1000)) <= 0) return false;
    return read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 4;
}

static int once(const char *path)
{
    top_view v;
    top_form f = form_here(false);
    ls_status status = top_look(&v, path, NULL);
    if (status) return exit_failure("top", status);
    top_draw(&v, path, &f);
    top_view_free(&v);
    return EXIT_DONE;
}

/* Until 'q' or a signal. A run that ends stays on the screen. */
static int live(const char *path, double interval)
{
    struct sigaction action = { .sa_handler = on_stop };
    top_view v = { 0 };
    bool seen = false;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGTSTP, &(struct sigaction){ .sa_handler = on_pause }, NULL);
    raw_keys();
    fputs("\033[2J", stdout);
    while (!stopped) {
        top_view next;
        top_form f = form_here(true);
        ls_status status = top_look(&next, path, seen ? &v : NULL);
        fputs("\033[?7l\033[H", stdout); /* lines that are too long are cut, not wrapped */
        if (status) {
            printf("waiting for events: %.*s\033[K\r\n", f.columns > 30 ? f.columns - 22 : 8, ls_error());
        } else {
            top_view_free(&v);
            v = next;
            seen = true;
            char *text = NULL;
            size_t bytes;
            f.to = open_memstream(&text, &bytes);
            if (f.to) top_draw(&v, path, &f);
            if (f.to && !fclose(f.to)) show(text, f.rows);
            free(text);
        }
        fputs("'q' leaves\033[K\033[J\033[?7h", stdout);
        fflush(stdout);
        if (wants_to_leave(interval)) break;
        if (paused) pause_here();
    }
    restore_keys();
    fputs("\r\033[K", stdout);
    fflush(stdout);
    top_view_free(&v);
    return stopped == SIGTERM ? EXIT_SIGNAL + SIGTERM : EXIT_DONE;
}

int top_command(int argc, char **argv)
{
    const char *path = NULL;
    bool just_once = false;
    double interval = 0.5;
    const option_row rows[] = {
        { OPTION_FLAG, "--once", &just_once, NULL, "print once, without colours", 0, 0, NULL },
        { OPTION_DOUBLE, "--interval", &interval, "S", "seconds between updates (0.5)", 0.05, 3600, NULL },
        { OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, NULL },
    };
    int code = options_read("top", intro, rows, &path, argc, argv);
    if (code >= 0) return code;
    if (!(path = last_run_or(path, "top"))) return EXIT_USAGE;
    struct stat info;
    if (stat(path, &info)) {
        fprintf(stderr, "lockstep top: %s: %s; name the folder of a run\n", printable(path), strerror(errno));
        return EXIT_USAGE;
    }
    return just_once || !isatty(STDOUT_FILENO) ? once(path) : live(path, interval);
}
