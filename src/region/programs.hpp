// Programs that use files of regions through a mount: how mounts and regions find
// each other.
//
// The kernel keeps pages for programs (their view), and writes back whole pages of which they
// changed something in a mapping: over what came to the file since it had the page. To keep
// programs from their pages while changes of regions come home would not do: the kernel holds a
// page locked while it waits for an answer about it, and taking the page away waits for that lock.
// So programs go on, and what came home is kept from what is written back:
//   1. which bytes of a page a region changed is noted (its mask) before they are written to the
//      file;
//   2. a page that is written back goes to the file without the bytes of its mask: of two that
//      changed a byte at once the region wins;
//   3. when the changes are in the file, the mount takes the view of these pages away
//      (host::program_views::take_away), which writes back what was changed there;
//   4. then the masks go. That of a page goes earlier, once its changes are in the file, if the
//      kernel asks for the page, or a program writes all of it: what the kernel has from then on is
//      newer, and a store to it is a later one. (The kernel lets what it is writing back of a page
//      come to its end before it does either.)
// This stands for rule 1 of penstock/consistency/page_versions.hpp.
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

// The files that the regions and mounts of a hub share: of each file its home, the masks of its
// pages, and how many programs write it. To the hub it is the observer that tells regions and
// mounts what kernels change by write and truncate.
//
// Thread-safe. Made when the first region or mount of the hub is made: before, there is none to
// tell.
class shared_files final : public host::hub_part, public host::write_observer {
public:
    explicit shared_files(host::hub& shared);
    ~shared_files() override;
    static shared_files& of(host::hub& shared) { return shared.part<shared_files>(); }

    [[nodiscard]] host::hub& hub() const { return hub_; }

    // The home of this file, made if there is none. 0 or a negative errno.
    int open_home(host::environment& env, const std::string& path, bool writable,
                  std::shared_ptr<shared_home>& out);
    // Null: no region is of the file. A load where there are no regions at all.
    std::shared_ptr<shared_home> find_home(const file_key& file);

    // The masks of a file, for all regions, kernels and mounts. Made if there are none.
    std::shared_ptr<page_masks> masks_of(const file_key& file);
    // Null if there are none.
    std::shared_ptr<page_masks> masks_in_use(const file_key& file);

    // How many programs write the file now, or one of many others. Also of files of which there is
    // no region yet: one may come while they are written.
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

// A file as mounts and programs name it.
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

// An operation of a program on a file: made before the file is read. Costs next to nothing where no
// region is of any file.
class program_access {
public:
    enum class kind : std::uint8_t {
        fetch,   // the kernel gets these pages for its cache, or those of them that the program
                 // writes whole
        direct,  // past the kernel's cache, or we do not know
    };
    // The kernel may keep these pages from now on.
    program_access(const client_file& file, kind way, std::uint64_t offset, std::uint64_t bytes);

    // What is meant may be with a region, or else with the cache of a runtime, and not in memory:
    // then use() gets it, and how much came from there is returned. 0: read the file.
    std::uint64_t read_devices(int fd, std::uint64_t offset, std::uint64_t bytes,
                               const byte_sink& use) const;

protected:
    const client_file file_;
    std::shared_ptr<shared_home> home_;  // null: there was no region of the file when it began
};

// One that writes: made before that, wrote() after it. As long as there is one of a file nothing of
// that file is read from devices; else a reader there could see what was before, after others saw
// what was written.
class program_write : public program_access {
public:
    program_write(const client_file& file, kind way, std::uint64_t offset, std::uint64_t bytes);

    // These bytes of the file are others now.
    void wrote(std::uint64_t offset, std::uint64_t bytes);

    // Writes pages back that were changed in mappings, as above, to the file of `fd`, and tells.
    // The count of bytes, or a negative errno.
    static std::int64_t write_back(const client_file& file, int fd, const std::byte* from,
                                   std::uint64_t bytes, std::uint64_t offset);

private:
    const write_count counted_;
};

}  // namespace penstock::region
