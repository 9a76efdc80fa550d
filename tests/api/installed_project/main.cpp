// What a user's C++ program does with the installed library: a mean over ranks, in memory of its own.
#include <cstdio>
#include <vector>
#include <lockstep/comm.h>

int main()
{
    ls_world *world;
    if (ls_world_open(&world, nullptr)) {
        std::fprintf(stderr, "%s\n", ls_error());
        return 1;
    }
    std::vector<double> v(100, ls_world_rank(world));
    ls_status status = ls_allreduce(ls_world_group(world), v.data(), v.size(), LS_F64, LS_MEAN);
    std::printf("%s, mean %g\n", ls_status_name(status), v[99]);
    ls_world_free(&world);
    return status ? 1 : 0;
}
