// Merge of write-shared pages by CPU threads: two changed copies of each page against its pristine
// copy, into the page; and writable mappings of cached pages, whose comparison is the same work.
// Baseline: copying as many pages.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "common/threads.hpp"
#include "merge_pages.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/merge.hpp"

namespace penstock::bench {

namespace {

template <typename Work>
double seconds_by_all(std::uint64_t threads, std::uint64_t pages, const Work& work) {
    const stopwatch watch;
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        for (std::uint64_t page = pages * t / threads; page < pages * (t + 1) / threads; ++page)
            work(page);
    });
    return watch.seconds();
}

}  // namespace

status merge_on_cpu(context& here) {
    const std::uint64_t pages = here.file_bytes(256 * mib) / merge_page_bytes,
                        threads = here.threads(std::max(1u, std::thread::hardware_concurrency()));
    merge_input input(pages);
    series merges, copies, cores;
    for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
        input.begin();
        copies.add(1e6 *
                   seconds_by_all(threads, pages,
                                  [&](std::uint64_t i) {
                                      std::memcpy(input.spare(i), input.pristine(i),
                                                  merge_page_bytes);
                                  }) /
                   static_cast<double>(pages));
        const stopwatch watch;
        merges.add(1e6 *
                   seconds_by_all(threads, pages,
                                  [&](std::uint64_t i) {
                                      merge(lane{}, input.into(i), input.first(i),
                                            input.pristine(i), merge_page_bytes);
                                      merge(lane{}, input.into(i), input.second(i),
                                            input.pristine(i), merge_page_bytes);
                                  }) /
                   static_cast<double>(2 * pages));
        cores.add(watch.cores(watch.seconds()));
        if (!input.is_merged())
            return {-EIO, "merged pages lack a change, or have one that no writer made"};
    }
    return here.add({"S10", "merge of a page of 4 KiB, " + std::to_string(threads) + " threads", "",
                     merge_page_bytes, merges, "us", "copying a page", copies, cores,
                     "two writers a page, every eighth byte each"});
}

}  // namespace penstock::bench
