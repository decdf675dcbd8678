// What `penstock cp` copies files by: the operating system (host_copier.cpp), or a kernel through
// the page cache (kernel_copier.cpp). Both keep the same promises (docs/guide/cp.md).
#pragma once

#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "common/files.hpp"
#include "copy_job.hpp"
#include "named_files.hpp"
#include "penstock/runtime.hpp"

namespace penstock::cli {

struct copy_wishes {
    bool fsync = false;   // a copy is done when it and its name are on storage
    bool verify = false;  // every copy is read back and compared
    bool windows = true;  // the kernel's alone
};

struct copy_totals {
    std::uint64_t files = 0, bytes = 0, hole_bytes = 0, failed = 0;
    std::uint64_t shared_bytes = 0;  // of `bytes`: the copy has the blocks of its source
    double seconds = 0, verify_seconds = 0;
};

class copier {
public:
    virtual ~copier() = default;
    // How many of these files, from the first on, are copied by one call of copy(). At least one.
    [[nodiscard]] virtual std::size_t files_at_once(std::span<const planned_copy> plans) const = 0;
    // Bytes that copies have by now. Thread-safe, while copy() runs.
    [[nodiscard]] virtual std::uint64_t bytes_written() const = 0;
    // Copies these files, no more than files_at_once(), and compares them if that is wanted. Of a
    // file that failed it says why, and counts it; the status is of what ends the program. An
    // interrupt leaves the copies that were not begun as they were.
    virtual status copy(std::span<const planned_copy> plans, copy_totals& totals) = 0;
    // After the last copy: gives files their ends that could not have them before.
    virtual void finish() {}
    // What a report has beside the totals.
    [[nodiscard]] virtual nlohmann::json facts() const = 0;
};

std::unique_ptr<copier> make_host_copier(const copy_wishes& wanted);
status make_kernel_copier(const options& settings, const copy_wishes& wanted, bool quiet,
                          std::unique_ptr<copier>& out);

// For both.

inline constexpr std::uint64_t least_hole_bytes = 64 << 10;  // shorter ones are copied as zeros
// Of host::open_past_leases: a pipe or a device may have the name.
inline constexpr int flags_of_any = O_NOCTTY;

// "1,234 bytes"
std::string bytes_text(std::uint64_t bytes);
std::uint64_t data_bytes_of(const cp::open_copy& copy);
void count(const cp::open_copy& copy, bool good, copy_totals& totals);
// How far it came, for the end of a message.
std::string reach_of(const planned_copy& plan, const cp::open_copy& copy);
// The message about a copy that stopped. `reason_of_writing`: why, where more is known than the
// code.
status copying_failed(const planned_copy& plan, const cp::open_copy& copy,
                      const std::string& reason_of_writing = "");
// Opens the copy's file; a new one for no other user before it has its source's permissions.
status open_place(const planned_copy& plan, apps::unique_fd& out);
status place_failed(const planned_copy& plan, int code, const char* cure);
// A new copy gets its source's permissions. A file system may refuse that: then the copy is good,
// and a line says which permissions it has.
void set_mode(const planned_copy& plan, int place);
// A new name is on storage once its directory is.
int sync_directory_of(const std::string& path);
// The copy has all its bytes, but one of the last steps failed.
status ending_failed(const planned_copy& plan, const cp::open_copy& copy, int code,
                     const std::string& reason = "");
// The copy, read back, is not as its source, or one of them could not be read.
status comparing_failed(const planned_copy& plan, const cp::open_copy& copy);
status length_differs(const planned_copy& plan, std::uint64_t bytes, std::uint64_t wanted);

}  // namespace penstock::cli
