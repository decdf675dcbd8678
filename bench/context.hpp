// What every case is given: the settings, the file, runtimes, and the list that its figures go to.
#pragma once

#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "result.hpp"
#include "penstock/runtime.hpp"
#include "scratch_file.hpp"
#include "bench.hpp"

namespace penstock::bench {

// A runtime for one measurement. 0: the default, or what the environment says.
struct runtime_shape {
    std::uint64_t page_bytes = 65536;
    std::uint64_t cache_bytes = 0;
    std::uint64_t file_bytes = 0;  // of the file that will be read: its table has one level
    std::uint64_t service_threads = 0;
    std::uint64_t worker_threads = 0;
    bool writable = false;
    std::uint64_t write_behind_bytes = 0;
};

class context {
public:
    context(const settings& asked, backend where) : asked_(asked), where_(where) {}

    [[nodiscard]] const settings& asked() const { return asked_; }
    [[nodiscard]] bool on_gpu() const { return where_ == backend::gpu; }
    [[nodiscard]] const char* backend_name() const { return name_of(where_); }

    // What was asked for, else the case's own choice; with --sweep, the sweep's.
    [[nodiscard]] std::vector<std::uint64_t> pages(std::initializer_list<std::uint64_t> own) const;
    // Sizes of a cache smaller than the file, each at least 16 pages; the case's own is a 16th of
    // the file.
    [[nodiscard]] std::vector<std::uint64_t> caches(std::uint64_t file_bytes,
                                                    std::uint64_t page_bytes) const;
    [[nodiscard]] std::vector<std::uint64_t> service_threads() const;
    [[nodiscard]] std::uint64_t repeats(std::uint64_t own) const {
        return asked_.repeats != 0 ? asked_.repeats : own;
    }
    [[nodiscard]] std::uint64_t threads(std::uint64_t own) const {
        return asked_.threads != 0 ? asked_.threads : own;
    }
    [[nodiscard]] std::uint64_t file_bytes(std::uint64_t own) const {
        return asked_.file_bytes != 0 ? asked_.file_bytes : own;
    }

    // The file of that size, in the page cache; the one before is kept if it has it.
    status use_file(std::uint64_t bytes);
    [[nodiscard]] const scratch_file& file() const { return file_; }
    // By a case that changed it: the next one gets a new file.
    void forget_file() { file_.remove(); }

    // `out` holds no runtime when this is called: two would share the device's memory.
    status make_runtime(const runtime_shape& shape, std::unique_ptr<runtime>& out);
    // The same, and the file opened in it.
    status make_runtime(const runtime_shape& shape, std::unique_ptr<runtime>& out, int& fd);

    // Says on standard error what is being done.
    void progress(const std::string& what) const;
    // A case, or a part of one, that cannot be run here; its rows are left out.
    void leave_out(const std::string& what, const std::string& why) const;

    // Backend is filled in if empty. A figure that is no positive number fails the run: something
    // was not measured.
    status add(figure one);
    [[nodiscard]] const std::vector<figure>& figures() const { return figures_; }

private:
    const settings& asked_;
    backend where_;
    scratch_file file_;
    std::set<std::string> said_;  // notes of runtimes, each said once
    std::vector<figure> figures_;
};

// "cache 1/16 of the file", or its size where it is no simple part.
std::string cache_label(std::uint64_t cache_bytes, std::uint64_t file_bytes);

// "GB/s" of so many bytes in so many seconds.
inline double gigabytes_a_second(std::uint64_t bytes, double seconds) {
    return 1e-9 * static_cast<double>(bytes) / seconds;
}

inline constexpr std::uint64_t kib = 1u << 10, mib = 1u << 20, gib = 1u << 30;

}  // namespace penstock::bench
