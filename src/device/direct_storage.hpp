// Reads from storage straight to device memory, by cuFile (device/cufile.hpp): whether there is a
// direct path, files that are read so, and memory that is registered for it.
// docs/decisions/direct_storage.md has the reasons.
//
// cuFile also reads where there is no direct path, through host memory (compatibility mode). That
// is for tests and measurements: Penstock's own way through host memory is then the better choice.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "device/cufile.hpp"
#include "os/env.hpp"
#include "os/process_owner.hpp"
#include "os/storage_kind.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

// What cuFile says of itself and of this machine.
struct cufile_report {
    bool is_open = false;
    std::string why_not;  // if it is not
    int version = 0;      // 1200 for 1.20; 0: not told
    unsigned nvfs_major = 0, nvfs_minor = 0;
    // Kinds of storage with a direct path, as bits of cufile::storage_bit.
    unsigned by_nvidia_fs = 0, by_p2p = 0;
    bool only_posix = false;  // cufile.json says that all reads go through host memory
};

struct direct_path {
    bool is_direct = false;
    std::string words;  // which, or why there is none: the rest of a sentence
};

direct_path path_from(const cufile_report& report, const storage_facts& storage);
// For people: all that there are, or why there are none.
direct_path paths_of(const cufile_report& report);

struct direct_storage_settings {
    std::string library;            // empty: as the system finds it
    bool needs_cuda_driver = true;  // false: for a library of tests, without a GPU
    std::chrono::milliseconds longest_open{10'000};
    // What is automatic begins with a fill of this size: to open cuFile takes a while.
    std::uint64_t least_fill_bytes = std::uint64_t{64} << 20;
    std::optional<storage_facts> storage = std::nullopt;  // of tests: of every file
};

class direct_storage;

// A file that is open for reads by cuFile. Thread-safe.
class direct_file {
public:
    direct_file(direct_storage& storage, environment& env, int fd, cufile::file_handle handle,
                direct_path path);
    ~direct_file();
    direct_file(const direct_file&) = delete;
    direct_file& operator=(const direct_file&) = delete;

    // True: all bytes are at `to`. False: the place may have any bytes, and the file is not read
    // so any more (failure()).
    bool read(std::byte* to, std::uint64_t bytes, std::uint64_t offset);
    [[nodiscard]] const direct_path& path() const { return path_; }
    [[nodiscard]] std::string failure() const;
    [[nodiscard]] direct_storage& storage() const { return storage_; }

private:
    void fail(const std::string& why);

    direct_storage& storage_;
    environment& env_;
    const int fd_;
    const cufile::file_handle handle_;
    const direct_path path_;
    std::atomic<bool> failed_{false};
    mutable std::mutex mutex_;  // guards failure_
    std::string failure_;
};

// cuFile of this process, opened when it is first needed. Thread-safe.
class direct_storage {
public:
    explicit direct_storage(direct_storage_settings settings) : settings_(std::move(settings)) {}
    // The one of the process for a library; it stays until the process ends.
    static direct_storage& of_process(const std::string& library);

    [[nodiscard]] std::uint64_t least_fill_bytes() const { return settings_.least_fill_bytes; }
    // Can there be a direct path at all? Looks at the kernel, and loads nothing.
    [[nodiscard]] bool may_have_path() const;
    // Opens cuFile at the first call, which takes as long as that, at most longest_open.
    cufile_report report();
    // The open file once more, for reads by cuFile. `mode` on: where there is no direct path too.
    // Null: `why`, the rest of a sentence.
    std::unique_ptr<direct_file> open(environment& env, int fd, direct_mode mode, std::string& why);
    // Tells cuFile of memory that reads go to, which makes them cheaper. False: they go on without.
    bool add_buffer(std::byte* memory, std::uint64_t bytes);
    void remove_buffer(std::byte* memory);
    // True once for each text: what was said need not be said again.
    bool is_news(const std::string& text);

private:
    friend class direct_file;
    void open_library(cufile_report& out);
    void ask(cufile_report& out) const;

    const direct_storage_settings settings_;
    const process_owner owner_{};
    cufile::functions calls_;  // since report() says that it is open
    std::mutex mutex_;         // guards all below
    std::optional<cufile_report> report_;
    std::set<std::string> said_;
};

}  // namespace penstock::host
