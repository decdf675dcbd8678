// Regions of one file on two GPUs: the second is filled from the memory of the first, against the
// same pages from the file, which is in the page cache.
//
//   R9   acquire of the second after the first released changes of some of the pages
//
// For the baseline the first region is closed before the acquire, so that no other region has the
// pages. Each page is looked at.
#include <utility>

#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/region.hpp"
#include "region_words.hpp"

namespace penstock::bench {

namespace {

class region_pair {
public:
    region_pair(context& here, std::uint32_t reader) : here_(here), reader_(reader) {
        options o = here.own_options();
        o.page_bytes = 65536;
        o.cache_bytes = 64 * mib;
        o.writable = true;
        o.devices = {0, 1};
        require(runtime::make(o, rt_));
        const on_gpu current(reader);
        others_ = memory(backend::gpu, 8);
    }

    void run(protection access, std::initializer_list<double> percents) {
        writer_ = map(0, protection::read_write);
        copy_ = map(reader_, access);
        for (const double percent : percents) row(percent, access);
        copy_.reset();
        writer_.reset();
    }

    // The memory of the region is made in the time too.
    void map_row() {
        measured rates;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            const auto seconds = [&](std::uint64_t from_neighbour) {
                const stopwatch watch;
                copy_ = map(reader_, protection::read);
                const double took = watch.seconds();
                expect_from(from_neighbour, 0);
                copy_.reset();
                return took;
            };
            rates.baseline.add(1e3 * seconds(0));
            writer_ = map(0, protection::read_write);
            const stopwatch watch;
            rates.add(1e3 * seconds(pages()), watch);
            writer_.reset();
        }
        here_.add("R9", "mapping a region of which another GPU has a region", region_page_bytes,
                  "ms", rates, "no other region has the file",
                  "with the making of the region's memory");
    }

private:
    [[nodiscard]] std::uint64_t pages() const { return here_.bytes() / region_page_bytes; }
    [[nodiscard]] std::unique_ptr<file_region> map(std::uint32_t device, protection access) const {
        std::unique_ptr<file_region> out;
        // Only regions write the file.
        require(map_region(*rt_, here_.file().path(), 0, 0, access,
                           {.outside_writers = false, .device = device}, out));
        return out;
    }
    [[nodiscard]] spread_words spread(const file_region& in, std::uint64_t count) const {
        return {static_cast<std::uint64_t*>(in.data()), count, pages(), value_};
    }
    void expect_from(std::uint64_t pages, std::uint64_t before) const {
        const std::uint64_t came = copy_->traffic().pages_from_neighbours - before;
        expect(came == pages, std::to_string(came) + " pages came from the other region, not " +
                                  std::to_string(pages));
    }

    // Seconds of an acquire of `count` changed pages.
    double bring(std::uint64_t count, bool from_neighbour) {
        ++value_;
        require(launch_on<width::lane>(*rt_, 0, count, change_words{spread(*writer_, count)}),
                "kernel");
        expect_pages(count, "release", writer_->release());
        if (!from_neighbour) require(writer_->close(), "close");
        const std::uint64_t before = copy_->traffic().pages_from_neighbours;
        const stopwatch watch;
        const std::int64_t fetched = copy_->acquire();
        const double seconds = watch.seconds();
        cores_ = watch.cores(seconds);
        expect_pages(count, "acquire", fetched);
        expect_from(from_neighbour ? count : 0, before);
        require(launch_on<width::lane>(*rt_, reader_, count,
                                       count_other_words{spread(*copy_, count), others_.as()}),
                "kernel");
        require_none(others_, "words are not as they were released");
        if (!from_neighbour) writer_ = map(0, protection::read_write);
        return seconds;
    }

    void row(double percent, protection access) {
        const auto count = static_cast<std::uint64_t>(percent / 100 * static_cast<double>(pages()));
        if (count == 0) return;
        const std::uint64_t bytes = count * region_page_bytes;
        measured rates;
        for (std::uint64_t repeat = 0; repeat < 1 + here_.repeats(5); ++repeat) {
            const double file_s = bring(count, false), near_s = bring(count, true);
            if (repeat == 0) continue;
            rates.ours.add(gigabytes_a_second(bytes, near_s));
            rates.cores.add(cores_);
            rates.baseline.add(gigabytes_a_second(bytes, file_s));
        }
        here_.add(reader_ == 0 ? "issue-31" : "R9",
                  text_of("acquire of a region %s, %g %% of its pages changed by a region on %s",
                          access == protection::read ? "that is only read" : "that may be written",
                          percent, reader_ == 0 ? "the same GPU" : "another GPU"),
                  region_page_bytes, "GB/s", rates, "the same pages from the file",
                  std::to_string(count) + " pages, each found as released");
    }

    context& here_;
    const std::uint32_t reader_;
    std::unique_ptr<runtime> rt_;
    memory others_;
    std::unique_ptr<file_region> writer_, copy_;
    std::uint64_t value_ = 0;
    double cores_ = 0;
};

}  // namespace

void region_links(context& here) {
    if (gpu_count() < 2) return here.leave_out("regions", "this machine has fewer than two GPUs");
    here.use_file(here.file_bytes(5 * gib));
    {
        region_pair two(here, 1);
        two.map_row();
        two.run(protection::read, {100.0, 10.0, 1.0});
        two.run(protection::read_write, {100.0, 1.0});
    }
    region_pair(here, 0).run(protection::read, {100.0});
    here.forget_file();
}

}  // namespace penstock::bench
