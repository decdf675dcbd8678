// A region of a file that is not in memory: mapping it, read by the ordinary way and by cuFile in
// turns, and the reads alone.
#include <algorithm>
#include <mutex>

#include "cases.hpp"
#include "penstock/region.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#endif

namespace penstock::bench {

namespace {

class cold_region_case {
public:
    cold_region_case(context& here, std::uint64_t bytes) : here_(here), bytes_(bytes) {
        ordinary_ = make(direct_mode::off);
        if (here.on_gpu()) direct_ = make(direct_mode::on);
    }

    void rows() {
        measured ordinary, by_cufile;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(5); ++repeat) {
            // In turns, so that none always comes first.
            const auto by_host = [&] { fill(*ordinary_, ordinary); };
            const auto straight = [&] {
                if (direct_ != nullptr) fill(*direct_, by_cufile);
            };
            if (repeat % 2 == 0) ordinary.baseline.add(rate_of_reads());
            else straight();
            by_host();
            if (repeat % 2 == 0) straight();
            else ordinary.baseline.add(rate_of_reads());
            if (direct_ != nullptr) by_cufile.baseline.add(ordinary.ours.last());
        }
        if (!here_.is_cold("mapping a cold region", left_)) return;
        const std::string how_cold = text_of(
            "each byte range that was looked at is right; %.2f %% of the file stayed in "
            "the page cache when it was dropped",
            100 * left_);
        here_.add(
            "32.7", "mapping a cold region, read through host memory", 0, "GB/s", ordinary,
            std::string(has_direct_ ? "pread with O_DIRECT alone, " : "buffered pread alone, ") +
                counted(here_.threads(64), "thread"),
            how_cold + (pages_direct_ != 0 ? "" : "; nothing was read by cuFile: " + said()));
        if (pages_direct_ == 0) return;
        here_.add("32.7", "mapping a cold region, read by cuFile", 0, "GB/s", by_cufile,
                  "the same through host memory",
                  said() +
                      text_of("; %.1f %% of the pages came so; ",
                              100.0 * static_cast<double>(pages_direct_) * 4096 /
                                  static_cast<double>(bytes_)) +
                      how_cold);
    }

private:
    std::unique_ptr<runtime> make(direct_mode mode) {
        options o = here_.own_options();
        o.cache_bytes = 64 * mib;
        o.direct_storage = mode;
        o.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            if (line.find("cuFile") != std::string::npos ||
                line.find("straight") != std::string::npos)
                said_ = line.substr(line.find("': ") + 3);
        };
        require(o.check());
        std::unique_ptr<runtime> out;
        require(runtime::make(o, out));
        return out;
    }
    double rate_of_reads() {
        drop();
        const pattern reads = make_pattern(here_, 2 * mib, here_.threads(64), here_.bytes(), true);
        try {
            if (has_direct_) return run_preads(here_.file().path(), reads, true).rate;
        } catch (const failure& ended) {
            if (ended.code != -EINVAL) throw;
            has_direct_ = false;
        }
        return run_preads(here_.file().path(), reads).rate;
    }
    void drop() { left_ = std::max(left_, here_.file().drop_from_page_cache()); }

    // The first fill of a process also loads and opens cuFile: it is in the time of one repeat.
    void fill(runtime& rt, measured& out) {
        drop();
        std::unique_ptr<file_region> region;
        const stopwatch watch;
        require(map_region(rt, here_.file().path(), 0, bytes_, protection::read, {}, region));
        const double seconds = watch.seconds();
        out.add(gigabytes_a_second(bytes_, seconds), watch, seconds);
        pages_direct_ = std::max(pages_direct_, region->traffic().pages_direct);
        look_at(*region);
        require(region->close(), "close");
    }

    // Ends and middles of parts all over the file.
    void look_at(const file_region& in) const {
        constexpr std::uint64_t parts = 64, words = 1024;
        std::vector<std::uint64_t> got(words);
        for (std::uint64_t i = 0; i < parts; ++i) {
            const std::uint64_t first =
                (bytes_ / 8 - words) * i / (parts - 1);  // the last one ends with the file
            const auto* const from = static_cast<const std::uint64_t*>(in.data()) + first;
            copy(got.data(), from, words * 8);
            for (std::uint64_t k = 0; k < words; ++k)
                if (got[k] != mix64(first + k))
                    throw failure(-EIO, "bench: word " + std::to_string(first + k) +
                                            " of a region is not that of its file");
        }
    }
    void copy(void* to, const void* from, std::uint64_t bytes) const {
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            if (cudaMemcpy(to, from, bytes, cudaMemcpyDefault) != cudaSuccess)
                throw failure(-EIO, "bench: a region cannot be read");
            return;
        }
#endif
        std::memcpy(to, from, bytes);
    }
    [[nodiscard]] std::string said() {
        const std::lock_guard lock(mutex_);
        return !here_.on_gpu() ? "it is for GPUs" : said_.empty() ? "it was not asked" : said_;
    }

    context& here_;
    const std::uint64_t bytes_;
    std::mutex mutex_;
    std::string said_;  // of cuFile, by the log
    std::unique_ptr<runtime> ordinary_, direct_;
    std::uint64_t pages_direct_ = 0;
    double left_ = 0;
    bool has_direct_ = true;  // the file system has O_DIRECT
};

}  // namespace

void region_cold(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(4 * gib, 64 * mib));
    if (here.can_be_cold("mapping a cold region")) cold_region_case(here, bytes).rows();
}

}  // namespace penstock::bench
