// FUSE clients: programs that use files of regions through a mount. Here mounts and regions find
// each other.
//
// The kernel keeps pages for programs (their view). If a program changes bytes of a page in a
// mapping, the kernel writes the whole page back, over bytes that came to the file since it read
// the page. Programs cannot be kept from their pages while changes of regions are written to the
// file: the kernel holds a page locked while it waits for an answer about it, and taking the page
// away waits for that lock. So programs go on, and the changes of regions are protected from these
// write-backs:
//   1. the bytes of a page that a region changed are noted (its mask) before they are written to
//      the file;
//   2. a page that is written back goes to the file without the bytes of its mask: if a program and
//      a region changed a byte at once, the region wins;
//   3. when the changes are in the file, the mount takes the view of these pages away
//      (host::program_views::take_away), which writes back the bytes changed there;
//   4. then the masks go. The mask of a page goes earlier, once its changes are in the file, if the
//      kernel asks for the page, or a program writes all of it: the kernel's page is newer from
//      then on, and a store to it comes later. (The kernel ends a write-back of the page before it
//      does either.)
// These steps take the place of rule 1 of penstock/consistency/page_versions.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "hub/hub.hpp"
#include "region/page_masks.hpp"

namespace penstock::region {

class shared_home;

// The files that the regions and mounts of a hub share: for each file its home, the masks of its
// pages, and how many programs write it. It is also the hub's observer of writes, which tells
// regions and mounts what kernels change by write and truncate.
//
// Thread-safe. Made with the first region or mount of the hub: before, there is no region or mount
// to tell.
class shared_files final : public host::hub_part, public host::write_observer {
public:
    explicit shared_files(host::hub& shared);
    ~shared_files() override;
    static shared_files& of(host::hub& shared) { return shared.part<shared_files>(); }

    [[nodiscard]] host::hub& hub() const { return hub_; }

    // Finds the home of this file, or makes it if there is none. Returns 0 or a negative errno.
    int open_home(host::environment& env, const std::string& path, bool writable,
                  std::shared_ptr<shared_home>& out);
    // Null: the file has no region. Costs one load if there are no regions at all.
    std::shared_ptr<shared_home> find_home(const file_key& file);

    // The masks of a file, for all regions, kernels and mounts; made if there are none.
    std::shared_ptr<page_masks> masks_of(const file_key& file);
    // Null if there are none.
    std::shared_ptr<page_masks> masks_in_use(const file_key& file);

    // How many programs write the file now; many files share one count. Also counts for files
    // without a region: a region may come while they are written.
    std::atomic<std::uint32_t>& writers_of(const file_key& file);

private:
    std::int64_t change(host::environment& env, int fd, const host::file_change& change,
                        const host::change_step& doing) override;
    std::int64_t write(const host::view_list& mounts, const file_key& key,
                       const host::file_change& change, const host::change_step& doing);

    host::hub& hub_;
    std::array<std::atomic<std::uint32_t>, 64> writers_{};

    std::mutex homes_mutex_;
    std::map<std::pair<file_key, host::environment*>, std::weak_ptr<shared_home>> homes_;
    std::atomic<std::uint64_t> live_homes_{0};

    std::mutex masks_mutex_;
    std::map<file_key, std::weak_ptr<page_masks>> masks_;
    std::atomic<std::uint64_t> live_masks_{0};
};

// A file, as mounts and programs name it.
struct client_file {
    shared_files& with;
    file_key key;
};

class shared_home;

// Counts a program among the writers of a file.
class write_count {
public:
    explicit write_count(const client_file& file);
    ~write_count();
    write_count(const write_count&) = delete;
    write_count& operator=(const write_count&) = delete;

private:
    std::atomic<std::uint32_t>& count_;
};

using host::byte_sink;

// An operation of a program on a file: made before the file is read. Costs next to nothing if no
// file has a region.
class program_access {
public:
    enum class kind : std::uint8_t {
        fetch,   // the kernel gets these pages for its cache, or those of them that the program
                 // writes whole
        direct,  // past the kernel's cache, or unknown
    };
    // The kernel may keep these pages from now on.
    program_access(const client_file& file, kind way, std::uint64_t offset, std::uint64_t bytes);

    // A region, or else the cache of a runtime, may have bytes of the range that are not in the
    // operating system's memory. Then use() gets them, and the result is how many bytes came from
    // there. 0: read the file.
    std::uint64_t read_devices(int fd, std::uint64_t offset, std::uint64_t bytes,
                               const byte_sink& use) const;

protected:
    const client_file file_;
    std::shared_ptr<shared_home> home_;  // null: the file had no region when the operation began
};

// An operation that writes: made before the write, and wrote() is called after it. As long as a
// file has such an operation, nothing of that file is read from devices. Otherwise a reader could
// get the old bytes from a device after another reader saw the new bytes.
class program_write : public program_access {
public:
    program_write(const client_file& file, kind way, std::uint64_t offset, std::uint64_t bytes);

    // Tells that these bytes of the file have changed.
    void wrote(std::uint64_t offset, std::uint64_t bytes);

    // Writes pages back that were changed in mappings, as described above, to the file of `fd`, and
    // tells the file's home. Returns the count of bytes, or a negative errno.
    static std::int64_t write_back(const client_file& file, int fd, const std::byte* from,
                                   std::uint64_t bytes, std::uint64_t offset);

private:
    const write_count counted_;
};

}  // namespace penstock::region
