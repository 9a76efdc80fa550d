/* Names of phases, collectives, events, samples and metadata. */
#include "lockstep/record.h"

const char *ls_phase_name(ls_phase phase)
{
    switch (phase) {
#define X(name, value, text) \
    case name: return text;
        LS_PHASE_LIST(X)
#undef X
    }
    return "unknown";
}

const char *ls_collective_name(ls_collective_kind kind)
{
    switch (kind) {
#define X(name, value, text) \
    case name: return text;
        LS_COLLECTIVE_LIST(X)
#undef X
    }
    return "unknown";
}
