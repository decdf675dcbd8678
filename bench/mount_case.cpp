// Programs at a mount of this process against the same at the file itself, which is in memory: what
// the way through the kernel and back costs. (Beside another pass-through file system:
// tools/mount_bench.py.)
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "common/threads.hpp"
#include "mount/mount.hpp"
#include "penstock/base/hash.hpp"
#include "scratch_mount.hpp"
#include "workload.hpp"

namespace penstock::bench {

namespace {

enum class act { read, read_again, write };
struct mount_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    act what;
};
constexpr mount_access mount_accesses[] = {
    {"1 MiB in order, read", mib, true, act::read},
    {"1 MiB in order, read again", mib, true, act::read_again},
    {"4 KiB at random, read", 4 * kib, false, act::read},
    {"1 MiB in order, written", mib, true, act::write},
    {"4 KiB at random, written", 4 * kib, false, act::write}};

// Writes what the file has already, so that it stays what other cases expect.
status write_blocks(const std::string& path, const pattern& what, run_result& out) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return {-errno, path + ": " + error_text(-errno)};
    std::atomic<int> code{0};
    const stopwatch watch;
    apps::on_new_threads(static_cast<std::uint32_t>(what.groups), [&](std::uint32_t t) {
        std::vector<std::uint64_t> words(what.block_bytes / 8);
        for (std::uint64_t i = 0; i < what.rounds; ++i) {
            const std::uint64_t at = what.offset_bytes(t, i);
            for (std::uint64_t w = 0; w < words.size(); ++w) words[w] = mix64(at / 8 + w);
            const ssize_t done =
                ::pwrite(fd, words.data(), what.block_bytes, static_cast<off_t>(at));
            if (done != static_cast<ssize_t>(what.block_bytes)) code = done < 0 ? -errno : -EIO;
        }
    });
    out.seconds = watch.seconds();
    out.cores = watch.cores(out.seconds);
    ::close(fd);
    return code == 0 ? status{} : status{code, "pwrite of " + path + ": " + error_text(code)};
}

class mount_case_runner {
public:
    explicit mount_case_runner(context& here)
        : here_(here), bytes_(std::max(mib, here.file_bytes(gib) / mib * mib)) {}

    status run() {
        if (status s = here_.use_file(bytes_); !s) return s;
        if (status s = here_.make_runtime(
                {.page_bytes = 65536, .cache_bytes = 64 * mib, .file_bytes = bytes_}, rt_);
            !s)
            return s;
        if (status s = mounted_.make(*rt_, here_); !s) return s;
        if (status s = here_.file().bring_into_page_cache(); !s) return s;
        for (const mount_access& how : mount_accesses)
            for (const std::uint64_t threads : {std::uint64_t{1}, host_threads(here_)})
                if (status s = row(how, threads); !s) return s;
        return {};
    }

private:
    status once(const std::string& path, const mount_access& how, const pattern& what,
                run_result& got) const {
        if (how.what == act::write) return write_blocks(path, what, got);
        if (how.what == act::read_again)
            if (status s = run_preads(path, what, false, got); !s) return s;
        return run_preads(path, what, false, got);
    }
    status row(const mount_access& how, std::uint64_t threads) {
        const std::uint64_t total = how.in_order ? bytes_ : std::min(bytes_, 64 * mib * threads);
        pattern what =
            make_pattern(bytes_, how.block_bytes, how.block_bytes, threads, total, how.in_order);
        series ours, plain, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            run_result got;
            what.seed = repeat;
            if (status s = mounted_.forget_pages(); !s) return s;
            if (status s = once(mounted_.file(), how, what, got); !s) return s;
            ours.add(gigabytes_a_second(what.total_bytes(), got.seconds));
            cores.add(got.cores);
            if (status s = once(here_.file().path(), how, what, got); !s) return s;
            plain.add(gigabytes_a_second(what.total_bytes(), got.seconds));
        }
        const std::string of = threads == 1 ? "1 thread" : std::to_string(threads) + " threads";
        return here_.add({"5", std::string("at a mount: ") + how.name + ", " + of, "", 0, ours,
                          "GB/s", "the same at the file itself", plain, cores,
                          "the file is in memory"});
    }

    context& here_;
    const std::uint64_t bytes_;
    std::unique_ptr<runtime> rt_;
    scratch_mount mounted_;
};

}  // namespace

status mount_case(context& here) {
    if (const status s = mount::can_mount(); !s) {
        here.leave_out("mount", s.message);
        return {};
    }
    mount_case_runner one(here);
    return one.run();
}

}  // namespace penstock::bench
