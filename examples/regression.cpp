// A training loop in C++: linear regression, with lockstep for the gradients.
//
//     c++ -std=c++17 regression.cpp -o regression $(pkg-config --cflags --libs lockstep)
//     lockstep run -n 4 --no-prefix -- ./regression     the same digits with 1, 2 or 4 ranks
//
// The C handles are held by std::unique_ptr and errors become exceptions, so that every exit path frees what was opened.
#include <array>
#include <cstdio>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <lockstep/comm.h>
#include <lockstep/ddp.h>

namespace
{

constexpr int slots = 4, samples = 32, steps = 200;

void check(ls_status status)
{
    if (status) throw std::runtime_error(std::string(ls_status_text(status)) + ": " + ls_error());
}

struct free_world {
    void operator()(ls_world *world) const
    {
        ls_world_free(&world);
    }
};
struct free_ddp {
    void operator()(ls_ddp *ddp) const
    {
        ls_ddp_free(&ddp);
    }
};
using world_ptr = std::unique_ptr<ls_world, free_world>;
using ddp_ptr = std::unique_ptr<ls_ddp, free_ddp>;

world_ptr open_world()
{
    ls_world *world = nullptr;
    check(ls_world_open(&world, nullptr));
    return world_ptr(world);
}

ddp_ptr open_ddp(ls_world *world)
{
    // No memory of our own: lockstep allocates the gradients, and ls_ddp_grad() returns where they are.
    std::array<ls_span, 2> spans{};
    spans[0].name = "slope";
    spans[0].count = 1;
    spans[1].name = "offset";
    spans[1].count = 1;
    ls_ddp_options options{};
    options.slots = slots;
    ls_ddp *ddp = nullptr;
    check(ls_ddp_open(&ddp, world, spans.data(), spans.size(), &options));
    return ddp_ptr(ddp);
}

// Sample i of micro-batch `slot` of step `step`: a point of the line y = 3 x - 1, on any rank that asks.
float sample(int step, int slot, int i)
{
    auto state = static_cast<std::uint32_t>((step * slots + slot) * samples + i) * 2654435761u;
    return static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
}

void train()
{
    world_ptr world = open_world();
    ddp_ptr ddp = open_ddp(world.get());
    int rank = ls_world_rank(world.get()), per_rank = slots / ls_world_size(world.get());
    float slope = 0, offset = 0;
    for (int step = 0; step < steps; step++) {
        for (int micro = 0; micro < per_rank; micro++) {
            check(ls_ddp_begin(ddp.get(), micro + 1 < per_rank ? LS_DDP_ACCUMULATE : LS_DDP_SYNC, samples));
            float d_slope = 0, d_offset = 0;
            for (int i = 0; i < samples; i++) {
                float x = sample(step, rank * per_rank + micro, i), error = slope * x + offset - (3 * x - 1);
                d_slope += 2 * error * x;
                d_offset += 2 * error;
            }
            *ls_ddp_grad(ddp.get(), 0) = d_slope;
            check(ls_ddp_ready(ddp.get(), 0));
            *ls_ddp_grad(ddp.get(), 1) = d_offset;
            check(ls_ddp_ready(ddp.get(), 1));
            check(ls_ddp_finish(ddp.get(), nullptr));
        }
        // Gradients are the mean over all samples of all ranks now.
        slope -= 0.1f * *ls_ddp_grad(ddp.get(), 0);
        offset -= 0.1f * *ls_ddp_grad(ddp.get(), 1);
    }
    if (rank == 0) std::printf("y = %.9f x + %.9f\n", static_cast<double>(slope), static_cast<double>(offset));
}

} // namespace

int main()
try {
    train();
    return 0;
} catch (const std::exception &e) {
    std::fprintf(stderr, "regression: %s\n", e.what());
    return 1;
}
