/* Names of phases, collectives, events, samples and metadata. */
#include "record/collectives.h"

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
#define X(name, value, text, ...) \
    case name: return text;
        LS_COLLECTIVE_LIST(X)
#undef X
    }
    return "unknown";
}

const ls__traits ls__traits_of[LS_COLLECTIVE_KINDS] = {
#define X(name, value, text, from, to, input, output, op) \
    [name] = { LS__##from, LS__##to, LS__##input, LS__##output, op },
    LS_COLLECTIVE_LIST(X)
#undef X
};
