/* Dumps of the Flight Recorder: any bytes as a pickle; what is plain data is then explained. */
#include <stdlib.h>
#include "import/flight.h"
#include "import/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *dump;
    if (ls__pickle_read(&dump, data, size) == LS_OK) {
        const ls__flight two[] = { { .rank = 0, .dump = dump, .path = "a" }, { .rank = 2, .dump = dump, .path = "b" } };
        json_decref(ls__flight_explain(two, 2, 3));
        json_decref(dump);
    }
    return 0;
}
