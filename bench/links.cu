// Linked caches: all GPUs of the machine read one file, with their caches linked and without.
//
//   R1, R2   random pages of a file of 1.8 caches on all at once, uniform and by Zipf's law
//   R13      the same where the caches together hold nine tenths more than the file; with two GPUs
//            that is R1 and R2
//   R7       the whole file into all caches, and how much of it crosses the bus
//   R12      what linking costs when the runtime is made
//
// Without links each GPU has a runtime of its own. Windows are open on all of them before the time
// begins. Each GPU has a launch of its own; the time is from before the first to after the last,
// and the threads that launch are there before.
#include "links.cuh"

#include "zipf.cuh"

namespace penstock::bench {

namespace {

// What all GPUs read: pages of a file of so many caches, and by which call.
struct reading {
    std::uint64_t page;
    bool zipf;
    double caches;
    bool by_table;  // rows of a page, gathered; else each page by a warp's read

    [[nodiscard]] std::string goal() const { return caches != 1.8 ? "R13" : zipf ? "R2" : "R1"; }
    [[nodiscard]] std::string name(std::uint32_t gpus) const {
        return gpus_text(gpus) + (by_table ? ", rows of a page by a table " : ", random pages ") +
               (zipf ? "by Zipf 0.99" : "uniform") +
               text_of(", file of %g caches, all together", caches);
    }
};

// The table of rows on GPU `gpu` of a side that is linked or not.
struct tables_on_gpus {
    std::vector<std::unique_ptr<table>> all;

    tables_on_gpus(const context& here, const file_on_gpus& on, std::uint64_t page) {
        for (const auto& rt : on.runtimes)
            require(table::make(*rt, rows_of_file(here, page), {}, all.emplace_back()));
    }
    [[nodiscard]] table& of(std::uint32_t gpu) const { return *all[all.size() == 1 ? 0 : gpu]; }
};

// The GPUs' lists, buffers and counts of wrong words.
struct readers {
    const reading& what;
    std::vector<std::unique_ptr<reading_side>> sides;
    std::vector<memory> rows;  // of each GPU, for tables

    readers(std::uint32_t gpus, const reading& r)
        : what(r), sides(sides_for(gpus, count(), r.page)) {
        for (std::uint32_t gpu = 0; r.by_table && gpu < gpus; ++gpu) {
            const on_gpu current(gpu);
            rows.emplace_back(backend::gpu, count() * r.page);
        }
    }
    // Rows lie beside each other in memory; pages that are read share a buffer.
    [[nodiscard]] std::uint64_t count() const {
        return std::min<std::uint64_t>(1u << 20, (what.by_table ? 2 : 16) * gib / what.page);
    }
    void choose(const file_on_gpus& on, std::uint64_t pages, std::uint64_t seed) const {
        for (std::uint32_t gpu = 0; gpu < on.count; ++gpu) {
            auto* const numbers = sides[gpu]->numbers.as<std::int64_t>();
            const std::uint64_t drawn = seed * on.count + gpu + 1;
            if (what.zipf) sides[gpu]->choose(on, gpu, choose_zipf{numbers, pages, drawn, true});
            else sides[gpu]->choose(on, gpu, choose_uniform{numbers, pages, drawn});
        }
    }
    int read(const file_on_gpus& on, const tables_on_gpus* tables, std::uint32_t gpu) const {
        if (tables == nullptr) return sides[gpu]->read(on, gpu);
        const int code = tables->of(gpu).gather(sides[gpu]->numbers.as<std::int64_t>(), count(),
                                                rows[gpu].as<void>());
        const cudaError_t ended = cudaDeviceSynchronize();
        return code < 0 ? code : ended == cudaSuccess ? 0 : -EIO;
    }
    void judge(const file_on_gpus& on, const tables_on_gpus* tables) const {
        if (tables == nullptr) return expect_none_wrong(sides);
        for (std::uint32_t gpu = 0; gpu < on.count; ++gpu) {
            require(launch_on<width::warp>(on.of(gpu), on.place(gpu), count(),
                                           count_wrong_rows{rows[gpu].as<std::uint64_t>(),
                                                            sides[gpu]->numbers.as<std::int64_t>(),
                                                            what.page / 8, sides[gpu]->wrong.as()}),
                    "launch");
            require(tables->of(gpu).check());
            require_none(sides[gpu]->wrong, "words of rows are wrong or were not delivered");
        }
    }
};

// R1, R2, R13.
void working_set(context& here, std::uint32_t gpus, const reading& what) {
    const auto cache = static_cast<std::uint64_t>(static_cast<double>(here.bytes()) / what.caches) /
                       what.page * what.page;
    const std::uint64_t pages = here.bytes() / what.page, warm = warm_runs(what.zipf);
    const options o = options_with(here, what.page, cache);
    const file_on_gpus linked(here, o, gpus, true, true), alone(here, o, gpus, false, true);
    std::unique_ptr<tables_on_gpus> linked_rows, alone_rows;
    if (what.by_table) {
        linked_rows = std::make_unique<tables_on_gpus>(here, linked, what.page);
        alone_rows = std::make_unique<tables_on_gpus>(here, alone, what.page);
    }
    const readers all(gpus, what);
    measured rates;
    statistics before, now;
    for (std::uint64_t repeat = 0; repeat < warm + here.repeats(5); ++repeat) {
        all.choose(linked, pages, repeat);
        const auto seconds_on = [&](const file_on_gpus& on, const tables_on_gpus* tables) {
            return file_on_gpus::seconds(
                gpus, [&](std::uint32_t gpu) { return all.read(on, tables, gpu); });
        };
        const double alone_s = seconds_on(alone, alone_rows.get());
        before = linked.stats(0);
        const stopwatch watch;
        const double linked_s = seconds_on(linked, linked_rows.get());
        const double used = watch.cores();
        now = linked.stats(0);
        if (repeat < warm) continue;
        const std::uint64_t bytes = gpus * all.count() * what.page;
        rates.ours.add(gigabytes_a_second(bytes, linked_s));
        rates.baseline.add(gigabytes_a_second(bytes, alone_s));
        rates.cores.add(used);
    }
    all.judge(linked, linked_rows.get());
    here.add(what.goal(), what.name(gpus), what.page, "GB/s", rates,
             "a runtime for each GPU, no links",
             sources(before, now, all.count()) + after_runs(warm));
}

// R7.
void once_over_the_bus(context& here, std::uint32_t gpus, std::uint64_t page) {
    measured rates;
    double bus_files = 0;
    const options o = options_with(here, page, here.bytes() + here.bytes() / 8);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        double alone_s = 0;
        {
            const file_on_gpus alone(here, o, gpus, false, true);
            alone_s = file_on_gpus::seconds(gpus, [&](std::uint32_t gpu) {
                const std::int64_t brought = alone.of(gpu).prefetch(
                    alone.fd(gpu), 0, static_cast<std::int64_t>(here.bytes()));
                return brought < 0 ? static_cast<int>(brought) : 0;
            });
        }
        const file_on_gpus linked(here, o, gpus, true, true);
        const stopwatch watch;
        require_all(linked.runtimes[0]->prefetch(linked.files[0]), here.bytes(), not_resident);
        const double linked_s = watch.seconds();
        std::uint64_t over_bus = 0;
        for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
            const statistics s = linked.stats(gpu);
            if (s.misses * page < here.bytes()) throw failure(-EIO, "pages are missing");
            over_bus += s.bytes_loaded - s.neighbour_loads * page;
        }
        bus_files = static_cast<double>(over_bus) / static_cast<double>(here.bytes());
        rates.ours.add(gigabytes_a_second(gpus * here.bytes(), linked_s));
        rates.baseline.add(gigabytes_a_second(gpus * here.bytes(), alone_s));
        rates.cores.add(watch.cores(linked_s));
    }
    here.add("R7", gpus_text(gpus) + ", one file into all caches, by prefetch", page, "GB/s", rates,
             "a runtime for each GPU, no links", text_of("%.3f files crossed the bus", bus_files));
}

// R12: with caches of up to 64 GiB, of half of what is free on the first GPU.
void cost_of_linking(context& here, std::uint32_t gpus) {
    std::size_t free = 0, total = 0;
    require_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    options o = here.own_options();
    o.page_bytes = 65536;
    o.cache_bytes = std::min<std::uint64_t>(64 * gib, free / 2) / gib * gib;
    measured rates;
    std::uint64_t linked_bytes = 0, alone_bytes = 0;
    for (std::uint64_t repeat = 0; repeat < 1 + here.repeats(3); ++repeat) {
        double alone_s = 0;
        {
            const stopwatch watch;
            const file_on_gpus alone(here, o, gpus, false, false);
            alone_s = watch.seconds();
            alone_bytes = alone.stats(0).device_bytes;
        }
        const stopwatch watch;
        const file_on_gpus linked(here, o, gpus, true, false);
        const double linked_s = watch.seconds();
        linked_bytes = linked.stats(0).device_bytes;
        if (repeat == 0) continue;  // contexts were made
        rates.ours.add(1e3 * linked_s);
        rates.baseline.add(1e3 * alone_s);
        rates.cores.add(watch.cores(linked_s));
    }
    const double more = static_cast<double>(linked_bytes) - static_cast<double>(alone_bytes);
    here.add("R12",
             gpus_text(gpus) + ", a runtime made and a file opened, caches of " +
                 format_size(*o.cache_bytes),
             o.page_bytes, "ms", rates, "a runtime for each GPU, one after the other",
             text_of("links take %.0f bytes more of a GPU, %.5f of its cache", more,
                     more / static_cast<double>(*o.cache_bytes)));
}

}  // namespace

void links_on_gpus(context& here) {
    const std::uint32_t gpus = gpus_here();
    if (gpus < 2) return here.leave_out("links", "this machine has fewer than two GPUs");
    here.use_file(here.file_bytes(gib));
    std::vector<double> caches = {1.8};
    if (gpus > 2) caches.push_back(0.9 * gpus);
    for (const std::uint64_t page : {std::uint64_t{4096}, std::uint64_t{65536}})
        for (const bool zipf : {false, true})
            for (const bool by_table : {false, true})
                for (const double full : caches)
                    working_set(here, gpus, {page, zipf, full, by_table});
    once_over_the_bus(here, gpus, 65536);
    once_over_the_bus(here, gpus, 4096);
    cost_of_linking(here, gpus);
}

}  // namespace penstock::bench
