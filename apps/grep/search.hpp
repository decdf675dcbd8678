// The ways to search: running jobs on some kind of processor, and from files to counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device_memory.hpp"
#include "common/process.hpp"
#include "inputs.hpp"
#include "records.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"
#include "search_view.hpp"

namespace penstock::grep {

// Running jobs on some kind of processor. Everything but the launch is the same for all methods:
// placing dictionary, files and scratch in the device's memory, running jobs until all are done,
// bringing the records back.

using apps::stopwatch;

struct search_limits {
    std::uint64_t groups = 1;  // how many could run at once; less if their scratch does not fit
    std::uint64_t text_bytes = 16384;  // a group's room for copied text
    std::uint64_t record_bytes = 0;    // room for records between two launches; 0: automatic
};

struct search_output {
    big_vector<record> records;             // `job` is the place in the list that was run
    std::vector<std::int32_t> status;       // per job: 0 or a negative errno
    std::vector<std::uint64_t> first_zero;  // per file, over all runs so far
    std::uint64_t launches = 0;
    double launch_seconds = 0;
    double collect_seconds = 0;
};

// Not thread-safe: one run at a time.
class search_method {
public:
    virtual ~search_method() = default;

    // Places what does not change. Once, before run().
    status prepare(const dictionary& words, const file_list& files, const search_limits& limits);

    // Runs the jobs. The output's status says what became of each; the result, whether the search
    // as a whole failed.
    status run(const std::vector<job>& jobs, search_output& out);

    [[nodiscard]] std::uint64_t groups() const { return groups_; }

protected:
    explicit search_method(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    // Runs the view's jobs, of which `jobs` is a copy, on up to `groups` groups and waits. A job
    // that fails for want of something that fewer groups would leave (frames, file slots) is run
    // again by fewer.
    virtual status launch(const search_view& view, const std::vector<job>& jobs,
                          std::uint64_t groups) = 0;

private:
    status place(const dictionary& words, const file_list& files);
    status place_jobs(const std::vector<job>& jobs);
    status collect(const std::vector<std::uint32_t>& pending, search_output& out,
                   std::vector<std::int32_t>& status_now);

    std::unique_ptr<apps::device_memory> memory_;
    search_view view_{};
    job* jobs_ = nullptr;
    std::uint64_t job_room_ = 0;
    std::uint64_t file_count_ = 0;
    std::uint64_t groups_ = 1;
    std::uint64_t stamp_ = 1;
};

// The ways to search.

// Kernels that read the files through Penstock's page cache. `rt` must outlive the method.
std::unique_ptr<search_method> make_penstock_search(runtime& rt);
search_limits penstock_limits(const runtime& rt);
// Will a runtime of these options be one of the gpu back end? For what is chosen before it is made.
bool will_use_gpu(const options& o);

// Baseline: the same counting on CPU threads, with pread and no page cache of our own.
std::unique_ptr<search_method> make_cpu_search();
search_limits cpu_limits(std::uint32_t threads);

// Baseline: the same counting on the GPU; the host reads the files into pinned memory in large
// batches and copies them, reading one batch while the GPU counts another. `files` must outlive the
// method. -ENODEV and a message without a GPU.
status make_cuda_search(int device, std::uint32_t threads, const file_list& files,
                        std::unique_ptr<search_method>& out, search_limits& limits);

// From files to counts: cutting files into jobs, running them, and settling files that hold zero
// bytes.

struct file_error {
    std::uint32_t file;
    int code;
};

struct counted_files {
    big_vector<word_count> counts;   // sorted by file, then word; none is zero
    std::vector<file_error> errors;  // files whose counts are left out
    std::uint64_t binary_files = 0;
    std::uint64_t jobs = 0;
    std::uint64_t launches = 0;
    double launch_seconds = 0;   // while kernels ran, or the threads that stand for them
    double collect_seconds = 0;  // fetching records and status
    double join_seconds = 0;     // putting records in order
};

// `piece_bytes`: how large files are cut. Fails only if the search as a whole does.
status count_files(search_method& method, const dictionary& words, const file_list& files,
                   std::uint64_t piece_bytes, counted_files& out);

// A piece size that gives every group some pieces of `total_bytes`, from `least` to 1 MiB.
std::uint64_t choose_piece_bytes(std::uint64_t total_bytes, std::uint64_t groups,
                                 std::uint64_t least);

}  // namespace penstock::grep
