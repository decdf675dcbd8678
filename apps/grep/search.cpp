// Runs jobs until all are done, cuts files into jobs and settles files that hold zero bytes, and
// the baseline on CPU threads.
#include "search.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <numeric>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "common/process.hpp"
#include "common/threads.hpp"
#include "count_job.hpp"
#include "os/file_kind.hpp"
#include "os/patient_open.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::grep {

namespace {

constexpr std::uint64_t job_room = std::uint64_t{1} << 20;  // jobs of one launch

status too_little_memory(std::uint64_t bytes) {
    return {-ENOMEM, "the search needs " + format_size(bytes) +
                         " of memory that is not free; use fewer words, or a smaller --cache"};
}

status if_copied(bool copied, const char* data_and_way) {
    if (copied) return {};
    return {-EIO, std::string(data_and_way) + " the device; is the GPU in order?"};
}

}  // namespace

bool may_pass(std::int32_t code) {
    return code == -ENOBUFS || code == -EAGAIN || code == -ENFILE || code == -ENOMEM ||
           code == -EMFILE;
}

bool place_tables(apps::device_memory& memory, const dictionary_tables& from, dictionary_ref& out) {
    out = from.ref();
    return memory.place(out.keys.slots, from.keys.slots) &&
           memory.place(out.keys.entries, from.keys.entries) &&
           memory.place(out.longer.slots, from.longer.slots) &&
           memory.place(out.longer.entries, from.longer.entries) &&
           memory.place(out.text, from.text) && memory.place(out.lengths, from.lengths);
}

file_arrays::file_arrays(const std::vector<input_file>& files) {
    for (const input_file& file : files) {
        path_at.push_back(paths.size());
        bytes.push_back(file.bytes);
        paths.insert(paths.end(), file.path.c_str(), file.path.c_str() + file.path.size() + 1);
    }
}

status file_search::place() {
    apps::device_memory& memory = *by_.memory;
    const file_arrays list(files_);
    const std::vector<std::uint64_t> no_zeros(list.path_at.size(), no_zero_byte);
    view_.chained_count = static_cast<std::uint32_t>(words_.chained.size());
    for (const chained_word& word : words_.chained)
        view_.longest_chained = std::max(view_.longest_chained, word.bytes);
    const bool placed =
        place_tables(memory, words_.plain_tables, view_.plain) &&
        place_tables(memory, words_.chained_tables, view_.chained) &&
        memory.place(view_.chained_words, words_.chained) &&
        memory.place(view_.paths, list.paths) && memory.place(view_.path_at, list.path_at) &&
        memory.place(view_.file_bytes, list.bytes) &&
        memory.allocate(view_.first_zero, no_zeros.size()) &&
        memory.upload(view_.first_zero, no_zeros.data(), no_zeros.size() * sizeof no_zero_byte) &&
        memory.allocate(view_.shared, 1) && memory.allocate(room_for_jobs_, job_room) &&
        memory.allocate(view_.status, job_room);
    return placed ? status{}
                  : too_little_memory(words_.plain_tables.text.size() * 8 + list.paths.size());
}

status file_search::prepare(std::uint64_t record_bytes) {
    if (status s = place(); !s) return s;
    const std::uint64_t word_count = words_.words.size();
    view_.layout = lay_out_scratch(word_count, words_.chained.size(), by_.text_bytes);
    // An eighth of what is free each for scratch and records. A launch must have room for the
    // records of one job.
    const std::uint64_t share = by_.memory->free_bytes() / 8;
    groups_ = std::clamp<std::uint64_t>(share / view_.layout.bytes, 1,
                                        std::max<std::uint64_t>(by_.groups, 1));
    if (record_bytes == 0) record_bytes = std::min<std::uint64_t>(share, 64u << 20);
    view_.record_capacity = std::max(record_bytes / sizeof(record), word_count);
    if (by_.memory->allocate(view_.scratch, groups_ * view_.layout.bytes) &&
        by_.memory->allocate(view_.records, view_.record_capacity))
        return {};
    return too_little_memory(groups_ * view_.layout.bytes + view_.record_capacity * sizeof(record));
}

status file_search::place_batch(const std::vector<job>& batch) {
    const std::vector<std::int32_t> open(batch.size(), job_open);
    const shared_words fresh{};
    view_.jobs = room_for_jobs_;
    view_.job_count = batch.size();
    view_.stamp_base = stamp_;
    stamp_ += batch.size();
    return if_copied(
        by_.memory->upload(room_for_jobs_, batch.data(), batch.size() * sizeof(job)) &&
            by_.memory->upload(view_.status, open.data(), open.size() * sizeof(std::int32_t)) &&
            by_.memory->upload(view_.shared, &fresh, sizeof fresh),
        "the list of files could not be copied to");
}

// Takes over the records of a launch and the codes of its jobs. `places`: of these in jobs_.
status file_search::collect(const std::vector<std::uint32_t>& places, big_vector<record>& records,
                            std::vector<std::int32_t>& codes) {
    shared_words shared{};
    codes.resize(places.size());
    bool good =
        by_.memory->download(&shared, view_.shared, sizeof shared) &&
        by_.memory->download(codes.data(), view_.status, codes.size() * sizeof(std::int32_t));
    const std::size_t before = records.size();
    if (good) {
        records.resize(before + shared.records_used);
        good = by_.memory->download(records.data() + before, view_.records,
                                    shared.records_used * sizeof(record));
    }
    // Nearly always all jobs were launched together. Places ascend, so none is missing then.
    const bool in_place = places.back() == places.size() - 1;
    for (std::size_t i = before; good && !in_place && i < records.size(); ++i)
        records[i].job = places[records[i].job];
    return if_copied(good, "the counts could not be copied from");
}

// Runs jobs_. The records name a job by its place there. The first code of a file that is not 0
// stays.
status file_search::run_jobs(big_vector<record>& records, counted_files& out) {
    if (jobs_.size() > UINT32_MAX)
        return {-EFBIG, "too many pieces of files for one run; search the files in parts"};
    out.jobs += jobs_.size();
    std::vector<std::uint32_t> waiting(jobs_.size());  // ascending
    std::iota(waiting.begin(), waiting.end(), 0u);
    std::uint64_t groups = groups_;
    while (!waiting.empty()) {
        const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(
                                               std::min<std::size_t>(waiting.size(), job_room));
        const std::vector<std::uint32_t> places(waiting.begin(), end);
        waiting.erase(waiting.begin(), end);
        std::vector<job> batch;
        for (const std::uint32_t i : places) batch.push_back(jobs_[i]);
        if (status s = place_batch(batch); !s) return s;
        const std::uint64_t launched = std::min<std::uint64_t>(groups, batch.size());
        apps::stopwatch watch;
        const status ended = by_.launch(view_, batch, launched);
        if (was_interrupted()) return {-ECANCELED, error_text(-ECANCELED)};
        if (!ended.ok()) return ended;
        ++out.launches;
        out.launch_seconds += watch.lap();
        std::vector<std::int32_t> codes;
        if (status s = collect(places, records, codes); !s) return s;
        out.collect_seconds += watch.lap();
        const bool wants_text =
            std::find(codes.begin(), codes.end(), needs_more_text) != codes.end();
        const bool gets_text = wants_text && by_.look_further && by_.look_further();
        std::vector<std::uint32_t> again;
        bool crowded = false;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            if (concerns_runtime(codes[i])) return {codes[i], error_text(codes[i])};
            const bool needs_fewer = may_pass(codes[i]) && groups > 1,
                       needs_text = codes[i] == needs_more_text;
            crowded = crowded || needs_fewer;
            std::int32_t& of_file = codes_[batch[i].file];
            if (needs_fewer || (needs_text && gets_text) || codes[i] == job_open)
                again.push_back(places[i]);
            else if (of_file == 0) of_file = needs_text ? -EFBIG : codes[i];
        }
        if (again.size() == batch.size() && !crowded && !gets_text)
            return {-EIO, "the search made no progress; please report this"};
        if (crowded) groups = std::max<std::uint64_t>(1, launched / 2);
        waiting.insert(waiting.begin(), again.begin(), again.end());
    }
    first_zero_.resize(files_.size());
    return if_copied(by_.memory->download(first_zero_.data(), view_.first_zero,
                                          first_zero_.size() * sizeof no_zero_byte),
                     "the results could not be copied from");
}

int open_of_size(const char* path, std::uint64_t bytes, apps::unique_fd& out) {
    out = apps::unique_fd(host::open_past_leases(path, O_RDONLY | O_NOCTTY));
    struct stat info {};
    if (out < 0 || ::fstat(out, &info) != 0) return -errno;
    return static_cast<std::uint64_t>(info.st_size) == bytes ? 0 : -ESTALE;
}

bool has_same_bytes(const struct stat& now, const input_file& found) {
    const host::file_identity is = host::identity_of(now);
    return is.same_file(found.version) && is.size_bytes == found.version.size_bytes &&
           is.modified_ns == found.version.modified_ns;
}

// A look costs about a microsecond, so all files are looked at, also those that took one read: a
// kernel's read is none of one moment, it is of pages.
void note_changed(const std::vector<input_file>& files, std::vector<std::int32_t>& codes) {
    constexpr std::uint64_t step = 512;
    const std::uint64_t steps = (files.size() + step - 1) / step;
    const auto threads = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(steps, 1, apps::thread_count(std::nullopt)));
    std::atomic<std::uint64_t> next{0};
    apps::on_threads(threads, [&](std::uint32_t) {
        for (std::uint64_t at; (at = next.fetch_add(step)) < files.size();)
            for (std::uint64_t i = at; i < std::min<std::uint64_t>(at + step, files.size()); ++i) {
                struct stat now {};
                if (codes[i] != 0) continue;
                if (::stat(files[i].path.c_str(), &now) != 0) codes[i] = -errno;
                else if (!has_same_bytes(now, files[i])) codes[i] = -ESTALE;
            }
    });
}

// Baseline: all cores, plain reads.

namespace {

// Text source (count_job.hpp) for one thread.
struct pread_source {
    int fd;
    std::uint64_t file_bytes;
    unsigned char* copy;
    std::uint64_t copy_bytes;

    template <typename Group, typename Body>
    int for_each_window(const Group&, std::uint64_t from, std::uint64_t to,
                        const Body& body) const {
        for (std::uint64_t at = from; at < to;) {
            const std::uint64_t before = at > 0 ? at - 1 : 0;
            const std::uint64_t until = std::min(to, at + (copy_bytes - window_margin - 1));
            const std::uint64_t end = std::min(file_bytes, until + window_margin);
            if (const int code = apps::read_all(fd, copy, end - before, before); code != 0)
                return code;
            body(text_window{copy, before, end}, at, until);
            at = until;
        }
        return 0;
    }
};

int count_with_reads(const search_view& view, const tally& t, std::uint32_t job_index) {
    if (was_interrupted()) return -ECANCELED;
    const std::uint32_t file = view.jobs[job_index].file;
    const std::uint64_t bytes = view.file_bytes[file];
    apps::unique_fd fd;
    if (const int code = open_of_size(view.paths + view.path_at[file], bytes, fd); code != 0)
        return code;
    pread_source source{fd, bytes, t.text, view.layout.text_bytes};
    return count_job(lane{}, view, t, source, job_index);
}

}  // namespace

search_method make_cpu_search(std::uint32_t threads) {
    search_method out;
    out.memory = apps::make_host_memory();
    out.groups = threads;
    out.text_bytes = std::uint64_t{1} << 18;
    out.launch = [](const search_view& view, const std::vector<job>&, std::uint64_t groups) {
        apps::on_threads(static_cast<std::uint32_t>(groups), [&view](std::uint32_t thread) {
            take_jobs(lane{}, view, thread, [&](const tally& t, std::uint32_t job_index) {
                return count_with_reads(view, t, job_index);
            });
        });
        return status{};
    };
    return out;
}

// From files to counts.

void file_search::cut(std::uint32_t file, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t at = begin; at < end;) {
        const std::uint64_t until = std::min(end, (at / piece_bytes_ + 1) * piece_bytes_);
        jobs_.push_back({file, 0, at, until});
        at = until;
    }
}

status file_search::count_text(counted_files& out) {
    for (std::uint32_t file = 0; file < files_.size(); ++file) cut(file, 0, files_[file].bytes);
    if (status s = run_jobs(text_records_, out); !s) return s;
    apps::stopwatch watch;
    find_runs(text_records_, runs_, [this](const record& r) {
        const std::uint32_t file = jobs_[r.job].file;
        return first_zero_[file] == no_zero_byte ? file : no_file;
    });
    out.join_seconds += watch.lap();
    return {};
}

// Files with a zero byte behind grep's first read are counted again, up to where grep stops
// printing; that may differ from word to word, so they are cut at every such place.
status file_search::count_binary_files(counted_files& out) {
    std::vector<std::uint32_t> files;
    for (std::uint32_t file = 0; file < files_.size(); ++file) {
        if (first_zero_[file] == no_zero_byte) continue;
        ++out.binary_files;
        if (codes_[file] == 0 && first_zero_[file] >= first_read_bytes) files.push_back(file);
    }
    if (files.empty()) return {};
    std::vector<std::uint32_t> offsets;  // by word
    for (const std::string& word : words_.words) offsets.push_back(buffer_offset(word));
    std::map<std::uint32_t, std::map<std::uint32_t, std::uint64_t>> limits;  // by file, offset
    jobs_.clear();
    for (const std::uint32_t file : files) {
        std::map<std::uint32_t, std::uint64_t>& of_file = limits[file];
        for (const std::uint32_t offset : offsets) of_file[offset] = 0;
        codes_[file] = find_print_limits(files_[file], first_zero_[file], of_file);
        std::set<std::uint64_t> places;
        for (const auto& [offset, limit] : of_file) places.insert(limit);
        std::uint64_t begin = 0;
        for (const std::uint64_t end : places) cut(file, std::exchange(begin, end), end);
    }
    if (status s = run_jobs(binary_records_, out); !s) return s;
    find_runs(binary_records_, runs_, [&](const record& r) {
        const job& piece = jobs_[r.job];
        const bool printed = piece.end <= limits[piece.file][offsets[r.word]];
        return printed ? piece.file : no_file;
    });
    return {};
}

// Drops files with errors, adds up the counts of a file's pieces, sorts.
status file_search::count(std::uint64_t piece_bytes, counted_files& out) {
    piece_bytes_ = piece_bytes;
    if (status s = count_text(out); !s) return s;
    if (status s = count_binary_files(out); !s) return s;
    apps::stopwatch watch;
    note_changed(files_, codes_);
    for (std::uint32_t file = 0; file < codes_.size(); ++file)
        if (codes_[file] != 0) out.errors.push_back({file, codes_[file]});
    if (!out.errors.empty())
        std::erase_if(runs_, [this](const record_run& run) { return codes_[run.file] != 0; });
    out.counts = join_records(std::move(runs_), apps::thread_count(std::nullopt));
    out.join_seconds += watch.lap();
    return {};
}

std::uint64_t choose_piece_bytes(std::uint64_t total_bytes, std::uint64_t groups,
                                 std::uint64_t least) {
    constexpr std::uint64_t most = std::uint64_t{1} << 20;
    const std::uint64_t wanted = total_bytes / (groups * 4 + 1);
    std::uint64_t bytes = least;
    while (bytes < wanted && bytes < most) bytes *= 2;
    return bytes;
}

}  // namespace penstock::grep
