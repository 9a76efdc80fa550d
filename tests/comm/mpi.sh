# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154
# What the tests that need an MPI share; sourced by them. They set plugins (the folder) and failed=0.

# The families whose plug-in was built and whose mpirun is here.
# The MPI libraries leave memory behind at their end; in a sanitizer build, leaks are looked for in the other tests.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
families() {
    local f
    for f in openmpi mpich; do
        if [ -e "$plugins/mpi-$f.so" ] && command -v mpirun.$f >/dev/null; then echo $f; fi
    done
}

# launch FAMILY N CMD...: N ranks on this node, possibly more than it has cores. Traffic stays on loopback.
launch() {
    local family=$1 n=$2
    shift 2
    case $family in
    openmpi)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun.openmpi --oversubscribe --bind-to none \
            --mca mpi_yield_when_idle 1 --mca btl self,vader --mca oob_tcp_if_include lo -n "$n" "$@"
        ;;
    mpich) timeout 60 mpirun.mpich -n "$n" "$@" ;;
    esac
}

# expect CODE TEXT CMD...: CMD ends with CODE (any but 0: '!') and prints TEXT.
expect() {
    local code=$1 text=$2 got=0 out
    shift 2
    out=$("$@" 2>&1) || got=$?
    if { [ "$code" = '!' ] && [ $got = 0 ]; } || { [ "$code" != '!' ] && [ "$code" != $got ]; }; then
        printf '%s\n  ended with %s, expected %s:\n%s\n' "$*" $got "$code" "$out"
        failed=1
    elif [[ $out != *"$text"* ]]; then
        printf '%s\n  printed:\n%s\n  which lacks: %s\n' "$*" "$out" "$text"
        failed=1
    fi
}

# need_mpi PROGRAM: ends the test, with the reason, where there is nothing to run it with.
need_mpi() {
    if [ -z "$(families)" ]; then
        echo "skipped: neither Open MPI nor MPICH with its development package is installed"
        exit 77
    fi
    if grep -q __tsan_init "$1"; then
        echo "skipped: ThreadSanitizer would judge the locks and threads of MPI itself; test_multi has ranks as threads"
        exit 77
    fi
}
