// The home of a file that regions share (region/programs.hpp has one home for each file). The file
// itself, as the operating system has it, is the home of its pages: the changes of all devices come
// together there, byte by byte, and every program sees them there.
//
// penstock/consistency/page_versions.hpp decides about the pages; this class moves the bytes. A
// release writes its changes to the file before it returns, since programs read the file without
// asking a region. Programs that use a mount have a view, which is taken away first
// (region/programs.hpp).
//
// Locks, in this order: `requests_` for as long as a request moves pages, one request at a time for
// each file; `state_` for reading and changing the versions, never while bytes are moved.
// Operations of programs never wait for `requests_`; they take `state_`, and the lock of the masks.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/env.hpp"
#include "region/direct_fill.hpp"
#include "region/page_masks.hpp"
#include "region/programs.hpp"
#include "region/region_memory.hpp"
#include "region/version_map.hpp"

namespace penstock::region {

// A region's part in a file: its memory and pages. The file should reach to `end_bytes`.
struct member {
    region_memory* memory = nullptr;
    page_range pages;
    std::uint64_t end_bytes = 0;
    bool outside_writers = true;
    bool promote = false;   // region_options::promote_hot
    direct_order direct{};  // of its first fill
    bool untouched = true;  // its memory is all zeros: nothing was filled, or tried to be
};

// A list that several hold. To copy one of 262,144 pages takes as long as to copy the pages.
using shared_list = std::shared_ptr<const page_list>;

struct fetched_pages {
    int code = 0;                       // or a negative errno
    std::uint64_t pages = 0;            // all that came
    std::uint64_t from_neighbours = 0;  // of these, from other regions' memory
    std::uint64_t from_caches = 0;      // and from caches of runtimes
    std::uint64_t from_buffers = 0;     // and from frames of buffers
    std::uint64_t direct = 0;           // and by cuFile
    std::string direct_news;            // what the log is to say about that
    int neighbour_code = 0;  // why pages that another region has came from the file after all
};

class shared_home {
public:
    // Closes `fd` at its end; `live` counts it until then.
    shared_home(host::environment& env, shared_files& with, std::atomic<std::uint64_t>& live,
                int fd, const host::file_facts& facts);
    ~shared_home();
    shared_home(const shared_home&) = delete;
    shared_home& operator=(const shared_home&) = delete;

    // The file as it is open for reading, until the home ends, and the system that has it.
    [[nodiscard]] int handle() const { return fd_; }
    [[nodiscard]] host::environment& env() const { return env_; }
    // The size of the file now, or a negative errno.
    [[nodiscard]] std::int64_t size_bytes() const;

    // -EMFILE: no more regions can share the file.
    int join(const member& holder, consistency::place& place);
    // Lets this region and the others copy each other's pages, as far as they can. Call it between
    // kernels, after join(). Returns why they can not, or an empty text.
    std::string meet(consistency::place place);
    // Gives up the member's pages; changes that it has not released are lost.
    void leave(consistency::place place);

    // What programs of a mount have stored comes to the file. Returns 0 or a negative errno.
    [[nodiscard]] int collect_from_programs() const;
    // The three are about the pages of the file that lie in `range` and in the region.
    // Returns 0 or a negative errno. Moves no bytes.
    int acquire(consistency::place place, const page_range& range);
    // Brings in the missing pages, after the work on the stream (fetch.cpp).
    fetched_pages fetch(consistency::place place, const page_range& range, void* stream);
    // `changed`: those that differ from their bases. Returns how many bytes were written to the
    // file, or a negative errno.
    std::int64_t release(consistency::place place, const page_range& range,
                         const page_list& changed);
    int sync();
    // Prefers bytes of the region (region_memory::prefer), while nothing uses its memory.
    std::int64_t prefer(consistency::place place, std::uint64_t begin, std::uint64_t end,
                        void* stream);
    std::int64_t promote(consistency::place place, void* stream);

    // Notes that the kernel may keep pages of the range for programs from now on.
    void admit_program(std::uint64_t offset, std::uint64_t bytes);
    void wrote_by_program(std::uint64_t offset, std::uint64_t bytes);
    // Reads a part of the file for a program, if the operating system would have to bring it from
    // storage and a device has pages of it. These pages come from the device, and the other pages
    // from `fd` at the same time (device_reads.cpp). Calls use(bytes, count) once, with the bytes
    // of the part up to the file's end. Returns how many bytes came from the device; 0: use was not
    // called, and the file has to be read.
    std::uint64_t read_for_program(int fd, std::uint64_t offset, std::uint64_t bytes,
                                   const byte_sink& use);

private:
    struct held_pages;
    [[nodiscard]] held_pages held_by_device(const page_range& range, std::uint64_t end,
                                            const host::file_facts* facts);
    [[nodiscard]] bool outside_writers() const;
    [[nodiscard]] region_memory& memory_of(consistency::place holder) const;
    [[nodiscard]] int read_held(const held_pages& held, int fd, const page_range& range) const;
    [[nodiscard]] bool others_may_write() const;
    struct handed_over;
    [[nodiscard]] bool is_passed_to_writers() const;
    int look();
    [[nodiscard]] int check_size(const member& holder) const;
    [[nodiscard]] page_range clipped(std::uint64_t offset, std::uint64_t bytes) const;
    int take_views(const host::view_list& mounts, const page_list& pages);
    int bring_home(const page_list& pages, std::uint64_t& written);
    int collect(consistency::place place, const page_list& pages, std::uint64_t& written);
    int collect_slice(consistency::place place, const page_list& pages, bool masked,
                      std::uint64_t& written);
    shared_list take_held(consistency::place holder, consistency::place from, shared_list& missing,
                          member& source);
    void fill_from_neighbours(consistency::place holder, shared_list& missing, fetched_pages& out);
    void fill_from_caches(const member& holder, shared_list& missing, fetched_pages& out);
    static int copy_pages(const member& to, const member& from, const page_list& pages);
    int fill(const member& holder, const page_list& pages, fetched_pages& out);
    std::uint64_t copy_from_buffers(const page_range& run, std::byte* to,
                                    std::atomic<bool>& is_late) const;
    [[nodiscard]] page_list without_holes(const page_list& pages) const;
    int read_run(int fd, std::byte* to, std::uint64_t page, std::uint64_t pages) const;

    host::environment& env_;
    shared_files& with_;
    std::atomic<std::uint64_t>& live_;
    const int fd_;
    const bool is_elsewhere_;  // host::environment::changes_elsewhere
    const file_key key_;
    host::request_turns requests_;
    const std::shared_ptr<page_masks> masks_;
    mutable std::mutex state_;
    // Guarded by state_:
    version_map versions_;
    consistency::stamp clock_ = 0;
    std::array<member, most_devices + 1> members_{};  // by place; a place without memory is free
    // Of each place: the places whose memory it can copy from, and which of them lie in the memory
    // that it lies in.
    struct neighbours {
        consistency::place_set reached = 0, same_memory = 0;
    };
    std::array<neighbours, most_devices + 1> neighbours_{};
    std::array<std::uint64_t, most_devices + 1>
        reading_{};              // workers of each that read for programs, a bit each
    host::file_identity known_;  // the file's identity when it was last looked at
    bool doubtful_ = true;       // it may have changed since, though it looks the same
    // Programs may write it past a mount and past its times (host::passed_files), or did so since
    // the file was looked at; and how many opens of such programs were known then.
    bool passed_ = false;
    std::uint64_t passed_opens_ = 0;
};

}  // namespace penstock::region
