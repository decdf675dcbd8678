// Where pages of linked caches should lie, by simulation with the engine's own clock, looks and
// draws.
#include <array>
#include <atomic>

#include "cases.hpp"
#include "common/threads.hpp"
#include "policy/linked_caches.hpp"
#include "policy/shared_reads.hpp"

namespace penstock::bench {

namespace {

using policy::copy_in;
using policy::placement;
using policy::read_law;
using policy::shared_reads;
using policy::source;
using policy::source_shares;

constexpr placement placements[] = {
    {.name = "private", .is_linked = false},
    {.name = "always copied in", .kind = copy_in::always, .marks_replicas = false},
    {.name = "read through only", .kind = copy_in::never},
    {.name = "home by hash", .is_linked = false, .has_homes = true},
    {.name = "the engine's rate, replicas leave first"},
    {.name = "the engine's rate, replicas stay", .marks_replicas = false},
    {.name = "the engine's rate, replicas leave first, windows by draws", .admit_one_in = 4},
    {.name = "1 in 64 from the start", .kind = copy_in::one_in, .n = 64},
    {.name = "1 in 16 from the start", .kind = copy_in::one_in, .n = 16},
    {.name = "1 in 256 from the start", .kind = copy_in::one_in, .n = 256}};
constexpr std::size_t placement_count = std::size(placements), private_caches = 0;

// What a device reads in a second, in GB/s: hits in its memory, over the link, and from the host.
struct bandwidths {
    double hits, link, bus;
};
constexpr std::array<bandwidths, 2> machines = {{{3000, 375, 50}, {2100, 373, 54}}};

// The three at the same time, or one after the other. Real reads lie between.
enum class overlap : std::uint8_t { full, none };
constexpr std::array<overlap, 2> overlaps = {overlap::full, overlap::none};

// The reads that neighbours serve come from a memory that serves hits as well: each device gives
// away as many as it gets.
double rate_of(const source_shares& from, const bandwidths& of, overlap kind) {
    const double link = from.neighbour / of.link, bus = from.host / of.bus;
    if (kind == overlap::none) return 1 / (from.own / of.hits + link + bus);
    return 1 / std::max({(from.own + from.neighbour) / of.hits, link, bus});
}

struct read_scene {
    read_law law;
    double caches_full;  // pages, in frames of one cache
};

std::vector<read_scene> read_scenes(std::uint32_t frames) {
    std::vector<read_scene> out;
    const auto add = [&](std::uint32_t caches, double full, double exponent, double own_share) {
        const auto pages = static_cast<std::uint32_t>(full * frames);
        out.push_back({{caches, pages / caches * caches, exponent, own_share}, full});
    };
    for (const double exponent : {0.0, 0.99}) {
        for (const double full : {0.9, 1.8, 4.0}) add(2, full, exponent, 0);
        for (const double full : {0.9, 1.8, 3.6}) add(4, full, exponent, 0);
        for (const double full : {0.9, 1.8, 7.2, 16.0}) add(8, full, exponent, 0);
    }
    add(2, 1.8, 0.99, 0.8);
    add(8, 7.2, 0.99, 0.8);
    return out;
}

std::string name_of(const read_scene& at) {
    return text_of("neighbours, %u devices, %s%s, %g caches of pages, ", at.law.caches,
                   at.law.exponent == 0 ? "uniform" : "zipf",
                   at.law.own_share == 0 ? "" : ", 4 of 5 in the own part", at.caches_full);
}

// Caches fill and turn over before reads are counted: 100 reads for each frame, and two for each
// page. Then as many again. Fewer with small caches, which tests ask for.
std::uint64_t reads_of(const read_scene& at, std::uint32_t frames) {
    return std::uint64_t{std::min(frames / 32, 100u)} * frames + std::uint64_t{2} * at.law.pages;
}

// Each cache's reader reads in its turn.
using read_list = std::vector<std::uint32_t>;

read_list make_reads(const shared_reads& from, std::uint64_t reads, std::uint64_t seed) {
    policy::dice drawn(seed);
    read_list out;
    out.reserve(2 * reads * from.law().caches);
    for (std::uint64_t i = 0; i < 2 * reads; ++i)
        for (std::uint32_t cache = 0; cache < from.law().caches; ++cache)
            out.push_back(from.draw(cache, drawn));
    return out;
}

source_shares read_all(const placement& rule, const read_law& law, std::uint32_t frames,
                       const read_list& reads, std::uint64_t seed) {
    policy::linked_caches caches(rule, law.caches, frames, law.pages, seed);
    std::array<std::uint64_t, 3> count{};
    std::uint32_t reader = 0;
    for (std::size_t i = 0; i < reads.size(); ++i) {
        const source from = caches.access(reader, reads[i]);
        if (2 * i >= reads.size()) ++count[static_cast<std::size_t>(from)];
        reader = reader + 1 == law.caches ? 0 : reader + 1;
    }
    const double all = static_cast<double>(reads.size() - reads.size() / 2);
    return {static_cast<double>(count[0]) / all, static_cast<double>(count[1]) / all,
            static_cast<double>(count[2]) / all};
}

// Tried, not solved: from no replica to replicas in all frames.
std::vector<source_shares> static_placements(const shared_reads& reads, std::uint32_t frames) {
    constexpr std::uint32_t steps = 128;
    std::vector<source_shares> out;
    for (std::uint32_t step = 0; step <= steps; ++step)
        out.push_back(policy::place_statically(
            reads, frames, static_cast<std::uint32_t>(std::uint64_t{frames} * step / steps)));
    return out;
}

// A series for each form of the model.
using rates = std::array<std::array<series, overlaps.size()>, machines.size()>;

struct played_scene {
    std::array<rates, placement_count> of_placement;
    rates best;          // of the static placements, in each form of the model
    rates best_in_turn;  // of the static placement that is best if nothing overlaps
    std::array<std::array<series, 3>, placement_count> shares;

    void add(std::size_t p, const source_shares& got) {
        shares[p][0].add(got.own);
        shares[p][1].add(got.neighbour);
        shares[p][2].add(got.host);
        for (std::size_t m = 0; m < machines.size(); ++m)
            for (std::size_t o = 0; o < overlaps.size(); ++o)
                of_placement[p][m][o].add(rate_of(got, machines[m], overlaps[o]));
    }
    void add_best(const std::vector<source_shares>& tried) {
        const auto best_of = [&](const bandwidths& machine, overlap kind) {
            return *std::max_element(
                tried.begin(), tried.end(), [&](const source_shares& a, const source_shares& b) {
                    return rate_of(a, machine, kind) < rate_of(b, machine, kind);
                });
        };
        for (std::size_t m = 0; m < machines.size(); ++m) {
            const source_shares in_turn = best_of(machines[m], overlap::none);
            for (std::size_t o = 0; o < overlaps.size(); ++o) {
                const source_shares most = best_of(machines[m], overlaps[o]);
                best[m][o].add(rate_of(most, machines[m], overlaps[o]));
                best_in_turn[m][o].add(rate_of(in_turn, machines[m], overlaps[o]));
            }
        }
    }
};

// The placements are played by as many threads as there are processors.
played_scene play_scene(const context& here, const read_scene& at, std::uint32_t frames) {
    played_scene out;
    for (std::uint64_t seed = 0; seed < here.repeats(2); ++seed) {
        const shared_reads wanted(at.law, seed);
        out.add_best(static_placements(wanted, frames));
        const read_list reads = make_reads(wanted, reads_of(at, frames), seed);
        std::array<source_shares, placement_count> got;
        std::atomic<std::size_t> next{0};
        apps::on_threads(static_cast<std::uint32_t>(here.host_threads()), [&](std::uint32_t) {
            for (std::size_t p = next++; p < placement_count; p = next++)
                got[p] = read_all(placements[p], at.law, frames, reads, seed);
        });
        for (std::size_t p = 0; p < placement_count; ++p) out.add(p, got[p]);
    }
    return out;
}

void report_row(context& here, const std::string& name, const played_scene& got, std::size_t p,
                std::size_t m, std::size_t o) {
    const auto& [own, neighbour, host] = got.shares[p];
    const series& rate = got.of_placement[p][m][o];
    const double in_turn = got.best_in_turn[m][o].median(),
                 alone = got.of_placement[private_caches][m][o].median();
    here.add("R13",
             name + placements[p].name +
                 text_of(", %s at %g, %g and %g",
                         overlaps[o] == overlap::full ? "overlapped" : "in turn", machines[m].hits,
                         machines[m].link, machines[m].bus),
             std::uint64_t{1} << policy::linked_caches::page_shift, "GB/s",
             {rate, got.best[m][o], series(1)}, "the best static placement that was tried",
             text_of("own %.4f, neighbour %.4f, host %.4f; %.3f of the static placement that is "
                     "best in turn; %.2f times private",
                     own.median(), neighbour.median(), host.median(), rate.median() / in_turn,
                     rate.median() / alone),
             "cpu");
}

void report_reads(context& here, const read_scene& at, const played_scene& got) {
    for (std::size_t p = 0; p < placement_count; ++p)
        for (std::size_t m = 0; m < machines.size(); ++m)
            for (std::size_t o = 0; o < overlaps.size(); ++o)
                report_row(here, name_of(at), got, p, m, o);
}

}  // namespace

void neighbours_case(context& here) {
    const auto frames =
        static_cast<std::uint32_t>(here.file_bytes(16 * mib) >> policy::linked_caches::page_shift);
    for (const read_scene& at : read_scenes(frames)) {
        report_reads(here, at, play_scene(here, at, frames));
        here.progress(name_of(at) + "done");
    }
}

}  // namespace penstock::bench
