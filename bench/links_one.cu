// Linked caches, one GPU reading: from a neighbour, and what links cost where none has the page.
//
//   R3       pages that the other GPU holds, against a plain kernel over the other GPU's memory
//   R5, R6   pages of the own cache, and pages that none has: what links cost
//
// Windows are open before the time begins, but for R6's requests.
#include "links.cuh"

#include "table_plain.cuh"

namespace penstock::bench {

namespace {

// A group brings a piece of the file in; GPU d begins at its share of the file.
struct bring_pieces {
    int fd;
    std::uint64_t pieces, piece_bytes, first;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        const std::uint64_t piece = (i + first) % pieces;
        prefetch(g, fs, fd, static_cast<std::int64_t>(piece * piece_bytes),
                 static_cast<std::int64_t>(piece_bytes));
    }
};

// Plain memory of that GPU.
memory filled_on(std::uint32_t gpu, std::uint64_t bytes) {
    const on_gpu owner(gpu);
    memory out(backend::gpu, bytes);
    out.fill(1, bytes);
    require_cuda(cudaDeviceSynchronize(), "fill");
    return out;
}

// R3: by tables of rows of a page. The neighbour holds the first part of the file, and the reader's
// cache is full of the second part before each run, so it brings in one page in 64 and drops one.
void from_next_door(context& here, std::uint64_t page) {
    const table_layout layout = rows_of_file(here, page);
    const std::uint64_t part = here.bytes() / 2;
    options o = options_with(here, page, part);
    o.devices = {0, 1};
    const auto rt = make_on_gpus(o);
    const shared_file file = rt->open_everywhere(here.file().path());
    require(file.code(), "open");
    require_all(rt->prefetch(file.of(rt->ref(0)), 0, part), part, not_resident);
    std::unique_ptr<table> rows;
    require(table::make(*rt, layout, {}, rows));
    const std::uint64_t count = std::min<std::uint64_t>(1u << 21, gib / page),
                        piece = std::max<std::uint64_t>(page, 256 * kib), pieces = part / piece;
    const memory far = filled_on(0, part);
    const on_gpu reader(1);
    const memory out(backend::gpu, count * page), wrong(backend::gpu, 8);
    const reading_side side{count, page};
    auto* const numbers = side.numbers.as<std::int64_t>();
    measured by_table, by_read;
    statistics before, now;
    const auto choose = [&](std::uint64_t seed) {
        require(launch_on<width::lane>(*rt, 1, count, choose_uniform{numbers, part / page, seed}),
                "launch");
        require(launch_on<width::warp>(
                    *rt, 1, pieces, bring_pieces{file.of(rt->ref(1)), 2 * pieces, piece, pieces}),
                "launch");
    };
    const auto plain_seconds = [&] {
        return kernel_seconds(
            [&] { launch_plain(far.as<std::byte>(), page, numbers, count, out.as<void>()); });
    };
    for (std::uint64_t repeat = 0; repeat < 1 + here.repeats(7); ++repeat) {
        choose(2 * repeat + 1);
        const double plain_s = plain_seconds();
        out.fill(0xff, count * page);
        before = rt->stats(1);
        const double table_s = kernel_seconds(
            [&] { require(rows->gather(numbers, count, out.as<void>()), "gather"); });
        now = rt->stats(1);
        require(launch_on<width::warp>(
                    *rt, 1, count,
                    count_wrong_rows{out.as<std::uint64_t>(), numbers, page / 8, wrong.as()}),
                "launch");
        require(rows->check());
        require_none(wrong, "words of rows are wrong or were not delivered");
        choose(2 * repeat + 2);
        const double plain_again_s = plain_seconds();
        const stopwatch watch;
        require(launch_on<width::warp>(
                    *rt, 1, count / side.a_group,
                    read_listed{file.of(rt->ref(1)), numbers, side.to.as<std::byte>(), page,
                                side.a_group, side.wrong.as()}),
                "launch");
        const double read_s = watch.seconds();
        require_none(side.wrong, "pages are wrong or were not read");
        if (repeat == 0) continue;
        by_table.ours.add(gigabytes_a_second(count * page, table_s));
        by_table.baseline.add(gigabytes_a_second(count * page, plain_s));
        by_read.ours.add(gigabytes_a_second(count * page, read_s));
        by_read.baseline.add(gigabytes_a_second(count * page, plain_again_s));
    }
    const char* const plain = "plain kernel over the other GPU's memory";
    here.add("R3", "rows of a page that the other GPU holds, by a table", page, "GB/s", by_table,
             plain, sources(before, now, count));
    here.add("R3", "pages that the other GPU holds, each read by a warp", page, "GB/s", by_read,
             plain, "with the launch in the time");
}

// R5, R6: one GPU reads, and the others hold nothing.
void alone_among(context& here, std::uint64_t page, bool hits, bool windows) {
    const std::uint64_t cache = hits ? here.bytes() + here.bytes() / 8 : here.bytes() / 16,
                        reads = windows || hits ? std::uint64_t{1} << 20 : std::uint64_t{1} << 16;
    const std::uint32_t gpus = gpus_here();
    const file_on_gpus linked(here, options_with(here, page, cache), gpus, true, windows),
        alone(here, options_with(here, page, cache), 1, false, windows);
    const auto sides = sides_for(1, reads, page);
    for (const file_on_gpus* const on : {&linked, &alone})
        if (hits)
            require_all(on->of(0).prefetch(on->fd(0), 0, here.bytes()), here.bytes(), not_resident);
    measured rates;
    for (std::uint64_t repeat = 0; repeat < 2 + here.repeats(9); ++repeat) {
        sides[0]->choose(
            linked, 0,
            choose_uniform{sides[0]->numbers.as<std::int64_t>(), here.bytes() / page, repeat + 1});
        const auto seconds_on = [&](const file_on_gpus& on) {
            return file_on_gpus::seconds(
                1, [&](std::uint32_t gpu) { return sides[gpu]->read(on, gpu); });
        };
        // In turns, so that neither always comes first.
        double linked_s = 0, alone_s = 0;
        if (repeat % 2 == 0) linked_s = seconds_on(linked);
        alone_s = seconds_on(alone);
        if (repeat % 2 != 0) linked_s = seconds_on(linked);
        if (repeat < 2) continue;
        rates.ours.add(gigabytes_a_second(reads * page, linked_s));
        rates.baseline.add(gigabytes_a_second(reads * page, alone_s));
        rates.cores.add(0);
    }
    expect_none_wrong(sides);
    here.add(hits ? "R5" : "R6",
             gpus_text(gpus) + " linked, one reads, " +
                 (hits      ? "pages of its own cache"
                  : windows ? "pages that none holds, through windows, cache 1/16"
                            : "pages that none holds, by request, cache 1/16"),
             page, "GB/s", rates, "the same without links", "");
}

}  // namespace

void links_for_one_reader(context& here) {
    if (gpus_here() < 2) return here.leave_out("links-one", "this machine has fewer than two GPUs");
    here.use_file(here.file_bytes(gib));
    for (const std::uint64_t page : {std::uint64_t{512}, std::uint64_t{4096}, std::uint64_t{65536}})
        from_next_door(here, page);
    alone_among(here, 4096, true, false);
    alone_among(here, 4096, false, true);
    alone_among(here, 65536, false, false);
}

}  // namespace penstock::bench
