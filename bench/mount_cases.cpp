// Cases at a mount: programs there against the file itself, and reads of a file that a region or
// the cache has in part.
#include <filesystem>

#include "cases.hpp"
#include "common/message.hpp"
#include "mount/mount.hpp"
#include "penstock/mount.hpp"
#include "penstock/region.hpp"

namespace penstock::bench {

namespace {

// A mount of this process over a folder that has the scratch file, for as long as a case measures
// it; gone when the program ends, also by a signal.
class scratch_mount {
public:
    // A new folder in --dir, in it one with a second name of the case's file, and a mount of that.
    scratch_mount(runtime& rt, const context& here, bool pass_through) : scratch_mount() {
        std::string top = here.asked().directory + "/penstock-bench-XXXXXX";
        {
            const apps::signal_pause until_noted;
            if (::mkdtemp(top.data()) == nullptr) fail(top, -errno);
            top_ = top;
            source_ = top + "/source";
            point_ = top + "/point";
            // Folders are removed with the files in them, in this order; the mount is taken away
            // before.
            noted_[0].mount(point_);
            noted_[1].folder(point_);
            noted_[2].folder(source_);
            noted_[3].folder(top_);
        }
        std::error_code code;
        for (const std::string& folder : {source_, point_})
            if (!std::filesystem::create_directory(folder, code)) fail(folder, -code.value());
        if (::link(here.file().path().c_str(), (source_ + "/file").c_str()) != 0)
            fail(source_ + "/file", -errno);
        require(mount_directory(rt, source_, point_, {.pass_through = pass_through}, mount_));
    }
    ~scratch_mount() {
        if (top_.empty()) return;
        mount_.reset();
        std::error_code ignored;
        // Not what a mount shows that is still there.
        std::filesystem::remove(source_ + "/file", ignored);
        for (const std::string& folder : {point_, source_, top_})
            std::filesystem::remove(folder, ignored);
    }
    scratch_mount(const scratch_mount&) = delete;
    scratch_mount& operator=(const scratch_mount&) = delete;

    [[nodiscard]] std::string file() const { return point_ + "/file"; }
    [[nodiscard]] mount_report report() const { return mount_->report(); }
    // The kernel keeps nothing of the file for programs of the mount.
    void forget_pages() const {
        const apps::unique_fd fd = open_measured(file(), O_RDONLY);
        if (const int code = -::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); code != 0)
            fail(file(), code);
    }

private:
    scratch_mount() = default;
    [[noreturn]] static void fail(const std::string& path, int code) {
        throw failure(code, apps::shown(path) + ": " + error_text(code) + "; name another --dir");
    }

    std::string top_, source_, point_;
    std::unique_ptr<file_mount> mount_;
    apps::leftover noted_[4];  // for signals
};

// What both cases have: the file and a mount of it, by a runtime with a cache that has room for
// `cached_bytes`.
struct mounted_file {
    context& here;
    std::unique_ptr<runtime> rt;
    scratch_mount mounted;

    mounted_file(context& run, std::uint64_t cached_bytes, bool pass_through)
        : here(run),
          rt(run.make_runtime({.page_bytes = 65536, .cache_bytes = cached_bytes})),
          mounted(*rt, run, pass_through) {}
    [[nodiscard]] bool passes() const { return mounted.report().passes_through; }
};

// False, and said, where there is no FUSE; else the file is there.
bool ready_to_mount(context& here, const char* name) {
    const status s = mount::can_mount();
    if (s) here.use_file(std::max(mib, here.file_bytes(gib) / mib * mib));
    else here.leave_out(name, s.message);
    return s.ok();
}

enum class act { read, read_again, write };

// What a program does with the file, in blocks.
struct mount_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    act action = act::read;

    // In order the file as a whole, else at most 64 MiB by each thread.
    [[nodiscard]] pattern blocks(const context& here, std::uint64_t threads) const {
        return make_pattern(here, block_bytes, threads,
                            in_order ? here.bytes() : std::min(here.bytes(), 64 * mib * threads),
                            in_order);
    }
};

// Programs at a mount of this process against the same at the file itself, which is in memory: what
// the way through the kernel and back costs. Once passed through, which is the way of a file that
// nothing of the process uses, and once served, which is that of a region's file. And what an
// update by a program costs until a region has it. (Beside another pass-through file system:
// tools/mount_bench.py.)

constexpr mount_access mount_accesses[] = {
    {"1 MiB in order, read", mib, true},
    {"1 MiB in order, read again", mib, true, act::read_again},
    {"4 KiB at random, read", 4 * kib, false},
    {"1 MiB in order, written", mib, true, act::write},
    {"4 KiB at random, written", 4 * kib, false, act::write}};

// A block of each thread is made before. In the time only the first word of each page becomes that
// of its place, which is the one that reads look at.
run_result write_blocks(const std::string& path, const pattern& blocks) {
    constexpr std::uint64_t page_words = 512;
    const apps::unique_fd fd = open_measured(path, O_WRONLY);
    std::vector<std::vector<std::uint64_t>> words(blocks.groups);
    for (auto& own : words) own.assign(blocks.block_bytes / 8, 1);
    const stopwatch watch;
    const double seconds = seconds_of_threads(blocks.groups, [&](std::uint64_t t) {
        std::vector<std::uint64_t>& own = words[t];
        for (std::uint64_t i = 0; i < blocks.rounds; ++i) {
            const std::uint64_t at = blocks.offset_bytes(t, i);
            for (std::uint64_t w = 0; w < own.size(); w += page_words) own[w] = mix64(at / 8 + w);
            require(apps::write_exactly(path, fd, own.data(), blocks.block_bytes, at));
        }
    });
    return {watch, seconds, blocks};
}

run_result access_once(const std::string& path, act action, const pattern& blocks) {
    if (action == act::write) return write_blocks(path, blocks);
    if (action == act::read_again) run_preads(path, blocks);
    return run_preads(path, blocks);
}

void mount_row(const mounted_file& at, const mount_access& access, std::uint64_t threads) {
    context& here = at.here;
    pattern blocks = access.blocks(here, threads);
    measured rates;
    for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat) {
        blocks.seed = repeat;
        at.mounted.forget_pages();
        rates.add(access_once(at.mounted.file(), access.action, blocks));
        rates.baseline.add(access_once(here.file().path(), access.action, blocks).rate);
    }
    here.add("5",
             std::string("at a mount, ") + (at.passes() ? "passed through: " : "served: ") +
                 access.name + ", " + counted(threads, "thread"),
             0, "GB/s", rates, "the same at the file itself", "the file is in memory");
}

// Microseconds from before a program's write of a page until a region has it.
double update_us(const std::string& path, file_region& region, std::uint64_t at) {
    const apps::unique_fd fd = open_measured(path, O_WRONLY);
    std::vector<std::uint64_t> words(512);
    for (std::uint64_t w = 0; w < words.size(); ++w) words[w] = mix64(at / 8 + w);
    const stopwatch watch;
    require(apps::write_exactly(path, fd, words.data(), 4 * kib, at));
    require(region.acquire(), path);
    return 1e6 * watch.seconds();
}

// Through the mount changes are known by page. At the file itself, and of a file that was passed
// through when the region began, only that the file changed: the region reads all of it.
void update_rows(const mounted_file& at) {
    context& here = at.here;
    constexpr std::uint64_t seen_bytes = 256 * mib;
    const std::uint64_t bytes = std::min(seen_bytes, here.bytes());
    std::unique_ptr<file_region> by_page, whole;
    const auto map = [&](bool others, std::unique_ptr<file_region>& out) {
        require(map_region(*at.rt, here.file().path(), 0, bytes, protection::read,
                           {.outside_writers = others}, out));
    };
    measured times;
    map(false, by_page);
    for (std::uint64_t i = 0; i < 100; ++i) {
        const stopwatch watch;
        times.add(update_us(at.mounted.file(), *by_page, i * 37 % (bytes / 4096) * 4096), watch);
    }
    by_page.reset();
    map(true, whole);
    for (std::uint64_t i = 0; i < here.repeats(3); ++i)
        times.baseline.add(update_us(here.file().path(), *whole, i * 41 % (bytes / 4096) * 4096));
    here.add("5", "a program updates 4 KiB at a mount, served, and a region acquires it", 4096,
             "us", times, "the same at the file itself, a region with outside writers",
             text_of("open outside the time; the region has %llu MiB; less is better",
                     static_cast<unsigned long long>(bytes / mib)));
}

}  // namespace

void mount_case(context& here) {
    if (!ready_to_mount(here, "mount")) return;
    here.file().bring_into_page_cache();
    for (const bool passes : {true, false}) {
        const mounted_file at(here, 64 * mib, passes);
        if (passes && !at.passes()) continue;  // without root, or before Linux 6.9
        for (const mount_access& access : mount_accesses)
            for (const std::uint64_t threads : {std::uint64_t{1}, here.host_threads()})
                mount_row(at, access, threads);
        if (!passes) update_rows(at);
    }
    here.forget_file();  // most of its words are written over
}

// Reads of a program through a mount, of a file that is not in the host's memory and of which a
// region, or the cache of open and read, has none, a part or all, against the same reads of the
// file itself from its disk. (GAIA, figure 6.1.)

namespace {

constexpr mount_access peer_accesses[] = {{"4 KiB at random", 4 * kib, false},
                                          {"1 MiB in order", mib, true}};

// So many percent of the file in whole units.
std::uint64_t part_of(std::uint64_t bytes, unsigned percent, std::uint64_t unit) {
    return percent == 100 ? bytes : bytes / 100 * percent / unit * unit;
}

// Stands for a kernel that has read so much of the file.
void load_part(const mounted_file& at, unsigned percent) {
    const std::string& path = at.here.file().path();
    const int file = at.rt->open(path);
    require(file, path);
    const std::int64_t there = at.rt->prefetch(file, 0, part_of(at.here.bytes(), percent, 65536));
    at.rt->close(file);
    require(there, path);
}

void peer_row(const mounted_file& at, const std::string& held, const mount_access& access,
              std::uint64_t threads) {
    context& here = at.here;
    pattern blocks = access.blocks(here, threads);
    measured rates;
    double left = 0, delivered = 0, asked = 0;
    const auto drop = [&] {
        at.mounted.forget_pages();
        left = std::max(left, here.file().drop_from_page_cache());
    };
    for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat) {
        blocks.seed = 2 * repeat;
        drop();
        const mount_report before = at.mounted.report();
        rates.add(run_preads(at.mounted.file(), blocks));
        const mount_report after = at.mounted.report();
        delivered += static_cast<double>(after.bytes_from_devices - before.bytes_from_devices);
        asked += static_cast<double>(after.bytes_asked - before.bytes_asked);
        blocks.seed = 2 * repeat + 1;
        drop();
        rates.baseline.add(run_preads(here.file().path(), blocks).rate);
    }
    const std::string name = std::string("a program reads ") + access.name + ", " +
                             counted(threads, "thread") + ", " + held;
    if (!here.is_cold(name, left)) return;
    here.add("S13", name, 4096, "GB/s", rates, "the same from the file system",
             text_of("%.1f %% of what the kernel asked for came from there; %.2f %% of the file "
                     "stayed in memory when it was dropped",
                     asked > 0 ? 100 * delivered / asked : 0, 100 * left));
}

void peer_rows(const mounted_file& at, unsigned percent, const char* where) {
    for (const mount_access& access : peer_accesses)
        for (const std::uint64_t threads : {std::uint64_t{1}, at.here.host_threads()})
            peer_row(at, std::to_string(percent) + " % of the file " + where, access, threads);
}

}  // namespace

void peer(context& here) {
    if (!ready_to_mount(here, "peer") || !here.can_be_cold("peer")) return;
    // Room for the whole file, beside what comes and goes.
    const mounted_file at(here, here.file().bytes() + 64 * mib, true);
    for (const unsigned percent : {0u, 25u, 50u, 100u}) {
        std::unique_ptr<file_region> region;
        // A region of 0 bytes is one of the whole file.
        if (const std::uint64_t held = part_of(here.bytes(), percent, 4096); held != 0)
            require(map_region(*at.rt, here.file().path(), 0, percent == 100 ? 0 : held,
                               protection::read, {.outside_writers = false}, region));
        peer_rows(at, percent, "with a region");
    }
    for (const unsigned percent : {25u, 50u, 100u}) {
        load_part(at, percent);
        peer_rows(at, percent, "in the cache of open and read");
    }
}

}  // namespace penstock::bench
