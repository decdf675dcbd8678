// Runs jobs until all are done, and the baseline on CPU threads.
#include "search.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <vector>

#include "common/threads.hpp"
#include "count_job.hpp"
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
    const lane one{};
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
            code = count_job(one, view, t, source, job_index);
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

}  // namespace penstock::grep
