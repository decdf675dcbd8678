#include "records.hpp"

#include <algorithm>
#include <atomic>
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
    std::sort(counts.begin(), counts.end(),
              [](const word_count& a, const word_count& b) { return a.word < b.word; });
    for (const word_count& entry : counts) {
        if (part.kept > 0 && counts[part.kept - 1].word == entry.word)
            counts[part.kept - 1].count += entry.count;
        else counts[part.kept++] = entry;
    }
}

}  // namespace

big_vector<word_count> join_records(std::vector<record_run> runs, unsigned threads) {
    std::sort(runs.begin(), runs.end(),
              [](const record_run& a, const record_run& b) { return a.file < b.file; });
    std::uint64_t total = 0;
    std::vector<file_part> parts = parts_of(runs, total);
    big_vector<word_count> out(total);
    constexpr std::uint64_t parts_at_once = 64, worth_a_thread = 1 << 16;
    std::atomic<std::uint64_t> next{0};
    const auto work = [&](std::uint32_t) {
        for (std::uint64_t first = next.fetch_add(parts_at_once); first < parts.size();
             first = next.fetch_add(parts_at_once))
            for (std::uint64_t i = first;
                 i < std::min<std::uint64_t>(first + parts_at_once, parts.size()); ++i)
                join_one(runs, parts[i], out);
    };
    const auto helpers =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(threads - 1, total / worth_a_thread));
    apps::on_threads(helpers + 1, work);
    // What was added up left gaps.
    std::uint64_t kept = 0;
    for (const file_part& part : parts) {
        if (kept != part.at)
            std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(part.at), part.kept,
                        out.begin() + static_cast<std::ptrdiff_t>(kept));
        kept += part.kept;
    }
    out.resize(kept);
    return out;
}

}  // namespace penstock::grep
