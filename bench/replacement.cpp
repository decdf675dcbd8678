// Which page goes: what the cache keeps, and what other policies would, by simulation.
#include <array>
#include <sstream>

#include "cases.hpp"
#include "penstock/write.hpp"
#include "policy/policies.hpp"
#include "policy/traces.hpp"

namespace penstock::bench {

// In which order pages go: a cache that holds pages of a closed file, clean pages and dirty pages,
// each used twice, and then so many others come that all together are 1.25 to 64 times what fits.
// The share of each kind that is left, against what would be left if one page went as readily as
// another.

namespace {

class evict_case {
public:
    // The file's first pages are the clean ones, the next the dirty ones, the rest the others.
    evict_case(context& here, std::uint64_t page, std::uint64_t bytes)
        : here_(here), page_(page), cache_(std::max(bytes / 64, 8 * page)), buffer_(page) {
        here.use_file(bytes);
        kept_ = cache_ / page_ / 4;
        other_.make(here.asked().directory, kept_ * page_);
    }

    void run() {
        for (const double times : {1.25, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0})
            if (pages_of(times) * page_ <= here_.bytes()) rows(times);
    }

private:
    // How far the file is read, so that with the closed file's pages there are so many times as
    // many as fit.
    [[nodiscard]] std::uint64_t pages_of(double times) const {
        return static_cast<std::uint64_t>(times * static_cast<double>(cache_ / page_)) - kept_;
    }

    // Reads or writes `count` pages from the page-th on, `step` apart; what is written are zeros.
    enum class access { read, write };
    void touch(int fd, std::uint64_t first, std::uint64_t count, std::uint64_t step = 1,
               access kind = access::read) {
        const auto bytes = static_cast<std::int64_t>(page_);
        if (kind == access::write) std::fill(buffer_.begin(), buffer_.end(), std::byte{0});
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::int64_t>((first + i * step) * page_);
            if (kind == access::read)
                require_all(read(lane{}, rt_->ref(), fd, buffer_.data(), bytes, at), page_,
                            "reading a page");
            else
                require_all(write(lane{}, rt_->ref(), fd, buffer_.data(), bytes, at), page_,
                            "writing a page");
        }
    }
    // Of every eighth page, so that looking changes little.
    double share_left(int fd, std::uint64_t first) {
        const std::uint64_t step = kept_ < 8 ? 1 : 8, looked = kept_ / step,
                            before = rt_->stats().misses;
        touch(fd, first, looked, step);
        return 1 - static_cast<double>(rt_->stats().misses - before) / static_cast<double>(looked);
    }
    int open(const scratch_file& file, int flags) {
        return static_cast<int>(require(rt_->open(file.path(), flags), "opening a file"));
    }

    // The shares that are left of a closed file's pages, of clean and of dirty ones.
    std::array<double, 3> measure(double times) {
        rt_.reset();
        rt_ = here_.make_runtime({.page_bytes = page_,
                                  .cache_bytes = cache_,
                                  .writable = true,
                                  .write_behind_bytes = cache_});
        const int fd = open(here_.file(), open_read_write), closed = open(other_, open_read);
        for (int round = 0; round < 2; ++round) {
            touch(closed, 0, kept_);
            touch(fd, 0, kept_);
            touch(fd, kept_, kept_, 1, access::write);
        }
        require(rt_->close(closed), "closing");
        touch(fd, 2 * kept_, pages_of(times) - 2 * kept_);
        // Those that are left first: they are looked at without another page coming.
        const double dirty = share_left(fd, kept_), clean = share_left(fd, 0);
        const int again = open(other_, open_read);
        const double of_closed = share_left(again, 0);
        victims_ = rt_->stats().dirty_victims;
        rt_->close(again);
        require(rt_->close(fd), "closing");
        return {of_closed, clean, dirty};
    }

    void rows(double times) {
        static constexpr const char* kinds[] = {"pages of a closed file", "clean pages",
                                                "dirty pages"};
        std::array<measured, 3> left;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const stopwatch watch;
            const std::array<double, 3> shares = measure(times);
            const double seconds = watch.seconds();
            for (std::size_t kind = 0; kind < left.size(); ++kind) {
                left[kind].add(shares[kind], watch, seconds);
                left[kind].baseline.add(1 / times);
            }
        }
        std::ostringstream when;
        when << " left, with " << times << " times as many pages as fit";
        for (std::size_t kind = 0; kind < left.size(); ++kind)
            here_.add("evict", kinds[kind] + when.str(), page_, "hit ratio", left[kind],
                      "were all pages alike",
                      std::to_string(kept_) + " pages of each kind, " + std::to_string(victims_) +
                          " dirty ones written for their frame");
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    const std::uint64_t page_, cache_;
    std::vector<std::byte> buffer_;
    std::uint64_t kept_ = 0, victims_ = 0;
};

}  // namespace

void evict_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib})) {
        evict_case(here, page, here.file_bytes(64 * mib)).run();
        here.forget_file();
    }
}

// Replacement: which page should go. A simulation on one CPU thread of policies over traces, for
// caches of a 64th to a half of the pages, beside the optimum that knows the future.

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
            here.add("issue-3",
                     name + ", cache 1/" + std::to_string(parts[p]) + " of the pages, " +
                         contenders[c].name,
                     0, "hit ratio",
                     {found.hit_ratio[p][c], found.hit_ratio[p][optimum], series(1)},
                     "Belady's optimum",
                     text_of("%u pages, %.2f million accesses a seed, the first quarter not "
                             "counted; %.1f million/s",
                             pages, 1e-6 * length, 1e-6 * found.speed[p][c].median()),
                     "cpu");
    const auto& speed = found.speed[2];
    for (std::size_t c = 0; c < optimum; ++c)
        here.add("issue-3", name + ", speed of the simulation, " + contenders[c].name, 0,
                 "million/s", {speed[c].times(1e-6), speed[engine].times(1e-6), series(1)}, "CLOCK",
                 "cache 1/16 of the pages, one thread", "cpu");
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
