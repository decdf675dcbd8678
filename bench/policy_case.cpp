// Replacement: which page should go. A simulation on one CPU thread of policies over traces, for
// caches of a 64th to a half of the pages, beside the optimum that knows the future.
#include <array>

#include "cases.hpp"
#include "policy/policies.hpp"
#include "policy/traces.hpp"

namespace penstock::bench {

namespace {

using policy::trace;

struct outcome {
    double hit_ratio = 0;
    double accesses_a_second = 0;
};

// The first quarter fills the cache and is not counted.
template <typename Policy>
outcome simulate(Policy cache, const std::vector<std::uint32_t>& pages) {
    const std::size_t warm = pages.size() / 4;
    for (std::size_t i = 0; i < warm; ++i) cache.access(pages[i]);
    std::uint64_t hits = 0;
    const stopwatch watch;
    for (std::size_t i = warm; i < pages.size(); ++i) hits += cache.access(pages[i]) ? 1 : 0;
    const double seconds = watch.seconds(), counted = static_cast<double>(pages.size() - warm);
    return {static_cast<double>(hits) / counted, counted / seconds};
}

using page_list = std::vector<std::uint32_t>;

struct contender {
    const char* name;
    outcome (*run)(std::uint32_t frames, std::uint32_t pages, const page_list& trace);
};

// A policy that is made for so many frames and pages, and what else it needs: the engine's number
// of shards for so many frames, and more.
template <typename Policy>
outcome plain(std::uint32_t frames, std::uint32_t pages, const page_list& trace) {
    return simulate(Policy(frames, pages), trace);
}
template <typename Policy, auto... More>
outcome sharded(std::uint32_t frames, std::uint32_t pages, const page_list& trace) {
    return simulate(Policy(frames, pages, policy::engine_shards(frames), More...), trace);
}
outcome optimal(std::uint32_t frames, std::uint32_t pages, const page_list& trace) {
    return simulate(policy::belady(frames, pages, trace), trace);
}

constexpr std::array<contender, 8> contenders = {
    {{"FIFO", plain<policy::fifo>},
     {"CLOCK", sharded<policy::clock>},
     {"CLOCK, used at load", sharded<policy::clock, policy::at_load::used>},
     {"SIEVE", plain<policy::sieve>},
     {"SIEVE in shards", sharded<policy::queued_sieve>},
     {"S3-FIFO", plain<policy::s3_fifo>},
     {"LRU", plain<policy::lru>},
     {"Belady", optimal}}};
constexpr std::size_t optimum = contenders.size() - 1, engine = 1;

constexpr std::array<std::uint32_t, 6> parts = {64, 32, 16, 8, 4, 2};

struct figures_of_trace {
    std::string name;
    std::array<std::array<series, contenders.size()>, parts.size()> hit_ratio, speed;
};

void report(context& here, const figures_of_trace& found, std::uint32_t pages,
            std::uint64_t length) {
    const std::string name = "policy, " + found.name;
    for (std::size_t p = 0; p < parts.size(); ++p)
        for (std::size_t c = 0; c < optimum; ++c)
            here.add({"issue-3",
                      name + ", cache 1/" + std::to_string(parts[p]) + " of the pages, " +
                          contenders[c].name,
                      0,
                      "hit ratio",
                      {found.hit_ratio[p][c], found.hit_ratio[p][optimum], series(1)},
                      "Belady's optimum",
                      text_of("%u pages, %.2f million accesses a seed, the first quarter not "
                              "counted; %.1f million/s",
                              pages, 1e-6 * static_cast<double>(length),
                              1e-6 * found.speed[p][c].median()),
                      "cpu"});
    const auto& speed = found.speed[2];
    for (std::size_t c = 0; c < optimum; ++c)
        here.add({"issue-3",
                  name + ", speed of the simulation, " + contenders[c].name,
                  0,
                  "million/s",
                  {speed[c].times(1e-6), speed[engine].times(1e-6), series(1)},
                  "CLOCK",
                  "cache 1/16 of the pages, one thread",
                  "cpu"});
}

}  // namespace

void policy_case(context& here) {
    const auto pages = static_cast<std::uint32_t>(here.file_bytes(256 * mib) / 4096);
    const std::uint64_t length = std::uint64_t{pages} * 16;
    std::vector<figures_of_trace> all;
    for (std::uint64_t seed = 0; seed < here.repeats(3); ++seed) {
        const std::vector<trace> traces = policy::make_traces(pages, length, seed);
        all.resize(traces.size());
        for (std::size_t t = 0; t < traces.size(); ++t) {
            all[t].name = traces[t].name;
            for (std::size_t p = 0; p < parts.size(); ++p)
                for (std::size_t c = 0; c < contenders.size(); ++c) {
                    const outcome got = contenders[c].run(pages / parts[p], pages, traces[t].pages);
                    all[t].hit_ratio[p][c].add(got.hit_ratio);
                    all[t].speed[p][c].add(got.accesses_a_second);
                }
        }
        here.progress("policy: seed " + std::to_string(seed) + " done");
    }
    for (const figures_of_trace& found : all) report(here, found, pages, length);
}

}  // namespace penstock::bench
