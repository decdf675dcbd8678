// CUB's sum of a file, by iterators over its cache, in one call.
//
//   resident        all of the file in the cache; CUB's sum of the same words in device memory
//   twice the cache the file in the page cache, by windows or by requests; CUB's sum of the same
//                   words in pinned host memory, or the copy engine, whichever is faster
//
// The elements are of 8 bytes, and of 16 and 64, which a transform iterator adds up as they are
// read.
#include <thrust/iterator/transform_iterator.h>

#include "cub_sum.cuh"
#include "penstock/file_iterator.hpp"

namespace penstock::bench {

namespace {

template <int Words>
struct some_words {
    std::uint64_t words[Words];
};

template <int Words>
struct sum_of_words {
    PENSTOCK_HD std::uint64_t operator()(const some_words<Words>& from) const {
        std::uint64_t sum = 0;
        PENSTOCK_UNROLL
        for (int i = 0; i < Words; ++i) sum += from.words[i];
        return evaluated(sum);
    }
};

// Seconds of a sum over the file by elements of so many words.
template <int Words>
double sum_file(const reduction& by, const opened_file& file) {
    file_range<some_words<Words>> range;
    require(file_range<some_words<Words>>::make(*file.rt, file.fd, {}, range));
    return by.seconds(thrust::make_transform_iterator(range.begin(), sum_of_words<Words>{}),
                      range.size());
}
template <>
double sum_file<1>(const reduction& by, const opened_file& file) {
    file_range<std::uint64_t> range;
    require(file_range<std::uint64_t>::make(*file.rt, file.fd, {}, range));
    return by.seconds(range.begin(), range.size());
}

struct iterator_run {
    context& here;
    const opened_file& file;
    std::uint64_t page;
    const reduction& by;

    // `plain` gives the seconds of the baseline, after which the right sum is in `by`.
    template <int Words, typename Plain>
    void compare(const std::string& what, const char* baseline, const Plain& plain) const {
        measured rates;
        const statistics before = file.rt->stats();
        for (std::uint64_t repeat = 0; repeat <= here.repeats(7); ++repeat) {
            const double plain_s = plain();
            const std::uint64_t right = by.sum();
            const stopwatch watch;
            const double ours_s = sum_file<Words>(by, file), used = watch.cores();
            require(file.rt->view_status());
            expect(by.sum() == right, "the sum of the file by CUB is wrong");
            if (repeat == 0) continue;  // loads the kernels
            rates.baseline.add(gigabytes_a_second(file.bytes, plain_s));
            rates.ours.add(gigabytes_a_second(file.bytes, ours_s));
            rates.cores.add(used);
        }
        const statistics now = file.rt->stats();
        const double runs = static_cast<double>(rates.ours.size() + 1),
                     pages = static_cast<double>(file.bytes / page);
        here.add(
            "issue-32", "CUB's sum of a file, " + what + ", elements of " + format_size(8 * Words),
            page, "GB/s", rates, baseline,
            text_of("sums compared; a run loads %.3f of the pages and reads %.1f parts of a "
                    "page past the cache",
                    static_cast<double>(now.misses - before.misses) / runs / pages,
                    static_cast<double>(now.through_reads - before.through_reads) / runs / pages));
    }
};

void resident_sums(context& here, const reduction& by, std::uint64_t page) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(2 * gib));
    const opened_file file =
        here.open({.page_bytes = page, .cache_bytes = bytes + bytes / 8 + 16 * page});
    bring_into_cache(file);
    const memory plain(backend::gpu, bytes);
    fill(file, plain.as());
    const iterator_run run{here, file, page, by};
    const char* const baseline = "CUB's sum of the same words in device memory";
    const auto sum_plain = [&] { return by.seconds(plain.as<const std::uint64_t>(), bytes / 8); };
    const std::string what = format_size(bytes) + " resident";
    run.compare<1>(what, baseline, sum_plain);
    run.compare<2>(what, baseline, sum_plain);
    run.compare<4>(what, baseline, sum_plain);
    run.compare<8>(what, baseline, sum_plain);
}

void sums_past_the_cache(context& here, const reduction& by, std::uint64_t page) {
    const std::uint64_t bytes = here.use_file(2 * here.file_bytes(2 * gib));
    const huge_host_memory pinned(bytes);
    const memory target(backend::gpu, copied_at_once);
    for (const bool windows : {true, false}) {
        const opened_file file = here.open({.page_bytes = page, .cache_bytes = bytes / 2});
        if (windows) open_all_windows(here, file);
        auto* const words = reinterpret_cast<std::uint64_t*>(pinned.get());
        fill(file, words);
        const auto bus = [&] {
            return std::min(seconds_of_copies(pinned.get(), bytes, target),
                            by.seconds(static_cast<const std::uint64_t*>(words), bytes / 8));
        };
        const char* const baseline =
            "the faster of the copy engine and CUB's sum of the same words in pinned memory";
        const iterator_run run{here, file, page, by};
        const std::string what = format_size(bytes) + " of which half fit into the cache, " +
                                 (windows ? "through windows" : "by requests");
        run.compare<2>(what, baseline, bus);
        if (!windows) break;
        run.compare<1>(what, baseline, bus);
        run.compare<8>(what, baseline, bus);
    }
}

}  // namespace

void iterator_on_gpu(context& here) {
    const reduction by;
    for (const std::uint64_t page : here.pages({64 * kib})) {
        resident_sums(here, by, page);
        sums_past_the_cache(here, by, page);
    }
}

}  // namespace penstock::bench
