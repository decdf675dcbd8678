#include "count_files.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <thread>

#include "grep_buffers.hpp"

namespace penstock::grep {

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
    apps::big_vector<record> first_records_, second_records_;
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
