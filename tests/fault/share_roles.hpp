// What the processes of share_kill_test.py do, for share_process.cpp and its form on a GPU.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/penstock.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

inline constexpr std::uint64_t share_page_bytes = 4096, version_pages = 24,
                               words_per_page = share_page_bytes / 8;

// As tests/unit/support.hpp has it; share_kill_test.py makes the files.
inline std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t i) {
    return mix64(seed * 0x9e3779b97f4a7c15ull + i);
}

struct findings {
    std::atomic<std::uint64_t> wrong{0}, reads{0}, longest_ns{0};

    void took(std::uint64_t begin_ns) {
        const std::uint64_t ns = detail::host_now_ns() - begin_ns;
        std::uint64_t seen = longest_ns;
        while (seen < ns && !longest_ns.compare_exchange_weak(seen, ns)) {
        }
    }
};

inline std::unique_ptr<runtime> make(const std::string& root, backend where, bool rewrites) {
    options o;
    o.where = where;
    o.page_bytes = share_page_bytes;
    o.cache_bytes = 48 * share_page_bytes;
    o.table_bytes = 1 << 20;
    o.staging_bytes = 1 << 20;
    o.max_files = 16;
    o.writable = true;
    o.share = "kill";
    o.admit_one_in = 4;
    // A writer waits so long for a neighbour that was stopped. A reader that was stopped for longer
    // than its own time would find that its host stood still.
    o.host_wait_ms = rewrites ? 1000 : 8000;
    o.frame_wait_ms = 5000;
    o.roots = {root};
    if (const char* const caches = std::getenv("PENSTOCK_TEST_CACHES"); caches != nullptr)
        for (int i = 0; i < std::atoi(caches); ++i) o.devices.push_back(i);
    std::unique_ptr<runtime> rt;
    if (const status made = runtime::make(o, rt); !made) {
        std::fprintf(stderr, "penstock_share_process: %s\n", made.message.c_str());
        std::_Exit(1);
    }
    return rt;
}

inline bool input_ended() {
    pollfd look{STDIN_FILENO, POLLIN, 0};
    return ::poll(&look, 1, 20) > 0;
}

// Until it has a neighbour in another process, and then until standard input ends.
inline void stay(runtime& rt) {
    bool said = false;
    while (!input_ended()) {
        if (said || rt.linked_processes() == 0) continue;
        said = true;
        std::puts("linked");
        std::fflush(stdout);
    }
}

inline void report(const findings& found, const runtime& rt) {
    const statistics s = rt.stats();
    std::printf("%llu %llu %llu %llu\n", static_cast<unsigned long long>(found.wrong),
                static_cast<unsigned long long>(found.reads),
                static_cast<unsigned long long>(s.neighbour_reads + s.neighbour_loads),
                static_cast<unsigned long long>(found.longest_ns / 1000000));
    std::fflush(stdout);
}

// read_some(random, found) again and again, by two threads.
template <typename ReadSome>
void read_role(runtime& rt, std::uint64_t seed, const ReadSome& read_some) {
    findings found;
    std::atomic<bool> stop{false};
    std::vector<std::thread> all;
    for (std::uint64_t t = 0; t < 2; ++t)
        all.emplace_back([&, t] {
            std::mt19937_64 random(seed * 8 + t);
            while (!stop) read_some(random, found);
        });
    stay(rt);
    stop = true;
    for (std::thread& thread : all) thread.join();
    report(found, rt);
}

inline void rewrite_role(runtime& rt, std::uint64_t versions) {
    findings found;
    std::vector<std::uint64_t> words(version_pages * words_per_page);
    const auto bytes = static_cast<std::int64_t>(words.size() * 8);
    for (std::uint64_t version = 1; version <= versions; ++version) {
        for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = version << 32 | i;
        const std::uint64_t begin_ns = detail::host_now_ns();
        const int fd = rt.open("versions", open_read_write);
        if (fd < 0 || rt.write(fd, words.data(), bytes, 0) != bytes || rt.close(fd) != 0)
            ++found.wrong;
        found.took(begin_ns);
        ++found.reads;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // so that some opens settle
    }
    report(found, rt);
}

inline void follow_role(runtime& rt) {
    findings found;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        std::vector<std::uint64_t> last(version_pages * words_per_page), now(last.size());
        const auto bytes = static_cast<std::int64_t>(now.size() * 8);
        while (!stop) {
            const std::uint64_t begin_ns = detail::host_now_ns();
            const int fd = rt.open("versions");
            if (fd < 0 || rt.read(fd, now.data(), bytes, 0) != bytes) ++found.wrong;
            rt.close(fd);
            for (std::uint64_t i = 0; i < now.size(); ++i)
                found.wrong += now[i] < last[i] || (now[i] & 0xffffffff) != i ? 1 : 0;
            last = now;
            found.took(begin_ns);
            ++found.reads;
        }
    });
    stay(rt);
    stop = true;
    reader.join();
    report(found, rt);
}

// `read` has the rest of the command line of that role: FILES PAGES SEED.
template <typename Read>
int run_share_process(int argc, char** argv, backend where, const Read& read) {
    const std::string role = argc > 1 ? argv[1] : "";
    const auto number = [&](int i) { return i < argc ? std::strtoull(argv[i], nullptr, 10) : 1; };
    if (argc < 3) return 2;
    const auto rt = make(argv[2], where, role == "rewrite");
    if (role == "read") read(*rt, number(3), number(4), number(5));
    else if (role == "rewrite") rewrite_role(*rt, number(3));
    else if (role == "follow") follow_role(*rt);
    else return 2;
    return 0;
}

}  // namespace penstock::test
