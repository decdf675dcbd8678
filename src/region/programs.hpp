// Programs that use files of regions through a mount of this process: how mounts and regions find
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
//      (program_views::take_away), which writes back what was changed there;
//   4. then the masks go. That of a page goes earlier, once its changes are in the file, if the
//      kernel asks for the page, or a program writes all of it: what the kernel has from then on is
//      newer, and a store to it is a later one. (The kernel lets what it is writing back of a page
//      come to its end before it does either.)
// This stands for rule 1 of penstock/consistency/page_versions.hpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "region/file_key.hpp"
#include "region/page_masks.hpp"

namespace penstock::region {

class shared_home;

// What a mount does for regions. Thread-safe, and called with no lock that an operation of a
// program takes. 0 or a negative errno; a file that its programs do not use is no error.
class program_views {
public:
    virtual ~program_views() = default;
    // What programs have stored to mapped pages of the file is in the file, and told by
    // program_access::wrote, when it returns.
    virtual int collect(const file_key& file) = 0;
    // The same for a range, and the pages that the kernel had when this was called it has no more,
    // nor is anything of them under way to the file.
    virtual int take_away(const file_key& file, std::uint64_t offset, std::uint64_t bytes) = 0;
};

void add_views(std::shared_ptr<program_views> views);
void remove_views(const program_views& views);
std::vector<std::shared_ptr<program_views>> all_views();

// How many programs write a file now.
class write_count {
public:
    explicit write_count(const file_key& file);
    ~write_count();
    write_count(const write_count&) = delete;
    write_count& operator=(const write_count&) = delete;
    static bool is_zero(const file_key& file);  // false also for one of 64 others

private:
    std::atomic<std::uint32_t>& count_;
};

using byte_sink = std::function<void(const std::byte*, std::uint64_t)>;

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
    program_access(const file_key& file, kind how, std::uint64_t offset, std::uint64_t bytes);

    // What is meant may be with a region, or else with the cache of a runtime, and not in memory:
    // then use() gets it, and how much came from there is returned. 0: read the file.
    std::uint64_t read_devices(int fd, std::uint64_t offset, std::uint64_t bytes,
                               const byte_sink& use) const;

protected:
    const file_key file_;
    std::shared_ptr<shared_home> home_;  // null: there was no region of the file when it began
};

// One that writes: made before that, wrote() after it. As long as there is one of a file nothing of
// that file is read from devices; else a reader there could see what was before, after others saw
// what was written.
class program_write : public program_access {
public:
    program_write(const file_key& file, kind how, std::uint64_t offset, std::uint64_t bytes);

    // These bytes of the file are others now.
    void wrote(std::uint64_t offset, std::uint64_t bytes);

    // Writes pages back that were changed in mappings, as above, to the file of `fd`, and tells.
    // The count of bytes, or a negative errno.
    static std::int64_t write_back(const file_key& file, int fd, const std::byte* from,
                                   std::uint64_t bytes, std::uint64_t offset);

private:
    const write_count counted_;
};

}  // namespace penstock::region
