// Copies of files: the plan, judged before anything is written, and the files one kernel copies.
#pragma once

#include <cstdint>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/process.hpp"
#include "copy_files.hpp"
#include "penstock/error.hpp"

namespace penstock::cp {

// Which file goes where, found out and judged before anything is written.

// For sources that are no regular file.
inline constexpr const char* instead = "cp";

struct planned_copy {
    std::string from, to;
    unsigned mode = 0;    // of a new file: the source's permission bits less the umask
    bool is_new = false;  // `to` is not there
};

// One source to a file, or all of them into a directory. Every file is looked at; the first that
// cannot be copied is told, and then nothing has been changed: no regular file or none that can be
// read, a destination that cannot be written, a file onto itself or onto another source (also by a
// link), two to one place.
status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::vector<planned_copy>& out);

// Files that are open at the same time and copied by one kernel: opening them, and what becomes of
// each.

// A host handle that is closed with it.
struct handle {
    int fd = -1;
    handle() = default;
    explicit handle(int opened) : fd(opened) {}
    handle(handle&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
    handle& operator=(handle&&) = delete;
    ~handle() {
        if (fd >= 0) ::close(fd);
    }
};

// Where a copy ends that could not be finished: what groups wrote behind that is of no use. Cut
// when the runtime has ended, for until then it may still write back pages that lie behind. Opened
// only then, because there may be many.
struct cut {
    std::string path;
    std::uint64_t device = 0, inode = 0;  // another file that has the name meanwhile stays as it is
    std::uint64_t bytes = 0;

    // 0 or a negative errno.
    [[nodiscard]] int make() const;
};

struct copy_totals {
    std::uint64_t files = 0, bytes = 0, hole_bytes = 0, failed = 0;
    double seconds = 0, verify_seconds = 0;
};

struct copy_settings {
    bool fsync = false;
    bool verify = false;
    bool windows = true;
};

// "1,234 bytes"
std::string bytes_text(std::uint64_t bytes);

// By one thread. Lives no longer than the runtime.
class batch {
public:
    batch(runtime& rt, const copy_settings& wanted, std::vector<cut>& cuts)
        : rt_(rt), wanted_(wanted), cuts_(cuts) {}

    // Opens both files and makes the second one if it is not there; an existing one is cut, and
    // loses what it had. The plan stays where it is.
    status add(const planned_copy& plan);

    // Copies them, and compares them if that is wanted. Files that failed have been said and are
    // counted; the status is that of the kernel.
    status copy(copy_totals& sum);

private:
    [[nodiscard]] std::uint64_t growth_bytes() const;
    status open_copy_of(const planned_copy& plan, std::uint64_t bytes, handle& place, int& fd);
    status conclude(const planned_copy& plan, open_copy& copy, int source, handle& place);
    status verify(std::vector<bool>& good);

    apps::stopwatch watch_;  // opening files and their windows counts
    runtime& rt_;
    const copy_settings& wanted_;
    std::vector<cut>& cuts_;
    std::vector<const planned_copy*> plans_;
    std::vector<open_copy> copies_;
    std::vector<handle> places_, sources_;  // where the copies are; what they are of
};

}  // namespace penstock::cp
