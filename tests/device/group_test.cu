// What the threads of a group tell each other, by tiles, warps, blocks and lanes that happen to be
// together.
#include <set>

#include "device/support.cuh"
#include "penstock/group/coalesced.cuh"

namespace penstock::test {

namespace {

constexpr std::uint32_t block_threads = 96, blocks = 3;

// Every thread but the leader gives something else, which must not matter. Returns how much of it
// is wrong.
template <typename Group>
__device__ unsigned use_group(const Group& g) {
    const bool leads = g.is_leader();
    const auto own = static_cast<std::uint64_t>(threadIdx.x) << 40 | 7;
    unsigned wrong = 0;
    const std::uint64_t told = g.broadcast(own);
    wrong += !leads || told == own ? 0 : 1;
    wrong += (told & 0xff) == 7 && (told >> 40) <= threadIdx.x ? 0 : 1;
    // Of each size, with its sign.
    wrong += g.broadcast(leads) && !g.broadcast(!leads) ? 0 : 1;
    wrong += g.broadcast(leads ? -7 : static_cast<int>(threadIdx.x)) == -7 ? 0 : 1;
    wrong += g.broadcast(leads ? std::int64_t{-1} << 40 : 5) == std::int64_t{-1} << 40 ? 0 : 1;
    wrong += g.broadcast(leads ? std::uint16_t{65535} : std::uint16_t{1}) == 65535 ? 0 : 1;
    wrong += g.broadcast(leads ? 0.75f : 1.0f) == 0.75f ? 0 : 1;
    wrong += g.broadcast(leads ? -2.5 : 1.0) == -2.5 ? 0 : 1;
    wrong += g.all(true) && !g.all(!leads) ? 0 : 1;
    // One number, in every thread.
    wrong += g.broadcast(g.home()) == g.home() ? 0 : 1;
    return wrong;
}

template <std::uint32_t Lanes>
__device__ unsigned use_tile() {
    const auto g = this_tile<Lanes>();
    unsigned wrong = use_group(g);
    wrong += g.rank() == threadIdx.x % Lanes && g.size() == Lanes ? 0 : 1;
    wrong += g.from_rank(threadIdx.x, Lanes - 1) % Lanes == Lanes - 1 ? 0 : 1;
    wrong += g.from_rank(std::uint64_t{threadIdx.x} << 32, 1) >> 32 == threadIdx.x - g.rank() + 1
                 ? 0
                 : 1;
    wrong += g.votes(g.rank() % 2 == 1) == (0xaaaaaaaau & (0xffffffffu >> (32 - Lanes))) ? 0 : 1;
    return wrong;
}

__global__ void use_groups(unsigned long long* wrong, unsigned* homes) {
    unsigned mine = use_tile<2>() + use_tile<8>() + use_tile<16>() + use_tile<32>();
    mine += use_group(this_block());
    if (threadIdx.x % 3 != 0) mine += use_group(coalesced(__activemask()));
    atomicAdd(wrong, mine);
    if (this_warp().is_leader())
        homes[(blockIdx.x * block_threads + threadIdx.x) / 32] = this_warp().home();
}

}  // namespace

TEST(group, every_thread_gets_what_the_leader_says) {
    PENSTOCK_NEEDS_GPU();
    constexpr std::uint32_t warps = blocks * block_threads / 32;
    const device_counters wrong(1);
    const shared_array<unsigned> homes(warps);
    use_groups<<<blocks, block_threads>>>(wrong.get(), homes.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(wrong.read()[0], 0u);
    // Warps that run at one time spread over the shards of what they share. Those of a block do;
    // blocks may follow each other in one place.
    const std::set<unsigned> different(homes.get(), homes.get() + warps);
    EXPECT_GE(different.size(), block_threads / 32);
}

}  // namespace penstock::test
