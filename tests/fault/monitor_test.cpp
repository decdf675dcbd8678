// The monitor without memory: an exception that left it, or a thread that it makes, would end the
// program.
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "fault/scenario.hpp"
#include "soon.hpp"
#include "runtime/late_line.hpp"

namespace {

std::atomic<bool> monitor_has_memory{true};
std::atomic<int> refusals{0};

bool is_refused() {
    if (monitor_has_memory) return false;
    char name[16] = {};
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    if (std::strcmp(name, "penstock-beat") != 0) return false;
    ++refusals;
    return true;
}

}  // namespace

// In place of the C++ library's.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    void* const out = is_refused() ? nullptr : std::malloc(bytes);
    if (out == nullptr) throw std::bad_alloc();
    return out;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock::fault {

// It has no memory for the line about a dead service thread. Waits of groups end all the same.
TEST(monitor, beats_on_without_memory) {
    const sample_folder from;
    faulty_environment disk;
    const auto rt = test::make_runtime(tiny_options(from, io_method::automatic), tiny_hooks(disk));
    const auto heartbeat = [&] {
        return atomic_load<order::relaxed, scope::system>(&rt->state(0).control->heartbeat);
    };
    monitor_has_memory = false;
    rt->state(0).services[0]->kill();
    EXPECT_TRUE(soon([&] { return refusals > 0; }));
    const std::uint64_t before = heartbeat();
    EXPECT_TRUE(soon([&] { return heartbeat() > before + 2; }));
    EXPECT_TRUE(soon([&] { return open(lane{}, rt->ref(), "f0") == -ESHUTDOWN; }));
    monitor_has_memory = true;
    EXPECT_TRUE(soon([&] { return rt->health().code == -ESHUTDOWN; }));
}

TEST(monitor, a_late_line_that_cannot_be_said_ends_no_program) {
    std::atomic<bool> tried{false};
    const host::late_line waiting("a line", std::chrono::milliseconds(0), [&](const std::string&) {
        tried = true;
        throw std::bad_alloc();
    });
    EXPECT_TRUE(soon([&] { return tried.load(); }));
}

}  // namespace penstock::fault
