/* Names of what records count. */
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

const char *ls_collective_name(uint8_t kind)
{
    switch ((ls_collective_kind)kind) {
#define X(name, value, text) \
    case name: return text;
        LS_COLLECTIVE_LIST(X)
#undef X
    }
    return "unknown";
}
