// Runs the jobs that print lines, follows the blocks that they appended, and puts them in order;
// and the reference on the host.
#include "line_search.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <numeric>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/command_line.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "line_job.hpp"
#include "os/file_kind.hpp"

namespace penstock::grep {

namespace {

constexpr std::uint64_t most_jobs = std::uint64_t{1} << 18;  // of one launch

status lines_need_memory(std::uint64_t bytes) {
    return {-ENOMEM, "the search needs " + format_size(bytes) +
                         " of memory that is not free; use fewer words, or a smaller --cache"};
}

status not_copied() {
    return {-EIO, "the jobs could not be copied to or from the device; is the GPU in order?"};
}

status output_failed(int code) {
    return {code, "the passing file of the lines: " + error_text(code) +
                      "; name a directory with room for the output in TMPDIR"};
}

// A folder for the blocks that are not in order yet. Only the user can enter it: the lines may come
// from files that no other user may read. Removed at the end, however the program ends.
class private_folder {
public:
    private_folder() = default;
    ~private_folder() {
        if (!path_.empty()) ::rmdir(path_.c_str());
    }
    private_folder(const private_folder&) = delete;
    private_folder& operator=(const private_folder&) = delete;

    status make() {
        const char* const wanted = std::getenv("TMPDIR");
        const std::string place = wanted != nullptr && *wanted != '\0' ? wanted : "/tmp";
        std::string name = place + "/penstock-grep.XXXXXX";
        const apps::signal_pause until_noted;
        if (::mkdtemp(name.data()) == nullptr)
            return {-errno, apps::shown(place) + ": " + error_text(-errno) +
                                "; name a directory that can be written in TMPDIR"};
        path_ = name;
        noted_.folder(name);
        return {};
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    apps::leftover noted_;
};

}  // namespace

line_search::line_search(runtime& rt, search_method& by, const dictionary& words,
                         const file_list& files, bool null_ends)
    : rt_(rt),
      by_(by),
      words_(words),
      files_(files.files),
      null_ends_(null_ends),
      view_(std::make_unique<line_view>()) {}

line_search::~line_search() = default;

status line_search::place() {
    apps::device_memory& memory = *by_.memory;
    const file_arrays list(files_);
    const bool placed =
        place_tables(memory, words_.plain_tables, view_->plain) &&
        place_tables(memory, words_.chained_tables, view_->chained) &&
        memory.place(view_->paths, list.paths) && memory.place(view_->path_at, list.path_at) &&
        memory.place(view_->file_bytes, list.bytes) && memory.allocate(view_->shared, 1) &&
        memory.allocate(room_for_jobs_, most_jobs) && memory.allocate(room_for_lines_, most_jobs) &&
        memory.allocate(view_->results, most_jobs) && memory.allocate(view_->status, most_jobs);
    return placed ? status{}
                  : lines_need_memory(list.paths.size() + most_jobs * sizeof(line_result));
}

status line_search::prepare() {
    codes_.assign(files_.size(), 0);
    if (status s = place(); !s) return s;
    view_->jobs = room_for_jobs_;
    view_->lines_before = room_for_lines_;
    view_->has_chained = !words_.chained.empty();
    view_->behind_path = null_ends_ ? '\0' : ':';
    const std::uint64_t share = by_.memory->free_bytes() / 8;
    groups_ = std::clamp<std::uint64_t>(share / sizeof(line_scratch), 1,
                                        std::max<std::uint64_t>(by_.groups, 1));
    return by_.memory->allocate(view_->scratch, groups_)
               ? status{}
               : lines_need_memory(groups_ * sizeof(line_scratch));
}

// Runs these pieces in one launch and takes over what succeeded. `codes`: of each.
status line_search::run_batch(bool counts, const std::vector<std::uint32_t>& places,
                              std::uint64_t groups, std::vector<std::int32_t>& codes,
                              printed_lines& report) {
    apps::device_memory& memory = *by_.memory;
    const std::size_t count = places.size();
    std::vector<job> jobs;
    std::vector<std::uint64_t> lines_before;
    for (const std::uint32_t i : places) {
        jobs.push_back(pieces_[i].where);
        lines_before.push_back(pieces_[i].lines_before);
    }
    codes.assign(count, job_open);
    std::vector<line_result> results(count);
    const shared_words fresh{};
    view_->counts = counts;
    view_->job_count = count;
    if (!memory.upload(room_for_jobs_, jobs.data(), count * sizeof(job)) ||
        !memory.upload(room_for_lines_, lines_before.data(), count * sizeof(std::uint64_t)) ||
        !memory.upload(view_->status, codes.data(), count * sizeof(std::int32_t)) ||
        !memory.upload(view_->results, results.data(), count * sizeof(line_result)) ||
        !memory.upload(view_->shared, &fresh, sizeof fresh))
        return not_copied();
    apps::stopwatch watch;
    const int code = launch_lines(rt_, *view_, std::min<std::uint64_t>(groups, count));
    if (was_interrupted()) return {-ECANCELED, error_text(-ECANCELED)};
    if (code != 0) return apps::launch_error(rt_, code);
    ++report.launches;
    report.launch_seconds += watch.lap();
    if (!memory.download(codes.data(), view_->status, count * sizeof(std::int32_t)) ||
        !memory.download(results.data(), view_->results, count * sizeof(line_result)))
        return not_copied();
    for (std::size_t i = 0; i < count; ++i) {
        const auto output_code = static_cast<int>(results[i].output_code);
        if (codes[i] != 0 && output_code != 0 && !may_pass(output_code))
            return output_failed(output_code);
        if (codes[i] != 0) continue;
        piece& done = pieces_[places[i]];
        done.newlines = results[i].newlines;
        done.last_block = results[i].last_block;
        done.lines = results[i].lines;
    }
    return {};
}

// Runs pieces until each succeeded or failed for good. The first code of a file that is not 0
// stays.
status line_search::run(bool counts, const std::vector<std::uint32_t>& places,
                        printed_lines& report) {
    std::vector<std::uint32_t> waiting(places.rbegin(), places.rend());  // the next at the end
    report.jobs += waiting.size();
    std::uint64_t groups = groups_;
    while (!waiting.empty()) {
        const std::size_t count = std::min<std::size_t>(waiting.size(), most_jobs);
        const std::vector<std::uint32_t> batch(
            waiting.rbegin(), waiting.rbegin() + static_cast<std::ptrdiff_t>(count));
        waiting.resize(waiting.size() - count);
        std::vector<std::int32_t> codes;
        if (status s = run_batch(counts, batch, groups, codes, report); !s) return s;
        std::size_t again = 0;
        bool crowded = false;
        for (std::size_t i = count; i-- > 0;) {
            if (concerns_runtime(codes[i])) return {codes[i], error_text(codes[i])};
            const bool needs_fewer = may_pass(codes[i]) && groups > 1;
            crowded = crowded || needs_fewer;
            std::int32_t& of_file = codes_[pieces_[batch[i]].where.file];
            if (needs_fewer || codes[i] == job_open) {
                waiting.push_back(batch[i]);
                ++again;
            } else if (of_file == 0) {
                of_file = codes[i];
            }
        }
        if (again == count && !crowded)
            return {-EIO, "the search made no progress; please report this"};
        if (crowded)
            groups = std::max<std::uint64_t>(1, std::min<std::uint64_t>(groups, count) / 2);
    }
    return {};
}

// A piece behind the first of its file has to know how many lines come before it.
status line_search::count_lines_before(printed_lines& report) {
    std::vector<std::uint32_t> places;
    for (std::uint32_t i = 0; i + 1 < pieces_.size(); ++i)
        if (pieces_[i + 1].where.begin != 0) places.push_back(i);
    if (status s = run(true, places, report); !s) return s;
    for (std::size_t i = 1; i < pieces_.size(); ++i)
        if (pieces_[i].where.begin != 0)
            pieces_[i].lines_before = pieces_[i - 1].lines_before + pieces_[i - 1].newlines;
    return {};
}

// A block names the one before it, so those of a piece are found from the last to the first.
status line_search::copy_in_order(int blocks, apps::output_file& out, printed_lines& report) const {
    const std::string bad = "the lines that were written could not be read again: ";
    std::vector<char> text(line_scratch::output_bytes);
    for (const piece& p : pieces_) {
        if (codes_[p.where.file] != 0) continue;
        report.lines += p.lines;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;  // place, bytes
        for (std::uint64_t next = p.last_block; next != 0;) {
            block_header header{};
            const std::uint64_t at = next - 1;
            if (const int code = apps::read_all(blocks, &header, sizeof header, at); code != 0)
                return {code, bad + error_text(code)};
            // Blocks are appended one after the other, so those before lie before.
            if (header.bytes > text.size() || header.before > at)
                return {-EIO, bad + "a block is damaged; please report this"};
            parts.emplace_back(at + sizeof header, header.bytes);
            next = header.before;
        }
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
            const int code = apps::read_all(blocks, text.data(), part->second, part->first);
            if (code != 0) return {code, bad + error_text(code)};
            if (status s = out.write(text.data(), part->second); !s) return s;
            report.bytes += part->second;
        }
        if (status s = apps::not_interrupted(); !s) return s;
    }
    return {};
}

status line_search::print(std::uint64_t piece_bytes, apps::output_file& out,
                          printed_lines& report) {
    for (std::uint32_t file = 0; file < files_.size(); ++file)
        for (std::uint64_t at = 0; at < files_[file].bytes; at += piece_bytes)
            pieces_.push_back(
                {{file, 0, at, std::min(files_[file].bytes, at + piece_bytes)}, 0, 0, 0, 0});
    if (pieces_.size() > UINT32_MAX)
        return {-EFBIG, "too many pieces of files for one run; search the files in parts"};
    if (status s = count_lines_before(report); !s) return s;

    private_folder folder;
    if (status s = folder.make(); !s) return s;
    apps::output_file passing;
    if (status s = passing.open_named(folder.path() + "/lines"); !s) return s;
    const std::string& path = passing.passing_path();
    view_->output = rt_.open(path, open_write);
    if (view_->output < 0) return output_failed(view_->output);
    std::vector<std::uint32_t> all(pieces_.size());
    std::iota(all.begin(), all.end(), 0u);
    std::erase_if(all, [this](std::uint32_t i) { return codes_[pieces_[i].where.file] != 0; });
    const status ended = run(false, all, report);
    // Writes back every block; the host reads them from the file.
    const int closed = rt_.close(view_->output);
    if (!ended.ok()) return ended;
    if (closed != 0) return output_failed(closed);
    const apps::unique_fd blocks(apps::open_long(path, O_RDONLY | O_CLOEXEC));
    if (blocks < 0) return output_failed(-errno);
    note_changed(files_, codes_);
    for (std::uint32_t file = 0; file < codes_.size(); ++file)
        if (codes_[file] != 0) report.errors.push_back({file, codes_[file]});
    apps::stopwatch watch;
    const status copied = copy_in_order(blocks, out, report);
    report.join_seconds = watch.lap();
    return copied;
}

namespace {

struct any_word {
    bool seen = false;
    void found(std::uint32_t, std::uint64_t) { seen = true; }
    void zero_byte(std::uint64_t) {}
};

}  // namespace

status print_lines_by_host(const dictionary& words, const file_list& files, bool null_ends,
                           apps::output_file& out, printed_lines& report) {
    const dictionary_ref plain = words.plain_tables.ref(), chained = words.chained_tables.ref();
    for (std::uint32_t i = 0; i < files.files.size(); ++i) {
        const input_file& file = files.files[i];
        std::string text(file.bytes, '\0'), found;
        apps::unique_fd fd;
        int code = open_of_size(file.path.c_str(), file.bytes, fd);
        if (code == 0) code = apps::read_all(fd, text.data(), file.bytes, 0);
        struct stat now {};
        if (code == 0 && (::fstat(fd, &now) != 0 || !has_same_bytes(now, file))) code = -ESTALE;
        if (code != 0) {
            report.errors.push_back({i, code});
            continue;
        }
        std::uint64_t number = 1;
        for (std::size_t at = 0; at < text.size(); ++number) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const text_window line{reinterpret_cast<const unsigned char*>(text.data()) + at, 0,
                                   end - at};
            any_word sink;
            scan(plain, line, 0, line.end, sink);
            if (!words.chained.empty()) scan(chained, line, 0, line.end, sink);
            if (sink.seen) {
                found.append(file.path).append(1, null_ends ? '\0' : ':');
                found.append(std::to_string(number)).append(1, ':');
                found.append(text, at, end - at).append(1, '\n');
                ++report.lines;
            }
            at = end + 1;
        }
        if (status s = out.write(found.data(), found.size()); !s) return s;
        report.bytes += found.size();
        if (status s = apps::not_interrupted(); !s) return s;
    }
    return {};
}

}  // namespace penstock::grep
