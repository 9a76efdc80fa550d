/* Exit codes. See exit_codes.h. */
#include "cli/exit_codes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cli/option_names.h"

int exit_code(ls_status status)
{
    switch (status) {
    case LS_OK: return EXIT_DONE;
    case LS_EINVAL:
    case LS_ENOENT:
    case LS_EFORMAT:
    case LS_EUNSUPPORTED:
    case LS_EMISMATCH: return EXIT_USAGE;
    default: return EXIT_FAILED;
    }
}

int exit_code_of_check(ls_status status)
{
    return status == LS_EFORMAT || status == LS_EMISMATCH ? EXIT_FAILED : exit_code(status);
}

int exit_failure(const char *command, ls_status status)
{
    fprintf(stderr, "lockstep %s: %s\n", command, words_of_program(ls_error()));
    return exit_code(status);
}

static bool is_reported; /* that stdout cannot be written */

/* If it was closed before the start, no output is wanted; main() has opened something in its place that cannot be written. */
static bool is_output_wanted(void)
{
    return (fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

void exit_check_output(const char *consequence)
{
    if (is_reported || !(fflush(stdout) || ferror(stdout)) || !is_output_wanted()) return;
    is_reported = true;
    fprintf(stderr, "lockstep: stdout cannot be written: %s%s%s\n", strerror(errno), consequence ? "; " : "",
            consequence ? consequence : "");
}

int exit_closing_output(int code)
{
    bool wanted = is_output_wanted();
    int error = ferror(stdout) ? EIO : 0; /* an earlier write failed, and its reason is gone */
    if (fclose(stdout)) error = errno;
    if (!error || !wanted) return code;
    if (!is_reported) fprintf(stderr, "lockstep: stdout cannot be written: %s\n", strerror(error));
    return code ? code : EXIT_FAILED;
}
