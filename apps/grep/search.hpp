// From files to counts: how a method counts, running jobs until all are done, and settling files
// that hold zero bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/device_memory.hpp"
#include "common/files.hpp"
#include "inputs.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"
#include "records.hpp"
#include "search_view.hpp"

namespace penstock::grep {

// A method that is ready to count on some kind of processor. All but the launch is the same for
// all methods (class file_search).
struct search_method {
    std::unique_ptr<apps::device_memory> memory;
    // Runs the view's jobs, of which `jobs` is a copy, on up to `groups` groups and waits. A job
    // that fails for want of something that fewer groups would leave (frames, file slots) is run
    // again by fewer.
    std::function<status(const search_view&, const std::vector<job>& jobs, std::uint64_t groups)>
        launch;
    // Of a method whose launch gives a part of the text behind a job, which answers needs_more_text
    // where that is too little: has the next launch give more. False: it has no room for more.
    // Empty: of the others.
    std::function<bool()> look_further;
    std::uint64_t groups = 1;          // how many could run at once; less if there is no room
    std::uint64_t text_bytes = 16384;  // a group's room for copied text
    // How finely files are cut. A GPU has thousands of groups, so there a single file of some
    // megabytes is cut finely.
    std::uint64_t least_piece = 256 << 10;
};
inline constexpr std::uint64_t least_gpu_piece = 16 << 10;
// The code of a job, and no errno: fewer groups would not help it.
inline constexpr std::int32_t needs_more_text = -4096;

// Kernels that read the files through Penstock's page cache. `rt` must outlive the method.
search_method make_penstock_search(runtime& rt);

// Baseline: the same counting on CPU threads, with pread and no page cache of our own.
search_method make_cpu_search(std::uint32_t threads);

// Baseline: the same counting on the GPU; the host reads the files into pinned memory in large
// batches and copies them, reading one batch while the GPU counts another. `files` must outlive the
// method. -ENODEV and a message without a GPU.
status make_cuda_search(int device, std::uint32_t threads, const file_list& files,
                        search_method& out);

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

// Places dictionary, files and scratch in the memory of a method, runs jobs there until all are
// done, and makes counts of the records that they leave. Not thread-safe.
class file_search {
public:
    file_search(search_method& by, const dictionary& words, const file_list& files)
        : by_(by), words_(words), files_(files.files), codes_(files_.size(), 0) {}

    // Places what does not change. Once, before count(). `record_bytes`: room for records between
    // two launches; 0: automatic.
    status prepare(std::uint64_t record_bytes);

    // Once. `piece_bytes`: how large files are cut. Fails only if the search as a whole does.
    status count(std::uint64_t piece_bytes, counted_files& out);

    [[nodiscard]] std::uint64_t groups() const { return groups_; }

private:
    status place();
    status place_batch(const std::vector<job>& batch);
    status collect(const std::vector<std::uint32_t>& places, big_vector<record>& records,
                   std::vector<std::int32_t>& codes);
    status run_jobs(big_vector<record>& records, counted_files& out);
    status count_text(counted_files& out);
    status count_binary_files(counted_files& out);
    void cut(std::uint32_t file, std::uint64_t begin, std::uint64_t end);

    search_method& by_;
    const dictionary& words_;
    const std::vector<input_file>& files_;
    search_view view_{};
    job* room_for_jobs_ = nullptr;
    std::uint64_t groups_ = 1;
    std::uint64_t stamp_ = 1;
    std::uint64_t piece_bytes_ = 0;
    std::vector<job> jobs_;                  // of a pass
    std::vector<std::int32_t> codes_;        // per file: 0 or why it is left out
    std::vector<std::uint64_t> first_zero_;  // per file
    big_vector<record> text_records_, binary_records_;
    std::vector<record_run> runs_;  // of both
};

// A piece size that gives every group some pieces of `total_bytes`, from `least` to 1 MiB.
std::uint64_t choose_piece_bytes(std::uint64_t total_bytes, std::uint64_t groups,
                                 std::uint64_t least);

// Opens a file for reading. 0 or a negative errno; -ESTALE if its size is not this one.
int open_of_size(const char* path, std::uint64_t bytes, apps::unique_fd& out);

// Is this the file that was found, with the bytes that it had then? Every write and every store to
// a mapping sets the time of modification. The time of change is not asked: a new link, other
// rights, another owner and a new name set it too, and change no byte. A program that writes and
// then sets the other time back is not seen.
bool has_same_bytes(const struct stat& now, const input_file& found);

// To be called when all has been read. A file of which this is another version than the one that
// was found gets the code -ESTALE, and one that cannot be looked at any more its errno; a code that
// is not 0 stays. Pieces of a file are read one after the other, and a line's number hangs on all
// pieces before it, so any change between may give a result that fits no version.
void note_changed(const std::vector<input_file>& files, std::vector<std::int32_t>& codes);

// Want of something that others hold for a moment, or of room for so many at a time: fewer groups
// may succeed.
bool may_pass(std::int32_t code);

// The files as kernels see them: paths that each end with a zero byte, where each begins, and
// sizes.
struct file_arrays {
    std::vector<char> paths;
    std::vector<std::uint64_t> path_at, bytes;
    explicit file_arrays(const std::vector<input_file>& files);
};

// Copies the tables of a dictionary to a device's memory. False if there is not enough.
bool place_tables(apps::device_memory& memory, const dictionary_tables& from, dictionary_ref& out);

// Where grep stops printing matches of a file that holds a zero byte (grep_buffers.cpp).

// The address of grep's buffer modulo 4096 when it is given this word.
std::uint32_t buffer_offset(const std::string& word);

// For each such offset, a key of `limits`: the place in the file below which matches are printed.
// The first zero byte lies at or behind first_read_bytes. 0 or a negative errno; -ESTALE if the
// file's size is not the one that was found.
int find_print_limits(const input_file& file, std::uint64_t first_zero,
                      std::map<std::uint32_t, std::uint64_t>& limits);

}  // namespace penstock::grep
