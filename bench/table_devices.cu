// A table's rows gathered by several GPUs at the same time, each for a list of its own, with their
// caches linked: all of them together against one GPU.
//
// The table is of 1.8 caches of a GPU, so two or more hold it together. One GPU with the same cache
// takes the rest over the bus; one that holds the whole table takes nothing. Windows are open in
// all runtimes before the time begins.
#include "cases.hpp"
#include "table_rows.hpp"

#include "links.cuh"
#include "zipf.cuh"

namespace penstock::bench {

namespace {

constexpr std::uint64_t row_bytes = 1024, list_rows = std::uint64_t{1} << 20, lists = 8,
                        all_rows = lists * list_rows;

// What a GPU needs for its lists, in its memory.
struct gathering_gpu {
    apps::gpu_stream stream;
    memory numbers{backend::gpu, all_rows * 8}, out{backend::gpu, list_rows*row_bytes},
        wrong{backend::gpu, 8};

    gathering_gpu() {
        require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    }
    [[nodiscard]] std::int64_t* list(std::uint64_t i) const {
        return numbers.as<std::int64_t>() + i * list_rows;
    }
};
using gathering_gpus = std::vector<std::unique_ptr<gathering_gpu>>;

gathering_gpus gathering_on(std::uint32_t gpus) {
    gathering_gpus out;
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
        const on_gpu current(gpu);
        out.push_back(std::make_unique<gathering_gpu>());
    }
    return out;
}

// A table on the first `count` GPUs.
struct table_on_gpus {
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;

    table_on_gpus(const context& here, std::uint32_t count, std::uint64_t cache_bytes) {
        const table_layout layout = rows_of_file(here, row_bytes);
        options o = options_for(layout, here.own_options());
        o.cache_bytes = cache_bytes;
        o.device = 0;
        o.devices.clear();
        for (std::uint32_t gpu = 0; gpu < count; ++gpu) o.devices.push_back(static_cast<int>(gpu));
        rt = make_on_gpus(o);
        require(table::make(*rt, layout, {}, rows));
        require_all(rows->open_windows(), here.bytes(), "windows; give a smaller --file");
    }
    void choose(const gathering_gpus& by, bool zipf, std::uint64_t seed) const {
        for (std::uint32_t gpu = 0; gpu < rt->device_count(); ++gpu) {
            auto* const numbers = by[gpu]->list(0);
            const std::uint64_t own_seed = seed * most_runtime_devices + gpu + 1;
            require(zipf
                        ? launch_on<width::lane>(*rt, gpu, all_rows,
                                                 choose_zipf{numbers, rows->size(), own_seed, true})
                        : launch_on<width::lane>(*rt, gpu, all_rows,
                                                 choose_uniform{numbers, rows->size(), own_seed}),
                    "launch");
        }
    }
    // GB/s of all together.
    [[nodiscard]] double rate(const gathering_gpus& by) const {
        const double seconds = seconds_together(rt->device_count(), [&](std::uint64_t gpu) {
            const on_gpu current(static_cast<std::uint32_t>(gpu));
            const gathering_gpu& side = *by[gpu];
            for (std::uint64_t i = 0; i < lists; ++i)
                require(rows->gather(
                            side.list(i), list_rows, side.out.as<void>(),
                            {.stream = side.stream, .device = static_cast<std::uint32_t>(gpu)}),
                        "gather");
            require_cuda(cudaStreamSynchronize(side.stream), "gather");
        });
        return gigabytes_a_second(rt->device_count() * all_rows * row_bytes, seconds);
    }
    // The rows of the last lists.
    void expect_right(const gathering_gpus& by) const {
        for (std::uint32_t gpu = 0; gpu < rt->device_count(); ++gpu) {
            const gathering_gpu& side = *by[gpu];
            require(launch_on<width::warp>(
                        *rt, gpu, list_rows,
                        count_wrong_rows{side.out.as<std::uint64_t>(), side.list(lists - 1),
                                         row_bytes / 8, side.wrong.as()}),
                    "launch");
            require_none(side.wrong, "words of rows are wrong or were not delivered");
        }
        require(rows->check());
    }
};

void by_gpus(context& here, std::uint32_t gpus, bool zipf) {
    const std::uint64_t cache = here.bytes() * 10 / 18 / row_bytes * row_bytes;
    const table_on_gpus together(here, gpus, cache), single(here, 1, cache),
        whole(here, 1, here.bytes() + here.bytes() / 8);
    const gathering_gpus by = gathering_on(gpus);
    measured of_single, of_whole;
    statistics before, now;
    const std::uint64_t warm = warm_runs(zipf);
    for (std::uint64_t repeat = 0; repeat < warm + here.repeats(5); ++repeat) {
        together.choose(by, zipf, repeat);
        const double single_rate = single.rate(by);
        single.expect_right(by);
        const double whole_rate = whole.rate(by);
        whole.expect_right(by);
        before = together.rt->stats();
        const stopwatch watch;
        const double rate = together.rate(by);
        const double used = watch.cores();
        now = together.rt->stats();
        together.expect_right(by);
        if (repeat < warm) continue;
        for (measured* const rates : {&of_single, &of_whole}) {
            rates->ours.add(rate);
            rates->cores.add(used);
        }
        of_single.baseline.add(single_rate);
        of_whole.baseline.add(whole_rate);
    }
    const std::string name = "rows of 1 KiB of a table by " + std::to_string(gpus) +
                             " GPUs, a list each, " + (zipf ? "Zipf 0.99" : "uniform") +
                             ", table of 1.8 caches",
                      note = sources(before, now, gpus * all_rows) + after_runs(warm);
    const std::uint64_t page = together.rt->settings().page_bytes;
    here.add("36g", name, page, "GB/s", of_single, "one GPU with the same cache", note);
    here.add("36g", name, page, "GB/s", of_whole, "one GPU that holds the whole table", note);
}

}  // namespace

void tables_on_gpus(context& here) {
    int count = 0;
    cudaGetDeviceCount(&count);
    if (count < 2) return here.leave_out("table-devices", "this machine has fewer than two GPUs");
    here.use_file(here.file_bytes(gib));
    for (std::uint32_t gpus = 2;
         gpus <= std::min(static_cast<std::uint32_t>(count), most_runtime_devices); gpus *= 2)
        for (const bool zipf : {false, true}) by_gpus(here, gpus, zipf);
}

}  // namespace penstock::bench
