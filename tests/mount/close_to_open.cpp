// close_to_open: a writer and a reader of one file on two machines, which take turns through pipes.
//
// close_to_open writer FILE ROUNDS RESTS
// close_to_open reader FILE ROUNDS RESTS CLOCK_MS RULE TRUST
//
// In each round the writer opens the file, writes the round's number all over it and closes it;
// then the reader opens it through a runtime, reads it and closes it: it has to see that number.
// RESTS times on the way both wait until the file has rested. CLOCK_MS: so far is the reader's
// clock ahead. RULE: "now", or "before": that of 0.1.0, whose times are judged by the reader's
// clock and may come from kept attributes. TRUST is options::trust_times.
//
// Standard input and output carry one byte for each turn. The reader ends with one JSON object on
// standard error; exit status 1 if a read was old.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/plain_environment.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"
#include "runtime/runtime_state.hpp"

namespace {

using namespace penstock;

constexpr std::size_t file_bytes = 8192;

struct plan {
    std::string file;
    std::uint64_t rounds = 0, rests = 0;
    std::int64_t clock_ms = 0;
    bool as_before = false;
    trust_mode trust = trust_mode::automatic;

    [[nodiscard]] bool rests_after(std::uint64_t round) const {
        return rests != 0 && round % (rounds / rests) == rounds / rests / 2;
    }
};

void give_turn() {
    if (::write(STDOUT_FILENO, "x", 1) != 1) std::exit(3);
}
// The other side has gone: it says why.
void await_turn() {
    char byte = 0;
    if (::read(STDIN_FILENO, &byte, 1) != 1) std::exit(3);
}

int fail(const std::string& what) {
    std::fprintf(stderr, "close_to_open: %s: %s\n", what.c_str(), std::strerror(errno));
    return 2;
}

int write_all(const plan& p) {
    std::vector<std::uint64_t> words(file_bytes / sizeof(std::uint64_t));
    for (std::uint64_t round = 1; round <= p.rounds; ++round) {
        std::fill(words.begin(), words.end(), round);
        const int fd = ::open(p.file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) return fail("open to write");
        if (::pwrite(fd, words.data(), file_bytes, 0) != static_cast<ssize_t>(file_bytes))
            return fail("write");
        if (::close(fd) != 0) return fail("close");
        give_turn();
        await_turn();
    }
    return 0;
}

// The real files, seen by a clock that is so far ahead.
class reader_files final : public fault::plain_files {
public:
    explicit reader_files(const plan& p) : plan_(p) {}

    int facts(int handle, host::file_facts& out) override {
        const int code = real_.facts(handle, out);
        if (code != 0) return code;
        out.now_ns += plan_.clock_ms * 1'000'000;
        if (!plan_.as_before) return 0;
        struct stat kept {};
        if (::fstat(handle, &kept) != 0) return -errno;
        out.identity = host::identity_of(kept);
        out.times = host::file_times::local;
        out.exact_times = false;
        return 0;
    }
    int open_plain(int start, const std::string& path) override {
        return real_.open_plain(start, path);
    }
    bool changes_elsewhere(int fd) override { return real_.changes_elsewhere(fd); }

private:
    const plan& plan_;
};

struct outcome {
    std::uint64_t reads = 0, stale = 0, first_stale = 0, cached = 0;
};

// 0, or a negative errno. `is_cached`: every byte came from the cache.
int read_once(runtime& rt, const plan& p, std::uint64_t round, outcome& out) {
    std::vector<std::uint64_t> words(file_bytes / sizeof(std::uint64_t));
    const std::uint64_t misses = rt.stats().misses;
    const int fd = rt.open(p.file);
    if (fd < 0) return fd;
    const std::int64_t got = rt.read(fd, words.data(), file_bytes, 0);
    rt.close(fd);
    if (got != static_cast<std::int64_t>(file_bytes)) return got < 0 ? static_cast<int>(got) : -EIO;
    ++out.reads;
    if (rt.stats().misses == misses) ++out.cached;
    for (const std::uint64_t word : words) {
        if (word == round) continue;
        if (out.stale++ == 0) out.first_stale = round;
        break;
    }
    return 0;
}

int read_all(const plan& p) {
    reader_files files(p);
    host::runtime_hooks hooks;
    hooks.env = &files;
    options settings;
    settings.where = backend::cpu;
    settings.roots = {p.file.substr(0, p.file.rfind('/'))};
    settings.cache_bytes = 1 << 20;
    settings.page_bytes = 4096;
    settings.table_bytes = 1 << 20;
    settings.max_files = 64;
    settings.service_threads = 1;
    settings.publish_statistics = false;
    settings.request_wait_ms = settings.host_wait_ms = 600'000;  // however busy the machine is
    settings.trust_times = p.trust;
    std::unique_ptr<runtime> rt;
    if (const status s = runtime::make(settings, hooks, rt); !s.ok()) {
        std::fprintf(stderr, "close_to_open: %s\n", s.message.c_str());
        return 2;
    }
    outcome out;
    const auto began = std::chrono::steady_clock::now();
    for (std::uint64_t round = 1; round <= p.rounds; ++round) {
        await_turn();
        int code = read_once(*rt, p, round, out);
        if (p.rests_after(round)) {
            std::this_thread::sleep_for(
                std::chrono::nanoseconds(host::server_grain_ns + 100'000'000));
            for (int i = 0; i < 3 && code == 0; ++i) code = read_once(*rt, p, round, out);
        }
        if (code != 0) {
            errno = -code;
            return fail("read");
        }
        give_turn();
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    std::fprintf(stderr,
                 "{\"rounds\":%llu,\"rests\":%llu,\"reads\":%llu,\"stale\":%llu,"
                 "\"first_stale_round\":%llu,\"reads_from_cache\":%llu,\"clock_ahead_ms\":%lld,"
                 "\"rule\":\"%s\",\"trust_times\":\"%s\",\"seconds\":%.1f}\n",
                 number(p.rounds), number(p.rests), number(out.reads), number(out.stale),
                 number(out.first_stale), number(out.cached), static_cast<long long>(p.clock_ms),
                 p.as_before ? "before" : "now", name_of(p.trust), seconds);
    return out.stale == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    const bool writes = argc == 5 && std::string(argv[1]) == "writer",
               reads = argc == 8 && std::string(argv[1]) == "reader";
    if (!writes && !reads) {
        std::fprintf(stderr,
                     "close_to_open writer FILE ROUNDS RESTS\n"
                     "close_to_open reader FILE ROUNDS RESTS CLOCK_MS now|before auto|off|on\n");
        return 2;
    }
    plan p{argv[2], std::strtoull(argv[3], nullptr, 10), std::strtoull(argv[4], nullptr, 10)};
    if (reads) {
        p.clock_ms = std::strtoll(argv[5], nullptr, 10);
        p.as_before = std::string(argv[6]) == "before";
        if (!parse_trust_mode("TRUST", argv[7], p.trust)) return 2;
    }
    return writes ? write_all(p) : read_all(p);
}
