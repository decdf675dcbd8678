// Joins records with one thread for each part of the files.
#include "records.hpp"

#include <algorithm>
#include <span>

#include "common/threads.hpp"

namespace penstock::grep {

namespace {

// The runs of one file, and where its counts go.
struct file_part {
    std::uint64_t first_run;
    std::uint64_t end_run;
    std::uint64_t at;
    std::uint64_t kept;
};

std::vector<file_part> parts_of(const std::vector<record_run>& runs, std::uint64_t& total) {
    std::vector<file_part> parts;
    total = 0;
    for (std::uint64_t i = 0; i < runs.size(); ++i) {
        if (i == 0 || runs[i].file != runs[i - 1].file) parts.push_back({i, i, total, 0});
        parts.back().end_run = i + 1;
        total += runs[i].count;
    }
    return parts;
}

void join_one(const std::vector<record_run>& runs, file_part& part, big_vector<word_count>& out) {
    std::uint64_t at = part.at;
    for (std::uint64_t i = part.first_run; i < part.end_run; ++i)
        for (const record& r : std::span(runs[i].first, runs[i].count))
            out[at++] = {runs[i].file, r.word, r.count};
    const std::span<word_count> counts(out.data() + part.at, at - part.at);
    std::ranges::sort(counts, {}, &word_count::word);
    for (const word_count& entry : counts) {
        if (part.kept > 0 && counts[part.kept - 1].word == entry.word)
            counts[part.kept - 1].count += entry.count;
        else counts[part.kept++] = entry;
    }
}

}  // namespace

big_vector<word_count> join_records(std::vector<record_run> runs, unsigned threads) {
    std::ranges::sort(runs, {}, &record_run::file);
    std::uint64_t total = 0;
    std::vector<file_part> parts = parts_of(runs, total);
    big_vector<word_count> out(total);
    constexpr std::uint64_t parts_at_once = 64, worth_a_thread = 1 << 16;
    const std::uint64_t helpers = std::min<std::uint64_t>(threads - 1, total / worth_a_thread);
    apps::on_pieces(static_cast<std::uint32_t>(helpers + 1), parts.size(), parts_at_once,
                    [&](std::uint32_t, std::uint64_t first, std::uint64_t count) {
                        for (file_part& part : std::span(parts).subspan(first, count))
                            join_one(runs, part, out);
                        return status{};
                    });
    // What was added up left gaps.
    std::uint64_t kept = 0;
    for (const file_part& part : parts) {
        if (kept != part.at) std::copy_n(out.data() + part.at, part.kept, out.data() + kept);
        kept += part.kept;
    }
    out.resize(kept);
    return out;
}

}  // namespace penstock::grep
