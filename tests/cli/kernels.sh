# shellcheck shell=bash
# shellcheck disable=SC2154
# Sourced by tests that force instruction sets. They set lockstep.

# kernels NAME...: those of them that this CPU runs.
kernels() {
    local name
    for name in "$@"; do
        if LOCKSTEP_KERNELS=$name "$lockstep" doctor | grep -Eq " kernels +$name( |$)"; then echo "$name"; fi
    done
}
