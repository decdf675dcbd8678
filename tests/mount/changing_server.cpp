// changing_server SOURCE POINT: a mount of this process, of which all files change between the two
// ways again and again: a thread maps regions of them, and opens and reads them as a kernel does,
// for some moments each. For same_test.py, which does the same in an ordinary directory. Ends with
// the mount, or by SIGTERM, and prints one JSON object. Exit status 77: nothing can be passed
// through.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "penstock/mount.hpp"
#include "penstock/region.hpp"
#include "penstock/runtime.hpp"

namespace {

using namespace penstock;

std::atomic<bool> is_over{false};

std::vector<std::string> files_below(const std::string& source) {
    std::vector<std::string> out;
    std::error_code code;
    for (std::filesystem::recursive_directory_iterator at(source, code), end; !code && at != end;
         at.increment(code))
        if (std::error_code ignored;
            at->symlink_status(ignored).type() == std::filesystem::file_type::regular)
            out.push_back(at->path());
    return out;
}

// A file may go, or become shorter, at any time: then a call fails, which is no matter here.
void use_region(runtime& rt, const std::string& path) {
    std::unique_ptr<file_region> region;
    if (!map_region(rt, path, 0, 0, protection::read_write, {.outside_writers = false}, region))
        return;
    for (int round = 0; round < 4; ++round) {
        region->acquire();
        region->release();
    }
    region->close();
}

void read_as_kernel(runtime& rt, const std::string& path) {
    const int fd = rt.open(path);
    if (fd < 0) return;
    char bytes[4096];
    rt.read(fd, bytes, sizeof bytes, 0);
    rt.close(fd);
}

void change(runtime& rt, const std::string& source, std::uint64_t& uses) {
    std::mt19937 random(1);
    while (!is_over) {
        const std::vector<std::string> files = files_below(source);
        if (files.empty()) continue;
        const std::string& path = files[random() % files.size()];
        // A kernel's file stays in the cache, and so in use, for long.
        if (random() % 50 == 0) read_as_kernel(rt, path);
        else use_region(rt, path);
        ++uses;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
}

int run(const std::string& source, const std::string& point) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, nullptr);
    options settings;
    settings.where = backend::cpu;
    settings.roots = {source};
    settings.writable = true;
    settings.cache_bytes = 8 << 20;
    settings.max_files = 64;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_mount> mounted;
    status s = runtime::make(settings, rt);
    if (s) s = mount_directory(*rt, source, point, {.allow_other = true}, mounted);
    if (!s) {
        std::fprintf(stderr, "%s\n", s.message.c_str());
        return 1;
    }
    if (!mounted->report().passes_through) {
        std::puts("SKIPPED: files cannot be passed through: that takes root, and Linux 6.9");
        return 77;
    }
    std::uint64_t uses = 0;
    std::thread changer([&] { change(*rt, source, uses); });
    const timespec moment{0, 10'000'000};
    while (mounted->is_mounted() && sigtimedwait(&ends, nullptr, &moment) < 0) {
    }
    is_over = true;
    changer.join();
    mounted->unmount();
    const mount_report done = mounted->report();
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf(
        "{\"requests\":%llu,\"bytes_written\":%llu,\"opens\":%llu,\"passed_opens\":%llu,"
        "\"uses\":%llu}\n",
        number(done.requests), number(done.bytes_written), number(done.opens),
        number(done.passed_opens), number(uses));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "changing_server SOURCE POINT\n");
        return 2;
    }
    return run(argv[1], argv[2]);
}
