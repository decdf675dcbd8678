// Gather of rows from host threads. The way of a GPU through it is in tests/device/gather_test.cu.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "penstock/engine/invariants.hpp"
#include "penstock/group/racing_lane.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t size = 200 * page + 1003;

class gathers : public testing::Test {
protected:
    gathers() : bytes(pattern(7, size)) {
        write_file(folder / "data", bytes);
        options o = small_options(folder);  // 64 frames for 201 pages
        o.frame_wait_ms = 5000;
        start(o);
    }
    void start(const options& o) {
        rt = make_runtime(o);
        ref = rt->ref();
        fd = rt->open("data");
    }
    [[nodiscard]] std::vector<std::uint64_t> random_indices(std::uint64_t count, std::uint64_t rows,
                                                            std::uint64_t seed) const {
        std::vector<std::uint64_t> out(count);
        for (std::uint64_t i = 0; i < count; ++i) out[i] = mix64(seed * 1000003 + i) % rows;
        return out;
    }
    // Gathers into memory with a margin on both sides, which must stay as it was.
    template <typename Group>
    void expect_rows(const Group& g, const row_shape& shape,
                     const std::vector<std::uint64_t>& indices) {
        const row_view rows(ref, fd, shape);
        const std::uint64_t wanted = indices.size() * shape.row_bytes, margin = 64;
        std::vector<std::uint8_t> out(wanted + 2 * margin, 0xa5);
        ASSERT_EQ(gather(g, rows, indices.data(), indices.size(), out.data() + margin),
                  static_cast<std::int64_t>(indices.size()));
        expect_bytes(shape, indices, out.data() + margin);
        for (std::uint64_t i = 0; i < margin; ++i)
            ASSERT_TRUE(out[i] == 0xa5 && out[margin + wanted + i] == 0xa5) << "wrote outside";
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    }
    void expect_bytes(const row_shape& shape, const std::vector<std::uint64_t>& indices,
                      const std::uint8_t* out) const {
        const std::uint64_t stride = shape.stride_bytes != 0 ? shape.stride_bytes : shape.row_bytes;
        for (std::uint64_t i = 0; i < indices.size(); ++i)
            ASSERT_EQ(
                std::memcmp(out + i * shape.row_bytes,
                            bytes.data() + shape.first_byte + indices[i] * stride, shape.row_bytes),
                0)
                << "row " << indices[i] << " of " << shape.row_bytes << " bytes at place " << i;
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
    runtime_ref ref{};
};

}  // namespace

// Rows within pages, across them, with gaps, overlapping, of one byte, longer than a page, longer
// than a window of parts.
TEST_F(gathers, random_rows_of_many_shapes_with_a_cache_too_small_for_them) {
    for (const row_shape shape : {row_shape{64, 0, 0},
                                  {512, 0, 0},
                                  {100, 0, 0},
                                  {4096, 0, 0},
                                  {1000, 1024, 24},
                                  {96, 16, 1},
                                  {1, 0, 0},
                                  {3, 7, 5},
                                  {5000, 0, 0},
                                  {40 * page, page, 17},
                                  {100 * page + 1, 3 * page + 1, 9}}) {
        const row_view rows(ref, fd, shape);
        const std::uint64_t stride = shape.stride_bytes != 0 ? shape.stride_bytes : shape.row_bytes;
        ASSERT_EQ(rows.size(), (size - shape.first_byte - shape.row_bytes) / stride + 1);
        const std::uint64_t count = shape.row_bytes > 10 * page ? 20 : 700;
        expect_rows(lane{}, shape, random_indices(count, rows.size(), shape.row_bytes));
        expect_rows(racing_lane{}, shape, random_indices(count, rows.size(), shape.row_bytes + 1));
    }
    EXPECT_GT(rt->stats().evictions, 1000u);
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr)
        << "a pin or a frame was left";
}

TEST_F(gathers, the_same_row_many_times_is_loaded_once) {
    const std::vector<std::uint64_t> indices(500, 77);
    expect_rows(lane{}, {.row_bytes = 128}, indices);
    EXPECT_EQ(rt->stats().misses, 1u);
    std::vector<std::uint64_t> pairs;
    for (std::uint64_t i = 0; i < 64; ++i) pairs.push_back(2976 + i / 2 % 16);
    expect_rows(lane{}, {.row_bytes = 128}, pairs);
    EXPECT_EQ(rt->stats().misses, 2u) << "16 rows of 128 bytes that lie in one page";
}

TEST_F(gathers, the_last_whole_row_and_not_the_piece_behind_it) {
    const row_view rows(ref, fd, {.row_bytes = 512});
    ASSERT_EQ(rows.size(), size / 512);
    expect_rows(lane{}, {.row_bytes = 512}, {rows.size() - 1, 0, rows.size() - 1});
    expect_rows(lane{}, {.row_bytes = 1003, .first_byte = 200 * page}, {0});
    std::vector<std::uint8_t> out(512, 9);
    const std::uint64_t behind = rows.size();
    EXPECT_EQ(gather(lane{}, rows, &behind, 1, out.data()), -ERANGE);
    EXPECT_EQ(row_view(ref, fd, {.row_bytes = 1004, .first_byte = 200 * page}).size(), 0u);
    EXPECT_EQ(row_view(ref, fd, {.row_bytes = size + 1}).size(), 0u);
    EXPECT_EQ(row_view(ref, fd, {.row_bytes = size}).size(), 1u);
    EXPECT_EQ(row_view(ref, fd, {.row_bytes = 1, .first_byte = ~std::uint64_t{0}}).size(), 0u);
}

// Eight requests are posted at a time, so service threads find some together: unless they run
// between any two posts, as beside a busy program.
TEST_F(gathers, missing_pages_are_loaded_together) {
    std::vector<std::uint64_t> indices;
    for (std::uint64_t i = 0; i < 40; ++i)
        indices.push_back(i * 8 + 3);  // each in a page of its own
    std::uint64_t fewest_batches = 40;
    for (int attempt = 0; attempt < 100 && fewest_batches >= 40; ++attempt) {
        start(small_options(folder));
        expect_rows(lane{}, {.row_bytes = 512}, indices);
        const statistics s = rt->stats();
        ASSERT_EQ(s.misses, 40u);
        fewest_batches = std::min(fewest_batches, s.batches);
    }
    EXPECT_LT(fewest_batches, 40u);
}

TEST_F(gathers, an_index_outside_is_named_and_nothing_is_written_behind_it) {
    const row_view rows(ref, fd, {.row_bytes = 256});
    for (const std::uint64_t outside : {rows.size(), ~std::uint64_t{0}, std::uint64_t{1} << 56}) {
        std::vector<std::uint64_t> indices = random_indices(50, rows.size(), 3);
        indices[31] = outside;
        std::vector<std::uint8_t> out(51 * 256, 0xa5);
        EXPECT_EQ(gather(lane{}, rows, indices.data(), 50, out.data()), -ERANGE);
        for (std::uint64_t i = 50 * 256; i < out.size(); ++i) ASSERT_EQ(out[i], 0xa5);
        const status s = rt->view_status();
        EXPECT_EQ(s.code, -ERANGE);
        EXPECT_NE(s.message.find(folder / "data"), std::string::npos) << s.message;
        EXPECT_NE(s.message.find("row " + std::to_string(outside) + ":"), std::string::npos)
            << s.message;
        rt->clear_view_status();
    }
}

TEST_F(gathers, wrong_arguments) {
    const row_view rows(ref, fd, {.row_bytes = 16});
    const std::uint64_t index = 0;
    std::uint8_t out[16] = {};
    EXPECT_EQ(gather(lane{}, rows, nullptr, 0, nullptr), 0) << "an empty batch";
    EXPECT_EQ(gather(lane{}, rows, nullptr, 1, out), -EINVAL);
    EXPECT_EQ(gather(lane{}, rows, &index, 1, nullptr), -EINVAL);
    EXPECT_EQ(gather(lane{}, rows, &index, std::uint64_t{1} << 60, out), -EINVAL);
    EXPECT_EQ(gather(lane{}, row_view(ref, fd, {.row_bytes = 0}), &index, 1, out), -EINVAL);
    EXPECT_EQ(gather(lane{}, row_view(ref, fd + 1, {.row_bytes = 16}), &index, 1, out), -EBADF);
    EXPECT_EQ(gather(lane{}, row_view(ref, -1, {.row_bytes = 16}), &index, 1, out), -EBADF);
}

TEST_F(gathers, a_file_that_shrank_is_stale_and_the_row_is_named) {
    start(small_options(folder));
    std::filesystem::resize_file(folder / "data", 100 * page);
    const row_view rows(ref, fd, {.row_bytes = 1024});
    std::vector<std::uint8_t> out(3 * 1024);
    const std::uint64_t indices[] = {0, 399, 404};
    EXPECT_EQ(gather(lane{}, rows, indices, 2, out.data()), 2);
    expect_bytes({.row_bytes = 1024}, {0, 399}, out.data());
    EXPECT_EQ(gather(lane{}, rows, indices, 3, out.data()), -ESTALE);
    EXPECT_NE(rt->view_status().message.find("row 404:"), std::string::npos)
        << rt->view_status().message;
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr);
}

TEST_F(gathers, elements_of_a_view) {
    const view<std::uint32_t> v(ref, fd, 8);
    const std::vector<std::uint64_t> indices = random_indices(3000, v.size(), 5);
    std::vector<std::uint32_t> out(3000);
    ASSERT_EQ(gather(lane{}, v, indices.data(), 3000, out.data()), 3000);
    for (std::uint64_t i = 0; i < 3000; ++i)
        ASSERT_EQ(std::memcmp(&out[i], bytes.data() + 8 + 4 * indices[i], 4), 0) << i;
    const std::uint64_t behind = v.size();
    EXPECT_EQ(gather(lane{}, v, &behind, 1, out.data()), -ERANGE);
}

// Four threads, 64 frames, 201 pages: what one has looked up the others evict.
TEST_F(gathers, many_threads_that_evict_each_other) {
    const row_shape shape{.row_bytes = 3000};
    std::atomic<int> wrong{0};
    const auto body = [&](const auto& g, std::uint64_t seed) {
        const row_view rows(ref, fd, shape);
        std::vector<std::uint8_t> out(30 * 3000);
        for (std::uint64_t round = 0; round < 60; ++round) {
            const std::vector<std::uint64_t> indices =
                random_indices(30, rows.size(), seed * 1000 + round);
            wrong += gather(g, rows, indices.data(), 30, out.data()) != 30;
            for (std::uint64_t i = 0; i < 30; ++i)
                wrong +=
                    std::memcmp(out.data() + i * 3000, bytes.data() + indices[i] * 3000, 3000) != 0;
        }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] { t % 2 == 0 ? body(lane{}, t) : body(racing_lane{}, t); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(rt->stats().evictions, 1000u);
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr)
        << "a pin or a frame was left";
}

// The whole device: as given and by spans, alone and on the workers, with chunks of pages that come
// and go.
TEST_F(gathers, from_the_host_in_every_order) {
    std::filesystem::resize_file(folder / "data",
                                 9 << 20);  // five spans of 2 MiB, the last one short
    bytes.resize(9 << 20);
    options o = small_options(folder);
    o.worker_threads = 3;
    o.frame_wait_ms = 5000;
    start(o);
    const row_shape shape{.row_bytes = 700, .stride_bytes = 705, .first_byte = 3};
    const std::uint64_t rows = row_view(ref, fd, shape).size();
    for (const std::uint64_t count : {1, 50, 5000}) {
        const std::vector<std::uint64_t> indices = random_indices(count, rows, count);
        for (const gather_order order :
             {gather_order::automatic, gather_order::as_given, gather_order::by_span}) {
            std::vector<std::uint8_t> out(count * 700 + 64, 0xa5);
            ASSERT_EQ(rt->gather(fd, shape, indices.data(), count, out.data(), {order, 2 << 20}),
                      static_cast<std::int64_t>(count));
            expect_bytes(shape, indices, out.data());
            for (std::uint64_t i = 0; i < 64; ++i) ASSERT_EQ(out[count * 700 + i], 0xa5);
        }
    }
    // In order by span the small cache serves neighbours that lie far apart in the list.
    const std::vector<std::uint64_t> indices = random_indices(5000, rows, 1);
    std::vector<std::uint8_t> out(5000 * 700);
    const auto misses_of = [&](gather_order order) {
        const std::uint64_t before = rt->stats().misses;
        EXPECT_EQ(rt->gather(fd, shape, indices.data(), 5000, out.data(), {order, 2 << 20}), 5000);
        return rt->stats().misses - before;
    };
    const std::uint64_t as_given = misses_of(gather_order::as_given),
                        by_span = misses_of(gather_order::by_span);
    EXPECT_LT(by_span, as_given * 19 / 20)
        << "a span has 512 pages and the cache 64; the file has 2304";
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr)
        << "a pin or a frame was left";
}

TEST_F(gathers, from_the_host_with_wrong_arguments) {
    const row_shape shape{.row_bytes = 16};
    const std::uint64_t index = 0;
    std::uint8_t out[16] = {};
    EXPECT_EQ(rt->gather(fd, shape, &index, 1, out), 1);
    EXPECT_EQ(rt->gather(fd, shape, nullptr, 0, nullptr), 0);
    EXPECT_EQ(rt->gather(fd + 1, shape, nullptr, 0, nullptr), -EBADF);
    EXPECT_EQ(rt->gather(fd + 1, shape, &index, 1, out), -EBADF);
    EXPECT_EQ(rt->gather(fd + 1, shape, &index, 1, out, {gather_order::by_span}), -EBADF);
    EXPECT_EQ(rt->gather(fd, shape, nullptr, 1, out), -EINVAL);
    EXPECT_EQ(rt->gather(fd, {.row_bytes = 0}, &index, 1, out), -EINVAL);
    EXPECT_EQ(rt->gather(fd, shape, &index, 1, out, {gather_order::by_span, 3 << 20}), -EINVAL)
        << "no power of two";
    EXPECT_EQ(rt->gather(fd, shape, &index, 1, out, {gather_order::by_span, 4096}), -EINVAL)
        << "less than 2 MiB";
    std::vector<std::uint64_t> indices = random_indices(9000, size / 16, 1);
    indices[8000] = size;
    std::vector<std::uint8_t> many(9000 * 16);
    for (const gather_order order : {gather_order::as_given, gather_order::by_span}) {
        rt->clear_view_status();
        EXPECT_EQ(rt->gather(fd, shape, indices.data(), 9000, many.data(), {order}), -ERANGE);
        EXPECT_NE(rt->view_status().message.find("row " + std::to_string(size) + ":"),
                  std::string::npos)
            << rt->view_status().message;
    }
}

TEST_F(gathers, a_table_of_two_levels) {
    options o = small_options(folder);
    o.page_bytes = 512;
    o.cache_bytes = 256 * 512;
    o.table_bytes = 65536;
    std::filesystem::resize_file(folder / "data", 64 << 20);  // its table would be 1 MiB
    bytes.resize(64 << 20);
    start(o);
    ASSERT_GE(fd, 0);
    expect_rows(lane{}, {.row_bytes = 1000}, random_indices(60, 1600, 1));
    expect_rows(racing_lane{}, {.row_bytes = 1000}, random_indices(60, 1600, 1));
}

// How the threads of a group share out parts: each unit of each part is one thread's, whatever the
// sizes.
TEST(row_batch, every_unit_of_a_part_is_one_threads) {
    for (const std::uint32_t threads : {1, 2, 4, 8, 16, 32})
        for (std::uint32_t units = 1; units <= 4 * threads + 3; ++units) {
            const std::uint32_t teams = engine::part_teams(threads, 0, units).teams;
            std::vector<int> taken(std::size_t{teams} * units);
            for (std::uint32_t rank = 0; rank < threads; ++rank) {
                const engine::part_teams by(threads, rank, units);
                ASSERT_EQ(by.teams, teams);
                if (by.my_team >= by.teams) continue;
                for (std::uint32_t round = 0; round < by.rounds; ++round) {
                    const std::uint32_t unit = by.my_unit + round * by.team;
                    if (unit < units) ++taken[std::size_t{by.my_team} * units + unit];
                }
            }
            ASSERT_GT(teams, 0u);
            ASSERT_EQ(std::count(taken.begin(), taken.end(), 1),
                      static_cast<std::ptrdiff_t>(taken.size()))
                << units << " of " << threads;
        }
}

TEST(row_batch, parts_are_the_most_pages_that_a_row_touches) {
    for (const std::uint64_t page : {512, 4096})
        for (const std::uint64_t stride : {1, 8, 24, 64, 96, 512, 4096, 12288})
            for (const std::uint64_t first : {0, 1, 8, 64, 512, 4096})
                for (const std::uint64_t row : {1, 8, 64, 511, 512, 513, 4096, 4097}) {
                    std::uint64_t most = 0;
                    for (std::uint64_t i = 0; i < 2 * page; ++i) {
                        const std::uint64_t at = first + i * stride;
                        most = std::max(most, (at + row - 1) / page - at / page + 1);
                    }
                    ASSERT_GE(engine::parts_of_row(page, first | stride, row), most)
                        << page << " " << stride << " " << first << " " << row;
                    // A bound that counts pages which no row touches would cost threads.
                    ASSERT_LE(engine::parts_of_row(page, first | stride, row), most + 1);
                }
}

}  // namespace penstock::test
