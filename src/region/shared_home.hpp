// A file that regions share (region/programs.hpp has one home for each). The file itself, as
// the operating system has it, is the home of its pages: there the changes of all devices come
// together, byte by byte, and there every program sees them.
//
// What is decided about a page is decided by penstock/consistency/page_versions.hpp; this moves the
// bytes. A release brings its changes home before it returns, since programs read the file without
// asking anybody. Those that use a mount have a view, which is taken away first
// (region/programs.hpp).
//
// Locks, in this order: `requests_` for as long as a request moves pages, one at a time for each
// file; `state_` for looks at the versions and changes of them, never while bytes are moved.
// Operations of programs never wait for the first; they take the second, and that of the masks.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/env.hpp"
#include "region/page_masks.hpp"
#include "region/programs.hpp"
#include "region/region_memory.hpp"
#include "region/version_map.hpp"

namespace penstock::region {

// A device's part in a file: its pages [first, end), of which the file is to have `end_bytes`.
struct member {
    region_memory* memory = nullptr;
    page_range pages;
    std::uint64_t end_bytes = 0;
    bool outside_writers = true;
    bool promote = false;   // region_options::promote_hot
    bool untouched = true;  // its memory is all zeros: nothing was filled, or tried to be
};

class shared_home {
public:
    // Closes `fd` at its end, and is counted in `live` until then.
    shared_home(host::environment& env, shared_files& with, std::atomic<std::uint64_t>& live,
                int fd, const host::file_facts& facts);
    ~shared_home();
    shared_home(const shared_home&) = delete;
    shared_home& operator=(const shared_home&) = delete;

    // Of the file now, or a negative errno.
    [[nodiscard]] std::int64_t size_bytes() const;

    // -EMFILE: as many regions share the file as can.
    int join(const member& holder, consistency::place& place);
    // Its pages are given up; what it has not released is lost.
    void leave(consistency::place place);

    // 0 or a negative errno. Moves nothing.
    int acquire(consistency::place place);
    // Brings in what is missing, after what is on the stream: how many pages, or a negative errno.
    std::int64_t fetch(consistency::place place, void* stream);
    // `changed`: pages of the file that differ from their bases. How many bytes were written to the
    // file, or a negative errno.
    std::int64_t release(consistency::place place, const page_list& changed);
    int sync();
    // Bytes of the region (region_memory::prefer), while nothing uses its memory.
    std::int64_t prefer(consistency::place place, std::uint64_t begin, std::uint64_t end,
                        void* stream);
    std::int64_t promote(consistency::place place, void* stream);

    // The kernel may keep pages of the range for programs from now on.
    void admit_program(std::uint64_t offset, std::uint64_t bytes);
    void wrote_by_program(std::uint64_t offset, std::uint64_t bytes);
    // A part of the file for a program, where the operating system would have to bring it from
    // storage and a device has pages of it: these from the device, the others from `fd` at the same
    // time (device_reads.cpp). use(bytes, count), once, with what there is of the part up to the
    // file's end. How much of it came from the device; 0: use was not called, and the file has to
    // be read.
    std::uint64_t read_for_program(int fd, std::uint64_t offset, std::uint64_t bytes,
                                   const byte_sink& use);

private:
    struct held_pages;
    [[nodiscard]] held_pages held_by_device(const page_range& range, const host::file_facts* facts);
    [[nodiscard]] bool outside_writers() const;
    [[nodiscard]] region_memory& memory_of(consistency::place holder) const;
    [[nodiscard]] int read_held(const held_pages& held, int fd, const page_range& range) const;
    [[nodiscard]] bool others_may_write() const;
    int look();
    [[nodiscard]] int check_size(const member& holder) const;
    [[nodiscard]] page_range clipped(std::uint64_t offset, std::uint64_t bytes) const;
    int take_views(const host::view_list& mounts, const page_list& pages);
    int bring_home(const page_list& pages, std::uint64_t& written);
    int collect(consistency::place place, const page_list& pages, std::uint64_t& written);
    int collect_slice(consistency::place place, const page_list& pages, bool masked,
                      std::uint64_t& written);
    int fill(const member& holder, const page_list& pages);
    [[nodiscard]] page_list without_holes(const page_list& pages) const;
    int read_run(int fd, std::byte* to, std::uint64_t page, std::uint64_t pages) const;

    host::environment& env_;
    shared_files& with_;
    std::atomic<std::uint64_t>& live_;
    const int fd_;
    const file_key key_;
    host::request_turns requests_;
    const std::shared_ptr<page_masks> masks_;
    mutable std::mutex state_;
    // Guarded by state_:
    version_map versions_;
    consistency::stamp clock_ = 0;
    std::array<member, most_devices + 1> members_{};  // by place; free where there is no memory
    std::array<std::uint64_t, most_devices + 1>
        reading_{};              // workers of it that read for programs, a bit each
    host::file_identity known_;  // as the file was when it was looked at last
    bool doubtful_ = true;       // it may have changed since though it looks the same
};

}  // namespace penstock::region
