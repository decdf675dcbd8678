// Runs jobs until all are done, cuts files into jobs and settles files that hold zero bytes, and
// the baseline on CPU threads.
#include "search.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "common/threads.hpp"
#include "count_job.hpp"
#include "grep_buffers.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/options.hpp"
#include "pread_source.hpp"

namespace penstock::grep {

namespace {

constexpr std::uint64_t job_room = std::uint64_t{1} << 20;  // jobs of one launch

// Want of something that others hold for a moment, or of room for so many at a time: fewer groups
// may succeed.
bool may_pass(std::int32_t code) {
    return code == -ENOBUFS || code == -EAGAIN || code == -ENFILE || code == -ENOMEM ||
           code == -EMFILE;
}

bool concerns_runtime(std::int32_t code) {
    return code == -ECANCELED || code == -ESHUTDOWN || code == -ETIMEDOUT;
}

bool place_tables(apps::device_memory& memory, const dictionary_tables& from, dictionary_ref& out) {
    out = from.ref();
    return memory.place(out.keys.slots, from.keys.slots) &&
           memory.place(out.keys.entries, from.keys.entries) &&
           memory.place(out.longer.slots, from.longer.slots) &&
           memory.place(out.longer.entries, from.longer.entries) &&
           memory.place(out.text, from.text) && memory.place(out.lengths, from.lengths);
}

status too_little_memory(std::uint64_t bytes) {
    return {-ENOMEM, "the search needs " + format_size(bytes) +
                         " of memory that is not free; use fewer words, or a smaller --cache"};
}

// Baseline: all cores, plain reads.

void work(const search_view& view, std::uint64_t number) {
    const lane single{};
    const tally t(view, number);
    while (!was_interrupted()) {
        const std::uint64_t taken = take_job(view);
        if (taken >= view.job_count) return;
        const auto job_index = static_cast<std::uint32_t>(taken);
        if (is_settled(view, job_index)) {
            view.status[job_index] = 0;
            continue;
        }
        const std::uint32_t index = view.jobs[job_index].file;
        const plain_file file(view.paths + view.path_at[index], view.file_bytes[index]);
        int code = file.code();
        if (code == 0) {
            pread_source source{file, view.file_bytes[index], t.text, view.layout.text_bytes};
            code = count_job(single, view, t, source, job_index);
        }
        view.status[job_index] = code;
    }
}

class cpu_search final : public search_method {
public:
    cpu_search() : search_method(apps::make_host_memory()) {}

private:
    status launch(const search_view& view, const std::vector<job>&, std::uint64_t groups) override {
        apps::on_threads(static_cast<std::uint32_t>(groups),
                         [&view](std::uint32_t i) { work(view, i); });
        return was_interrupted() ? status{-ECANCELED, error_text(-ECANCELED)} : status{};
    }
};

}  // namespace

status search_method::place(const dictionary& words, const file_list& files) {
    std::vector<char> paths;
    std::vector<std::uint64_t> path_at, file_bytes;
    for (const input_file& file : files.files) {
        path_at.push_back(paths.size());
        file_bytes.push_back(file.bytes);
        paths.insert(paths.end(), file.path.c_str(), file.path.c_str() + file.path.size() + 1);
    }
    const std::vector<std::uint64_t> no_zeros(files.files.size(), no_zero_byte);
    file_count_ = files.files.size();
    view_.chained_count = static_cast<std::uint32_t>(words.chained.size());
    for (const chained_word& word : words.chained)
        view_.longest_chained = std::max(view_.longest_chained, word.bytes);
    const bool placed =
        place_tables(*memory_, words.plain_tables, view_.plain) &&
        place_tables(*memory_, words.chained_tables, view_.chained) &&
        memory_->place(view_.chained_words, words.chained) && memory_->place(view_.paths, paths) &&
        memory_->place(view_.path_at, path_at) && memory_->place(view_.file_bytes, file_bytes) &&
        memory_->allocate(view_.first_zero, file_count_) &&
        memory_->upload(view_.first_zero, no_zeros.data(), file_count_ * sizeof(std::uint64_t)) &&
        memory_->allocate(view_.shared, 1) && memory_->allocate(jobs_, job_room) &&
        memory_->allocate(view_.status, job_room);
    return placed ? status{} : too_little_memory(words.plain_tables.text.size() * 8 + paths.size());
}

status search_method::prepare(const dictionary& words, const file_list& files,
                              const search_limits& limits) {
    if (status s = place(words, files); !s) return s;
    const std::uint64_t word_count = words.words.size();
    view_.layout = lay_out_scratch(word_count, words.chained.size(), limits.text_bytes);
    // An eighth of what is free each for scratch and records. A launch must have room for the
    // records of one job.
    const std::uint64_t share = memory_->free_bytes() / 8;
    groups_ = std::clamp<std::uint64_t>(share / view_.layout.bytes, 1,
                                        std::max<std::uint64_t>(limits.groups, 1));
    const std::uint64_t wanted =
        limits.record_bytes != 0 ? limits.record_bytes : std::min<std::uint64_t>(share, 64u << 20);
    view_.record_capacity = std::max(wanted / sizeof(record), word_count);
    if (!memory_->allocate(view_.scratch, groups_ * view_.layout.bytes) ||
        !memory_->allocate(view_.records, view_.record_capacity))
        return too_little_memory(groups_ * view_.layout.bytes +
                                 view_.record_capacity * sizeof(record));
    return {};
}

status search_method::place_jobs(const std::vector<job>& jobs) {
    const std::vector<std::int32_t> open(jobs.size(), job_open);
    const shared_words fresh{};
    view_.jobs = jobs_;
    view_.job_count = jobs.size();
    view_.stamp_base = stamp_;
    stamp_ += jobs.size();
    const bool placed =
        memory_->upload(jobs_, jobs.data(), jobs.size() * sizeof(job)) &&
        memory_->upload(view_.status, open.data(), open.size() * sizeof(std::int32_t)) &&
        memory_->upload(view_.shared, &fresh, sizeof fresh);
    return placed
               ? status{}
               : status{
                     -EIO,
                     "the list of files could not be copied to the device; is the GPU in order?"};
}

// Takes over the records of a launch of the jobs `pending`, and their status.
status search_method::collect(const std::vector<std::uint32_t>& pending, search_output& out,
                              std::vector<std::int32_t>& status_now) {
    shared_words shared{};
    status_now.resize(pending.size());
    bool good = memory_->download(&shared, view_.shared, sizeof shared) &&
                memory_->download(status_now.data(), view_.status,
                                  status_now.size() * sizeof(std::int32_t));
    const std::size_t before = out.records.size();
    if (good) {
        out.records.resize(before + shared.records_used);
        good = memory_->download(out.records.data() + before, view_.records,
                                 shared.records_used * sizeof(record));
    }
    // Nearly always all jobs were launched together, in their order.
    const bool in_order = !pending.empty() && pending.front() == 0 &&
                          pending.back() == pending.size() - 1 &&
                          std::is_sorted(pending.begin(), pending.end());
    for (std::size_t i = before; good && !in_order && i < out.records.size(); ++i)
        out.records[i].job = pending[out.records[i].job];
    return good ? status{}
                : status{-EIO,
                         "the counts could not be copied from the device; is the GPU in order?"};
}

status search_method::run(const std::vector<job>& jobs, search_output& out) {
    if (jobs.size() > UINT32_MAX)
        return {-EFBIG, "too many pieces of files for one run; search the files in parts"};
    out.status.assign(jobs.size(), job_open);
    std::vector<std::uint32_t> waiting(jobs.size());
    std::iota(waiting.rbegin(), waiting.rend(), 0u);  // taken from the back
    std::uint64_t groups = groups_;
    while (!waiting.empty()) {
        const std::size_t count = std::min<std::size_t>(waiting.size(), job_room);
        const std::vector<std::uint32_t> pending(
            waiting.rbegin(), waiting.rbegin() + static_cast<std::ptrdiff_t>(count));
        waiting.resize(waiting.size() - count);
        std::vector<job> batch;
        for (const std::uint32_t i : pending) batch.push_back(jobs[i]);
        if (status s = place_jobs(batch); !s) return s;
        stopwatch watch;
        if (status s = launch(view_, batch, std::min<std::uint64_t>(groups, count)); !s) return s;
        ++out.launches;
        out.launch_seconds += watch.lap();
        std::vector<std::int32_t> status_now;
        if (status s = collect(pending, out, status_now); !s) return s;
        out.collect_seconds += watch.lap();
        std::vector<std::uint32_t> again;
        bool crowded = false;
        for (std::size_t i = 0; i < count; ++i) {
            const std::int32_t code = status_now[i];
            if (concerns_runtime(code)) return {code, error_text(code)};
            const bool retry = code == job_open || (may_pass(code) && groups > 1);
            crowded = crowded || (retry && code != job_open);
            if (retry) again.push_back(pending[i]);
            else out.status[pending[i]] = code;
        }
        if (again.size() == count && !crowded)
            return {-EIO, "the search made no progress; please report this"};
        if (crowded)
            groups = std::max<std::uint64_t>(1, std::min<std::uint64_t>(groups, count) / 2);
        waiting.insert(waiting.end(), again.rbegin(), again.rend());
    }
    out.first_zero.resize(file_count_);
    if (memory_->download(out.first_zero.data(), view_.first_zero,
                          file_count_ * sizeof(std::uint64_t)))
        return {};
    return {-EIO, "the results could not be copied from the device; is the GPU in order?"};
}

std::unique_ptr<search_method> make_cpu_search() { return std::make_unique<cpu_search>(); }

search_limits cpu_limits(std::uint32_t threads) { return {threads, std::uint64_t{1} << 18, 0}; }

namespace {

void cut(std::uint32_t file, std::uint64_t begin, std::uint64_t end, std::uint64_t piece_bytes,
         std::vector<job>& out) {
    for (std::uint64_t at = begin; at < end;) {
        const std::uint64_t until = std::min(end, (at / piece_bytes + 1) * piece_bytes);
        out.push_back({file, 0, at, until});
        at = until;
    }
}

// What is known of the files while the passes go on.
class settlement {
public:
    settlement(search_method& method, const dictionary& words, const file_list& files,
               std::uint64_t piece_bytes)
        : method_(method),
          words_(words),
          files_(files),
          piece_bytes_(piece_bytes),
          codes_(files.files.size(), 0) {}

    status first_pass(counted_files& out) {
        for (std::uint32_t i = 0; i < files_.files.size(); ++i)
            cut(i, 0, files_.files[i].bytes, piece_bytes_, jobs_);
        search_output found;
        if (status s = method_.run(jobs_, found); !s) return s;
        note_errors(found);
        first_zero_ = std::move(found.first_zero);
        note_work(found, out);
        stopwatch watch;
        first_records_ = std::move(found.records);
        find_runs(first_records_, runs_, [this](const record& r) {
            const std::uint32_t file = jobs_[r.job].file;
            return first_zero_[file] == no_zero_byte ? file : no_file;
        });
        out.join_seconds += watch.lap();
        return {};
    }

    // Files with a zero byte behind grep's first read are counted again, up to where grep stops
    // printing; that may differ from word to word, so they are cut at every such place.
    status second_pass(counted_files& out) {
        std::vector<std::uint32_t> offsets(words_.words.size());
        std::vector<std::uint32_t> distinct;
        std::map<std::uint32_t, std::vector<std::uint64_t>>
            limits;  // by file, in the order of `distinct`
        jobs_.clear();
        for (std::uint32_t file = 0; file < files_.files.size(); ++file) {
            if (first_zero_[file] == no_zero_byte) continue;
            ++out.binary_files;
            if (codes_[file] != 0 || first_zero_[file] < first_read_bytes) continue;
            if (distinct.empty()) list_offsets(offsets, distinct);
            cut_at_limits(file, distinct, limits[file]);
        }
        if (jobs_.empty()) return {};
        search_output found;
        if (status s = method_.run(jobs_, found); !s) return s;
        note_errors(found);
        note_work(found, out);
        second_records_ = std::move(found.records);
        find_runs(second_records_, runs_, [&](const record& r) {
            const job& piece = jobs_[r.job];
            const auto which = std::lower_bound(distinct.begin(), distinct.end(), offsets[r.word]) -
                               distinct.begin();
            return piece.end <= limits[piece.file][static_cast<std::size_t>(which)] ? piece.file
                                                                                    : no_file;
        });
        return {};
    }

    // Drops files with errors, adds up the counts of a file's pieces, sorts.
    void finish(counted_files& out) {
        stopwatch watch;
        for (std::uint32_t file = 0; file < codes_.size(); ++file)
            if (codes_[file] != 0) out.errors.push_back({file, codes_[file]});
        if (!out.errors.empty())
            std::erase_if(runs_, [this](const record_run& run) { return codes_[run.file] != 0; });
        out.counts =
            join_records(std::move(runs_), std::max(1u, std::thread::hardware_concurrency()));
        out.join_seconds += watch.lap();
    }

private:
    void note_errors(const search_output& found) {
        for (std::size_t i = 0; i < jobs_.size(); ++i)
            if (found.status[i] != 0 && codes_[jobs_[i].file] == 0)
                codes_[jobs_[i].file] = found.status[i];
    }

    void note_work(const search_output& found, counted_files& out) const {
        out.jobs += jobs_.size();
        out.launches += found.launches;
        out.launch_seconds += found.launch_seconds;
        out.collect_seconds += found.collect_seconds;
    }

    void list_offsets(std::vector<std::uint32_t>& offsets,
                      std::vector<std::uint32_t>& distinct) const {
        for (std::size_t i = 0; i < offsets.size(); ++i)
            offsets[i] = buffer_offset(words_.words[i]);
        distinct = offsets;
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    }

    void cut_at_limits(std::uint32_t file, const std::vector<std::uint32_t>& distinct,
                       std::vector<std::uint64_t>& limits) {
        binary_file binary;
        int code =
            binary.open(files_.files[file].path, files_.files[file].bytes, first_zero_[file]);
        limits.assign(distinct.size(), 0);
        for (std::size_t i = 0; i < distinct.size() && code == 0; ++i)
            code = binary.printed_below(distinct[i], limits[i]);
        codes_[file] = code;
        std::vector<std::uint64_t> places = limits;
        std::sort(places.begin(), places.end());
        std::uint64_t begin = 0;
        for (const std::uint64_t end : places) {
            cut(file, begin, end, piece_bytes_, jobs_);
            begin = std::max(begin, end);
        }
    }

    search_method& method_;
    const dictionary& words_;
    const file_list& files_;
    std::uint64_t piece_bytes_;
    std::vector<job> jobs_;
    std::vector<int> codes_;                 // per file: 0 or why it is left out
    std::vector<std::uint64_t> first_zero_;  // per file
    big_vector<record> first_records_, second_records_;
    std::vector<record_run> runs_;  // of both
};

}  // namespace

std::uint64_t choose_piece_bytes(std::uint64_t total_bytes, std::uint64_t groups,
                                 std::uint64_t least) {
    constexpr std::uint64_t most = std::uint64_t{1} << 20;
    const std::uint64_t wanted = total_bytes / (groups * 4 + 1);
    std::uint64_t bytes = least;
    while (bytes < wanted && bytes < most) bytes *= 2;
    return bytes;
}

status count_files(search_method& method, const dictionary& words, const file_list& files,
                   std::uint64_t piece_bytes, counted_files& out) {
    settlement s(method, words, files, piece_bytes);
    if (status failed = s.first_pass(out); !failed) return failed;
    if (status failed = s.second_pass(out); !failed) return failed;
    s.finish(out);
    return {};
}

}  // namespace penstock::grep
