// What the fault tests do to a runtime: a bit of everything, judged call by call.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "fault/faulty_environment.hpp"
#include "runtime/runtime_state.hpp"
#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::fault {

using test::bytes_on_disk;
using test::pattern_byte;
using test::temporary_folder;

inline constexpr std::uint64_t page = 4096;

// Twenty-two small files and a sparse one whose table has two levels; names "f0" ... and "big".
struct sample_folder {
    static constexpr std::uint32_t files = 22;
    static constexpr std::uint64_t big_bytes = std::uint64_t{16384} * page;
    temporary_folder folder;

    sample_folder() {
        for (std::uint32_t i = 0; i < files; ++i)
            test::write_file(folder / name(i), test::pattern(i, size(i)));
        test::write_file(folder / "big", {});
        std::filesystem::resize_file(folder / "big", big_bytes);
        test::let_files_settle();
    }
    static std::string name(std::uint32_t i) { return "f" + std::to_string(i); }
    static std::uint64_t size(std::uint32_t i) { return 3 * page + 1000 + i; }
};

// 16 frames, 16 file slots, few handles: every way to run out is near.
inline options tiny_options(const sample_folder& from, io_method io, bool tier = false,
                            direct_mode direct = direct_mode::automatic) {
    options o = test::small_options(from.folder);
    o.cache_bytes = 16 * page;
    o.table_bytes = 64 * 1024;
    o.max_files = 16;
    o.service_threads = 1;
    o.io = io;
    o.tier_bytes = tier ? 24 * page : 0;
    o.direct_io = direct;
    o.request_wait_ms = 60000;  // no time-out where none is meant, however busy the machine is
    return o;
}

inline host::runtime_hooks tiny_hooks(faulty_environment& disk) {
    host::runtime_hooks hooks;
    hooks.env = &disk;
    hooks.max_handles = 4;
    hooks.ring_slots = 8;
    hooks.rings_per_thread = 2;
    return hooks;
}

// Does the reference sequence and collects every result that is neither right nor an error for
// which `excused` says yes.
class scenario {
public:
    scenario(const runtime_ref& fs, bool faults, std::function<bool(std::int64_t)> excused)
        : fs_(fs), faults_(faults), excused_(std::move(excused)) {}
    // Nothing is excused.
    explicit scenario(const runtime_ref& fs)
        : scenario(fs, false, [](std::int64_t) { return false; }) {}

    void run() {
        std::vector<int> open_files;
        for (std::uint32_t i = 0; i < 6; ++i)
            open_files.push_back(open_one(sample_folder::name(i)));
        // Where there is a tier, some pages are read ahead. The group that needs the page tries
        // again what fails there.
        if (open_files[1] >= 0) advise(lane{}, fs_, open_files[1], advice::sequential);
        if (open_files[2] >= 0) advise(lane{}, fs_, open_files[2], advice::will_need);
        for (std::uint32_t i = 0; i < 6; ++i) read_part(open_files[i], i, 100, 2 * page);
        map_two(open_files[0]);
        for (std::uint32_t i = 0; i < 6; ++i)
            read_part(open_files[i], i, 0, sample_folder::size(i) + 5);  // parked handles
        for (const int fd : open_files) close_one(fd);
        read_big();
        for (std::uint32_t i = 6; i < sample_folder::files; ++i) {  // more files than slots
            const int fd = open_one("./" + sample_folder::name(i));
            if (i % 4 == 0) read_part(fd, i, page, page);
            close_one(fd);
        }
        expect_code("open of nothing", open(lane{}, fs_, "nothing"), -ENOENT);
    }

    [[nodiscard]] const std::string& complaints() const { return complaints_; }
    [[nodiscard]] std::uint32_t errors() const { return errors_; }

private:
    void complain(const std::string& complaint) { complaints_ += complaint + "\n"; }

    // True if `got` is an error, which is complained of unless it is excused.
    bool failed(const std::string& label, std::int64_t got) {
        if (got >= 0) return false;
        ++errors_;
        if (!excused_(got)) complain(label + ": " + error_text(got));
        return true;
    }

    void expect_code(const std::string& label, std::int64_t got, std::int64_t wanted) {
        if (got == wanted) return;
        if (!failed(label, got)) complain(label + ": " + std::to_string(got));
    }

    int open_one(const std::string& name) {
        const int fd = open(lane{}, fs_, name.c_str());
        failed("open " + name, fd);
        return fd;
    }

    void close_one(int fd) {
        if (fd < 0) return;
        if (const int code = close(lane{}, fs_, fd); code != 0)
            complain("close: " + error_text(code));
    }

    void read_part(int fd, std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) {
        if (fd < 0) return;
        std::vector<std::uint8_t> got(bytes, 0xee);
        const std::int64_t count =
            read(lane{}, fs_, fd, got.data(), static_cast<std::int64_t>(bytes),
                 static_cast<std::int64_t>(offset));
        const auto wanted =
            static_cast<std::int64_t>(std::min(bytes, sample_folder::size(file) - offset));
        if (failed("read", count)) return;
        // Less than there is: an error came after some pages. The next call must name it or
        // succeed.
        if (count < wanted) ++errors_;
        if (count > wanted || count == 0 ||
            (count < wanted && (offset + static_cast<std::uint64_t>(count)) % page != 0))
            complain("read gave " + std::to_string(count) + " of " + std::to_string(wanted));
        if (count < wanted && !faults_) complain("short read without cause");
        for (std::int64_t i = 0; i < count; ++i)
            if (got[static_cast<std::size_t>(i)] !=
                pattern_byte(file, offset + static_cast<std::uint64_t>(i)))
                return complain("wrong byte at " +
                                std::to_string(offset + static_cast<std::uint64_t>(i)) +
                                " of file " + std::to_string(file));
    }

    void map_two(int fd) {
        if (fd < 0) return;
        const mapping a = map(lane{}, fs_, fd, 0, 10), b = map(lane{}, fs_, fd, page + 7, 1 << 20);
        if (!failed("map", a.bytes) &&
            (a.bytes != 10 || *reinterpret_cast<const std::uint8_t*>(a.data) != pattern_byte(0, 0)))
            complain("map of the first page");
        if (!failed("map", b.bytes) &&
            (b.bytes != page - 7 ||
             *reinterpret_cast<const std::uint8_t*>(b.data) != pattern_byte(0, page + 7)))
            complain("map of the second page");
        expect_code("unmap", unmap(lane{}, fs_, b), 0);
        expect_code("unmap", unmap(lane{}, fs_, a), 0);
        const std::int64_t brought = prefetch(lane{}, fs_, fd, 0, 3 * page);
        if (brought > 0 && brought < 3 * static_cast<std::int64_t>(page) && brought % page == 0 &&
            faults_)
            ++errors_;
        else expect_code("prefetch", brought, 3 * page);
    }

    void read_big() {
        const int fd = open_one("big");
        if (fd < 0) return;
        for (const std::uint64_t at :
             {std::uint64_t{0}, std::uint64_t{128} * page - 8, sample_folder::big_bytes - 16}) {
            std::uint64_t words[2] = {1, 1};
            const std::int64_t got =
                read(lane{}, fs_, fd, words, 16, static_cast<std::int64_t>(at));
            if (failed("read of the big file", got)) continue;
            if (got == 8 ? words[0] != 0 : (got != 16 || words[0] != 0 || words[1] != 0))
                complain("bytes of the big file");
        }
        close_one(fd);
    }

    const runtime_ref fs_;
    const bool faults_;
    const std::function<bool(std::int64_t)> excused_;
    std::string complaints_;
    std::uint32_t errors_ = 0;
};

// Nothing is lost: all rules of a cache at rest hold, and every frame can be pinned at once.
inline std::string what_is_lost(const runtime_ref& fs) {
    const engine::cache_view& c = fs.view;
    const auto found = engine::check_invariants(c);
    if (found.rule != nullptr)
        return std::string("broken rule: ") + found.rule + " at " + std::to_string(found.where);
    const int fd = open(lane{}, fs, "big");
    if (fd < 0) return "open big: " + error_text(fd);
    std::string lost;
    std::vector<mapping> held;
    for (std::uint32_t i = 0; i < c.frame_count && lost.empty(); ++i) {
        held.push_back(map(lane{}, fs, fd, static_cast<std::int64_t>(i * c.page_bytes()), 1));
        if (held.back().bytes != 1)
            lost = "frame " + std::to_string(i) + " is lost: " + error_text(held.back().bytes);
    }
    for (const mapping& mapped : held) unmap(lane{}, fs, mapped);
    close(lane{}, fs, fd);
    // As many files at once as there are slots.
    std::vector<int> open_files;
    for (std::uint32_t i = 0; i < c.file_slots && lost.empty(); ++i) {
        open_files.push_back(open(lane{}, fs, sample_folder::name(i).c_str()));
        if (open_files.back() < 0)
            lost = "file slot " + std::to_string(i) + " is lost: " + error_text(open_files.back());
    }
    for (const int opened : open_files) close(lane{}, fs, opened);
    return lost;
}
// The same of each cache of a runtime.
inline std::string what_is_lost(const runtime& rt) {
    std::string lost;
    for (std::uint32_t i = 0; i < rt.device_count() && lost.empty(); ++i)
        lost = what_is_lost(rt.ref(i));
    return lost;
}

}  // namespace penstock::fault
