// Programs that use files of regions through a mount of this process: how mounts and regions find each other.
//
// The kernel keeps pages for programs (their view), and writes back whole pages that they changed in a mapping. So changes of regions come to the file only
// while the kernel has none of those pages (rule 1 of penstock/consistency/page_versions.hpp), in three steps:
//   1. the mount takes the view away (program_views::take_away), which brings home what programs stored there, while operations of programs go on;
//   2. the gate is closed: no operation is under way, and none begins. If one was admitted to a page since step 1, the gate is opened again, and step 1 is next;
//   3. the changes are written, and the gate is opened.
// In step 1 nobody may wait at the gate: the kernel holds a page locked as long as it waits for an answer about it, and step 1 waits for that lock.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::region {

class shared_home;

struct file_key {
    std::uint64_t device = 0, inode = 0;
    auto operator<=>(const file_key&) const = default;
};

// What a mount does for regions. Thread-safe. 0 or a negative errno; a file that its programs do not use is no error.
class program_views {
public:
    virtual ~program_views() = default;
    // What programs have stored to mapped pages of the file is in the file, and told by program_access::wrote, when it returns.
    virtual int collect(const file_key& file) = 0;
    // The same for a range, and the kernel has none of these pages any more.
    virtual int take_away(const file_key& file, std::uint64_t offset, std::uint64_t bytes) = 0;
};

void add_views(std::shared_ptr<program_views> views);
void remove_views(const program_views& views);
std::vector<std::shared_ptr<program_views>> all_views();

// An operation of a program on a file, while it lasts: made before the file is read or written, wrote() after it was written, gone before or after the answer.
// Costs next to nothing where no region is of any file.
class program_access {
public:
    // The program may keep these pages. Waits while changes of regions come home.
    program_access(const file_key& file, std::uint64_t offset, std::uint64_t bytes);
    ~program_access();
    program_access(const program_access&) = delete;
    program_access& operator=(const program_access&) = delete;

    // These bytes of the file are others now.
    void wrote(std::uint64_t offset, std::uint64_t bytes);

private:
    const file_key file_;
    std::shared_ptr<shared_home> home_;  // null: there was no region of the file when it began
};

}  // namespace penstock::region
