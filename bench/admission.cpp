// Which missed pages enter the cache when the others are read through, by simulation.
#include <array>

#include "cases.hpp"
#include "policy/admission.hpp"

namespace penstock::bench {

namespace {

using policy::admission_rule;
using policy::admit;
using policy::found;
using policy::row_trace;

// What a GPU reads in a second: from windows over the bus, and from its memory.
constexpr double bus_bytes_a_second = 50e9, memory_bytes_a_second = 3000e9;
constexpr std::uint64_t row_bytes = 64;

// A rule for a full cache, and the same with each way to fill one.
std::vector<admission_rule> all_rules() {
    static constexpr admission_rule full[] = {
        {"never", admit::never},
        {"1 in 2", admit::sampled, 2},
        {"1 in 4", admit::sampled, 4},
        {"1 in 8", admit::sampled, 8},
        {"1 in 16", admit::sampled, 16},
        {"1 in 32", admit::sampled, 32},
        {"1 in 64", admit::sampled, 64},
        {"1 in 128", admit::sampled, 128},
        {"1 in 256", admit::sampled, 256},
        {"second touch", admit::second_touch, 1},
        {"second touch, 1 in 16 marked", admit::second_touch, 16},
        {"drawn twice, 1 in 1", admit::drawn_twice, 1},
        {"drawn twice, 1 in 4", admit::drawn_twice, 4},
        {"drawn twice, 1 in 16", admit::drawn_twice, 16},
        {"drawn twice, 1 in 32", admit::drawn_twice, 32},
        {"again within 1 epoch", admit::soon_again, 1},
        {"again within 1/2 epoch", admit::soon_again, 2},
        {"again within 1/8 epoch", admit::soon_again, 8},
        {"again within 1/2 epoch, or 1 in 64", admit::soon_again, 2, 0, 1, 64},
        {"again within 1/2 epoch, 1 in 8 of those", admit::soon_again, 2, 0, 8}};
    std::vector<admission_rule> out = {{"always", admit::always}};
    for (const std::uint32_t filling : {0u, 4u, 1u})
        for (admission_rule rule : full) {
            rule.filling = filling;
            out.push_back(rule);
        }
    return out;
}

std::string full_name(const admission_rule& rule) {
    static constexpr const char* filling[] = {"", ", filling all", "", "", ", filling 1 in 4"};
    return rule.name + std::string(filling[rule.filling]);
}

struct cache_shape {
    std::uint32_t rows_a_page, frames;
};

struct played {
    double hit_ratio = 0, admitted = 0;  // of the accesses that are counted
    double times = 0;                    // as fast as reading everything through
    double learned = 0, relearned = 0;   // accesses, from the start and from the change on
};

// Hits and admissions of equal stretches of a trace.
class stretches {
public:
    static constexpr std::uint64_t count = 1024;
    explicit stretches(std::uint64_t length) : length_(length / count) {}

    void add(std::uint64_t access, found end) {
        const std::uint64_t in = std::min(access / length_, count - 1);
        hits_[in] += end == found::hit ? 1 : 0;
        admitted_[in] += end == found::admitted ? 1 : 0;
    }
    [[nodiscard]] double hit_ratio(std::uint64_t begin, std::uint64_t end) const {
        return share(hits_, begin, end);
    }
    [[nodiscard]] double admitted(std::uint64_t begin, std::uint64_t end) const {
        return share(admitted_, begin, end);
    }
    // Accesses from `begin` on until a stretch hits 90 % of what the last quarter up to `end` does.
    [[nodiscard]] double learned(std::uint64_t begin, std::uint64_t end) const {
        const double steady = hit_ratio(end - (end - begin) / 4, end);
        for (std::uint64_t at = begin; at < end; ++at)
            if (hit_ratio(at, at + 1) >= 0.9 * steady)
                return static_cast<double>((at - begin + 1) * length_);
        return static_cast<double>((end - begin) * length_);
    }

private:
    using counters = std::array<std::uint32_t, count>;
    [[nodiscard]] double share(const counters& of, std::uint64_t begin, std::uint64_t end) const {
        double sum = 0;
        for (std::uint64_t at = begin; at < end; ++at) sum += of[at];
        return sum / static_cast<double>((end - begin) * length_);
    }
    std::uint64_t length_;
    counters hits_{}, admitted_{};
};

// A row that is read through crosses the bus, and an admitted page crosses it besides. Where the
// page is the row, or every miss loads (the engine without read through), one copy does both.
double times_through(const admission_rule& rule, const cache_shape& in, double hit,
                     double admitted) {
    const double page_bytes = static_cast<double>(in.rows_a_page) * row_bytes;
    const bool shared = in.rows_a_page == 1 || rule.kind == admit::always;
    const double bus = (1 - hit - (shared ? admitted : 0)) * row_bytes + admitted * page_bytes;
    const double memory = (hit + (rule.kind == admit::always ? admitted : 0)) * row_bytes;
    return row_bytes / bus_bytes_a_second /
           (bus / bus_bytes_a_second + memory / memory_bytes_a_second);
}

// Hit ratio and throughput are those of the last quarter, when the cache has learned.
played play(const admission_rule& rule, const cache_shape& in, const row_trace& trace,
            std::uint64_t seed) {
    policy::gated_clock cache(rule, in.frames, trace.space / in.rows_a_page + 1, seed);
    stretches seen(trace.accesses.size());
    for (std::uint64_t i = 0; i < trace.accesses.size(); ++i)
        seen.add(i, cache.access(trace.accesses[i] / in.rows_a_page));
    constexpr std::uint64_t all = stretches::count;
    played out;
    out.hit_ratio = seen.hit_ratio(all - all / 4, all);
    out.admitted = seen.admitted(all - all / 4, all);
    out.times = times_through(rule, in, out.hit_ratio, out.admitted);
    const bool changes = trace.changes_at != 0;
    out.learned = seen.learned(0, changes ? all / 2 : all);
    if (changes) out.relearned = seen.learned(all / 2, all);
    return out;
}

struct played_figures {
    series hit_ratio, admitted, times, learned, relearned;
    void add(const played& got) {
        hit_ratio.add(got.hit_ratio);
        admitted.add(got.admitted);
        times.add(got.times);
        learned.add(got.learned);
        relearned.add(got.relearned);
    }
};

// Where a trace is played: how much of it the cache holds, and with which pages.
struct scene {
    std::string name;
    cache_shape in;
    std::vector<played_figures> of_rule;
};

void report_scene(context& here, const scene& at, const std::vector<admission_rule>& rules) {
    for (std::size_t r = 0; r < rules.size(); ++r) {
        const played_figures& got = at.of_rule[r];
        std::string note = text_of(
            "hit ratio %.4f, %.2f of 1000 accesses admit, 90 %% of the "
            "hits after %.0f accesses",
            got.hit_ratio.median(), 1000 * got.admitted.median(), got.learned.median());
        if (got.relearned.median() > 0)
            note += text_of(", after the change %.0f", got.relearned.median());
        here.add("read through", "admission, " + at.name + ", " + full_name(rules[r]),
                 at.in.rows_a_page * row_bytes, "times as fast", {got.times, series(1), series(1)},
                 "everything read through", note, "cpu");
    }
}

std::vector<row_trace> make_row_traces(std::uint32_t rows, std::uint64_t length,
                                       std::uint64_t seed) {
    policy::dice from(seed);
    const std::uint32_t cached = rows / 16;
    std::vector<row_trace> out;
    out.push_back({"uniform", rows, rows, policy::make("", length, [&](std::uint64_t) {
                                              return from.below(rows);
                                          }).pages});
    const policy::skewed all(rows, from, policy::zipf_exponent);
    out.push_back({"zipf", rows, rows,
                   policy::make("", length, [&](std::uint64_t) { return all.draw(from); }).pages});
    out.push_back(policy::scan_again("scan of 2 caches", rows, cached * 2, length));
    out.push_back(policy::scan_again("scan of 1.2 caches", rows, cached * 6 / 5, length));
    out.push_back(policy::scan_once_and_zipf(rows, length, from));
    out.push_back(policy::zipf_that_changes(rows, length * 2, from));
    out.push_back(policy::experts(length / 8, from));
    return out;
}

// The settings in which a trace is played.
std::vector<scene> scenes_of(const row_trace& trace) {
    std::vector<scene> out;
    const auto add = [&](std::uint32_t rows_a_page, std::uint32_t frames, const std::string& part) {
        out.push_back(
            {trace.name + ", " + text_of("%u rows a page, cache %s", rows_a_page, part.c_str()),
             {rows_a_page, frames},
             {}});
    };
    if (trace.name == "experts") {
        add(1, 64, "64 of 512");
        add(1, 128, "128 of 512");
        return out;
    }
    for (const std::uint32_t rows_a_page : {1u, 8u}) {
        add(rows_a_page, trace.rows / 16 / rows_a_page, "1/16");
        if (trace.name == "uniform") add(rows_a_page, trace.rows / 2 / rows_a_page, "1/2");
    }
    return out;
}

}  // namespace

void admission_case(context& here) {
    const auto rows = static_cast<std::uint32_t>(here.file_bytes(8 * mib) / row_bytes);
    // 64 for each row, and fewer of a small file, which tests ask for.
    const std::uint64_t length = std::uint64_t{rows} * std::min(rows / 2048, 64u);
    const std::vector<admission_rule> rules = all_rules();
    std::vector<scene> scenes;
    for (std::uint64_t seed = 0; seed < here.repeats(3); ++seed) {
        std::size_t next = 0;
        for (const row_trace& trace : make_row_traces(rows, length, seed))
            for (const scene& at : scenes_of(trace)) {
                if (next == scenes.size()) scenes.push_back(at);
                scenes[next].of_rule.resize(rules.size());
                for (std::size_t r = 0; r < rules.size(); ++r)
                    scenes[next].of_rule[r].add(play(rules[r], at.in, trace, seed));
                ++next;
            }
        here.progress("admission: seed " + std::to_string(seed) + " done");
    }
    for (const scene& at : scenes) report_scene(here, at, rules);
}

}  // namespace penstock::bench
