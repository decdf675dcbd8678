// A region whose pages lie in the cache of a runtime on the same device: what an acquire of all of
// them takes, against copying so many bytes in the device's memory.
//
// Before each acquire another region changes a word of every page, releases and closes, and the
// runtime reads the file, so the pages are in its cache and in no region.
#include <thread>

#include "cases.hpp"
#include "penstock/region.hpp"
#include "region_words.hpp"
#if defined(PENSTOCK_WITH_CUDA)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

class cached_region_case {
public:
    cached_region_case(context& here, std::uint64_t bytes, std::uint64_t page_bytes)
        : here_(here), bytes_(bytes), page_bytes_(page_bytes) {
        // Room for the file as it was before, too.
        rt_ = here.make_runtime(
            {.page_bytes = page_bytes, .cache_bytes = 2 * bytes + 64 * mib, .writable = true});
        others_ = memory(rt_->where(), 8);
        plain_ = memory(rt_->where(), 2 * bytes);
        reader_ = map(protection::read);
    }

    void row() {
        measured rates;
        series from_cache;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(5); ++repeat) {
            change_all();
            const std::uint64_t before = reader_->traffic().pages_from_caches;
            const stopwatch watch;
            const std::int64_t fetched = reader_->acquire();
            const double seconds = watch.seconds();
            expect_pages(pages(), "acquire", fetched);
            const std::uint64_t cached = reader_->traffic().pages_from_caches - before;
            expect(cached >= pages() / 10 * 9, "of " + std::to_string(pages()) + " pages only " +
                                                   std::to_string(cached) + " came from the cache");
            from_cache.add(100.0 * static_cast<double>(cached) / static_cast<double>(pages()));
            run_kernel<width::lane>(*rt_, pages(),
                                    count_other_words{spread(*reader_), others_.as()});
            require_none(others_, "words are not as they were released");
            rates.add(gigabytes_a_second(bytes_, seconds), watch, seconds);
            rates.baseline.add(gigabytes_a_second(bytes_, copy_seconds()));
        }
        here_.add(
            "32.3", "acquire of a region of which all pages are in the runtime's cache",
            page_bytes_, "GB/s", rates, "copying so many bytes in the same memory",
            text_of("%llu pages of 4096, %.1f %% of them from the cache and the others from the "
                    "file, each found as released",
                    static_cast<unsigned long long>(pages()), from_cache.median()));
    }

private:
    [[nodiscard]] std::uint64_t pages() const { return bytes_ / region_page_bytes; }
    [[nodiscard]] std::unique_ptr<file_region> map(protection access) const {
        std::unique_ptr<file_region> out;
        require(map_region(*rt_, here_.file().path(), 0, bytes_, access, {.outside_writers = false},
                           out));
        return out;
    }
    [[nodiscard]] spread_words spread(const file_region& in) const {
        return {static_cast<std::uint64_t*>(in.data()), pages(), pages(), value_};
    }
    void change_all() {
        ++value_;
        const auto writer = map(protection::read_write);
        run_kernel<width::lane>(*rt_, pages(), change_words{spread(*writer)});
        expect_pages(pages(), "release", writer->release());
        require(writer->close(), "close");
        // A file that changed just now may change again without its times showing it.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const int file = rt_->open(here_.file().path());
        require(file, "open");
        require(rt_->prefetch(file, 0, static_cast<std::int64_t>(bytes_)), "prefetch");
        require(rt_->close(file), "close");
    }
    double copy_seconds() {
        std::byte* const to = plain_.as<std::byte>();
        const stopwatch watch;
#if defined(PENSTOCK_WITH_CUDA)
        if (here_.on_gpu()) {
            require_cuda(cudaMemcpy(to, to + bytes_, bytes_, cudaMemcpyDeviceToDevice), "copy");
            require_cuda(cudaDeviceSynchronize(), "copy");
            return watch.seconds();
        }
#endif
        std::memcpy(to, to + bytes_, bytes_);
        return watch.seconds();
    }

    context& here_;
    const std::uint64_t bytes_, page_bytes_;
    std::unique_ptr<runtime> rt_;
    memory others_, plain_;
    std::unique_ptr<file_region> reader_;
    std::uint64_t value_ = 0;
};

}  // namespace

void region_cache(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(1 * gib, 64 * mib));
    for (const std::uint64_t page_bytes : here.pages({4096, 65536}))
        cached_region_case(here, bytes, page_bytes).row();
    here.forget_file();
}

}  // namespace penstock::bench
