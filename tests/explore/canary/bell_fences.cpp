// The fences of a doorbell, for processors whose stores wait in a buffer while later loads overtake
// them. Here each thread has such a buffer of one store, and a fiber of its own that brings the
// store to memory at any time. A fence waits until the buffer is empty. Canary: without the fences
// a wake-up is lost, in every run.
#include "explore/canary/canary.hpp"

#ifdef CANARY_bell_fences

#include "penstock/base/atomic.hpp"
#include "explore/explorer.hpp"

namespace penstock {

struct store_buffer {
    alignas(8) std::uint64_t full;
    alignas(8) std::uint64_t ended;
    void* address;
    std::uint64_t value, bytes;
};
struct buffered_memory {
    alignas(8) std::uint32_t bell;
    alignas(8) std::uint64_t published;
    store_buffer of[2];  // of the sleeper and of the poster, which are the fibers 0 and 1
};
inline buffered_memory buffered;
inline bool has_fences = true;

inline store_buffer& own_buffer() {
    return buffered.of[explore::explorer::current()->running_fiber()];
}
inline void drain_own_buffer() {
    while (atomic_load<order::acquire>(&own_buffer().full) != 0)
        explore::explorer::current()->pause();
}
inline void own_fence() {
    if (has_fences) drain_own_buffer();
}
template <order Order, scope Scope = scope::device, typename T>
void buffered_store(T* address, T value) {
    drain_own_buffer();
    store_buffer& own = own_buffer();
    own.address = address;
    own.value = value;
    own.bytes = sizeof value;
    atomic_store<order::release>(&own.full, std::uint64_t{1});
}

}  // namespace penstock

#define atomic_store buffered_store
#define __atomic_thread_fence(order) ::penstock::own_fence()
#include "os/bell_word.hpp"
#undef atomic_store
#undef __atomic_thread_fence

namespace {

void end_own_stores() {
    drain_own_buffer();
    atomic_store<order::release>(&own_buffer().ended, std::uint64_t{1});
}

void bring_stores(store_buffer& from) {
    for (;;) {
        if (atomic_load<order::acquire>(&from.full) != 0) {
            if (from.bytes == 8)
                atomic_store<order::release>(static_cast<std::uint64_t*>(from.address), from.value);
            else
                atomic_store<order::release>(static_cast<std::uint32_t*>(from.address),
                                             static_cast<std::uint32_t>(from.value));
            atomic_store<order::release>(&from.full, std::uint64_t{0});
        } else if (atomic_load<order::acquire>(&from.ended) != 0) {
            return;
        } else {
            explore::explorer::current()->pause();
        }
    }
}

bool is_published() { return atomic_load<order::acquire>(&buffered.published) != 0; }

void sleep_until_published() {
    while (!is_published()) {
        host::begin_bell_sleep(&buffered.bell);
        if (!is_published())
            while (!host::is_rung(&buffered.bell)) explore::explorer::current()->pause();
        host::end_bell_sleep(&buffered.bell);
    }
    end_own_stores();
}

void publish_and_ring() {
    buffered_store<order::release>(&buffered.published, std::uint64_t{1});
    host::ring_bell(&buffered.bell);
    end_own_stores();
}

explore::outcome run(bool with_fences) {
    has_fences = with_fences;
    explore::program program;
    program.fibers = {sleep_until_published, publish_and_ring, [] { bring_stores(buffered.of[0]); },
                      [] { bring_stores(buffered.of[1]); }};
    program.reset = [] { std::memset(&buffered, 0, sizeof buffered); };
    program.check = [] {
        explore::require(buffered.published == 1, "a store did not come to memory");
    };
    program.memory = reinterpret_cast<std::byte*>(&buffered);
    program.memory_bytes = sizeof buffered;
    return explore::explorer(program, {}).run();
}

}  // namespace

TEST(canary, bell_fences) {
    EXPECT_EQ(run(false).violation, "a fiber waits for ever");
    const explore::outcome fenced = run(true);
    EXPECT_EQ(fenced.violation, "") << fenced.trace;
    EXPECT_TRUE(fenced.complete);
    RecordProperty("schedules", static_cast<int>(fenced.schedules));
}

#endif
