// The parts of penstock-matrix that multiply matrices and have a simple truth to be compared with.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "cached_rows.hpp"
#include "lane_multiply.hpp"
#include "methods.hpp"
#include "parts_support.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/runtime.hpp"

namespace penstock::matrix {
namespace {

TEST(matrix_product_kernels, add_products_of_packed_columns_one_after_the_other) {
    for (const std::uint32_t depth : {1u, 7u, 512u})
        for (const std::uint32_t width : {1u, 15u, 64u, 100u, 200u})
            for (const lane_kernels* kernel : kernels_here()) {
                const std::vector<float> a = random_numbers(kernel_rows * depth, depth),
                                         b = random_numbers(depth * width, width);
                const auto room = std::make_unique<lane_room>();
                for (std::uint32_t first = 0; first < width; first += kernel_columns) {
                    pack_columns(b.data(), width, depth, first, kernel->panel_columns,
                                 room->packed);
                    const float* rows[kernel_rows];
                    for (std::uint32_t i = 0; i < kernel_rows; ++i) rows[i] = &a[i * depth];
                    std::fill(std::begin(room->sums), std::end(room->sums), 0.0f);
                    kernel->add_tile(rows, room->packed, depth, room->sums);
                    for (std::uint32_t i = 0; i < kernel_rows; ++i)
                        for (std::uint32_t j = 0; j < kernel_columns; ++j) {
                            float expected = 0;
                            for (std::uint32_t k = 0; k < depth && first + j < width; ++k)
                                expected =
                                    std::fma(a[i * depth + k], b[k * width + first + j], expected);
                            ASSERT_EQ(room->sums[i * kernel_columns + j], expected)
                                << kernel->name << ", depth " << depth << ", width " << width
                                << ", " << i << " " << first + j;
                        }
                }
            }
}

TEST(matrix_product_tiles, cover_the_result_once) {
    for (const tile_shape shape : {tile_shape{128, 128}, lane_tile})
        for (const auto& [m, n] : {std::pair<std::uint64_t, std::uint64_t>{1, 1},
                                   {130, 1},
                                   {1, 1025},
                                   {3000, 700},
                                   {2500, 4100}}) {
            product_view v{m, n, 1, nullptr, nullptr};
            v.together = 1 + m % 7;
            std::vector<int> covered(m * n, 0);
            for (std::uint64_t tile = 0; tile < v.tile_count(shape); ++tile) {
                const tile_place at = place_of(v, shape, tile);
                ASSERT_LE(at.row + at.rows, m);
                ASSERT_LE(at.column + at.columns, n);
                for (std::uint64_t i = at.row; i < at.row + at.rows; ++i)
                    for (std::uint64_t j = at.column; j < at.column + at.columns; ++j)
                        ++covered[i * n + j];
            }
            for (const int times : covered) ASSERT_EQ(times, 1) << m << " x " << n;
        }
}

// Ones, of which a part may be missing.
struct ones {
    bad_file missing = bad_file::result;

    std::int64_t fetch(const lane&, bad_file which, std::uint64_t, std::uint64_t rows,
                       std::uint64_t, std::uint64_t columns, float* to) const {
        if (which == missing) return -EIO;
        std::fill(to, to + rows * columns, 1.0f);
        return 0;
    }
};

TEST(matrix_product_tiles, are_not_written_if_a_part_could_not_be_had) {
    const auto room = std::make_unique<lane_room>();
    for (const bad_file which : {bad_file::a, bad_file::b}) {
        apps::work_totals totals{};
        const product_view v{200, 600, 700, nullptr, &totals};
        int written = 0;
        multiply_tiles_on_lane(
            ones{which}, v, *room, [] { return false; },
            [&](const tile_place&, const float*) { return ++written, std::int64_t{0}; });
        EXPECT_EQ(written, 0);
        EXPECT_EQ(totals.code, -EIO);
        EXPECT_EQ(static_cast<bad_file>(totals.failed), which);
    }
    apps::work_totals totals{};
    const product_view v{200, 600, 700, nullptr, &totals};
    multiply_tiles_on_lane(
        ones{}, v, *room, [] { return false; },
        [&](const tile_place& at, const float* tile) -> std::int64_t {
            EXPECT_EQ(tile[0], 700);
            EXPECT_EQ(tile[at.rows * at.columns - 1], 700);
            return -ENOSPC;
        });
    EXPECT_EQ(totals.code, -ENOSPC);
    EXPECT_EQ(static_cast<bad_file>(totals.failed), bad_file::result);
    EXPECT_EQ(totals.items_taken, 1u) << "after an error no tile is taken";
}

TEST(work_items, tell_one_group_that_it_ended_the_last_part) {
    constexpr std::uint64_t parts = 4, rounds = 3000;
    std::uint64_t ended = 0;
    std::vector<std::uint64_t> done(parts, 0);
    std::atomic<std::uint64_t> last_seen{0}, wrong{0};
    std::vector<std::thread> threads;
    for (std::uint64_t part = 0; part < parts; ++part)
        threads.emplace_back([&, part] {
            for (std::uint64_t round = 1; round <= rounds; ++round) {
                while (last_seen.load() + 1 < round) std::this_thread::yield();
                done[part] = round;
                if (!apps::ends_last(lane{}, &ended, parts)) continue;
                for (const std::uint64_t other : done) wrong += other == round ? 0 : 1;
                ++last_seen;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(last_seen, rounds) << "one of each round";
    EXPECT_EQ(wrong, 0u) << "what the others did was not seen";
    EXPECT_EQ(ended, 0u);
}

// A file of numbers, each its own place, in a runtime with pages of a size.
class held_rows : public testing::TestWithParam<std::uint64_t> {
protected:
    static constexpr std::uint64_t numbers = 40000;

    void SetUp() override {
        path_ = std::filesystem::temp_directory_path() /
                ("penstock-held-rows-" + std::to_string(::getpid()));
        std::vector<float> all(numbers);
        for (std::uint64_t i = 0; i < numbers; ++i) all[i] = static_cast<float>(i);
        std::ofstream(path_, std::ios::binary)
            .write(reinterpret_cast<const char*>(all.data()), numbers * sizeof(float));
        options o;
        o.where = backend::cpu;
        o.page_bytes = GetParam();
        o.cache_bytes = 64 * o.page_bytes;
        o.table_bytes = 1 << 20;  // every word of it is looked at, again and again
        o.max_files = 16;
        ASSERT_TRUE(runtime::make(o, rt).ok());
        fd = rt->open(path_.string());
        ASSERT_GE(fd, 0);
    }
    void TearDown() override {
        rt.reset();
        std::filesystem::remove(path_);
    }
    // Are so many pages pinned, and nothing else wrong?
    void expect_pinned(std::uint64_t pages) {
        EXPECT_EQ(engine::check_invariants(rt->ref().view, {pages, 1}).rule, nullptr)
            << pages << " pages pinned";
    }

    // Goes along a row from `begin` to before `end`, so many numbers at a time.
    void go(held_row& row, std::uint64_t begin, std::uint64_t end, std::uint64_t step) {
        const std::uint64_t page = GetParam() / sizeof(float);
        for (std::uint64_t first = begin; first < end; first += step) {
            const std::uint64_t count = std::min(step, end - first);
            row_run run{};
            ASSERT_EQ(row.move(lane{}, rt->ref(), fd, first, count, end, run), 0);
            for (std::uint64_t i = 0; i < count; ++i)
                ASSERT_EQ((i < run.split ? run.front : run.back)[i], static_cast<float>(first + i))
                    << first << " " << i;
            expect_pinned(first / page == (first + count - 1) / page ? 1 : 2);
        }
    }

    std::unique_ptr<runtime> rt;
    int fd = -1;

private:
    std::filesystem::path path_;
};

TEST_P(held_rows, lie_where_their_numbers_are_and_pin_no_more_than_two_pages) {
    for (const auto& [columns, row_number] : {std::pair<std::uint64_t, std::uint64_t>{2048, 3},
                                              {1000, 7},
                                              {777, 11},
                                              {512, 0},
                                              {13, 100}}) {
        held_row row;
        go(row, row_number * columns, (row_number + 1) * columns, 512);
        row.release(lane{}, rt->ref());
        expect_pinned(0);
        row.release(lane{}, rt->ref());
        expect_pinned(0);
    }
}

TEST_P(held_rows, keep_a_page_for_all_its_numbers) {
    const std::uint64_t page = GetParam() / sizeof(float);
    held_row row;
    go(row, page, 2 * page, 128);
    row.release(lane{}, rt->ref());
    const statistics all = rt->stats();
    EXPECT_EQ(all.hits + all.misses, 1u) << "the page was looked for once";
}

TEST_P(held_rows, hold_nothing_after_an_error) {
    held_row row;
    row_run run{};
    EXPECT_EQ(row.move(lane{}, rt->ref(), fd, numbers - 10, 20, numbers + 10, run), -ESTALE);
    expect_pinned(0);
    EXPECT_EQ(row.move(lane{}, rt->ref(), fd + 1, 0, 1, 1, run), -EBADF);
    expect_pinned(0);
}

INSTANTIATE_TEST_SUITE_P(pages, held_rows, testing::Values(2048, 4096, 65536));

// --check on files of its own, all ones: each number of the result is k, and so is the sum of the
// sizes.
class matrix_product_check : public testing::Test {
protected:
    static constexpr std::uint64_t m = 300, n = 150, k = 20;

    void SetUp() override {
        folder_ = std::filesystem::temp_directory_path() /
                  ("penstock-matrix-product-" + std::to_string(::getpid()));
        std::filesystem::create_directory(folder_);
        put("A", std::vector<float>(m * k, 1.0f));
        put("B", std::vector<float>(k * n, 1.0f));
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void put(const std::string& name, const std::vector<float>& numbers) {
        std::ofstream(folder_ / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size() * sizeof(float)));
    }
    status check(const std::vector<float>& c, check_report& out, double most_products = 1e9,
                 bool in_order = true) {
        matrix_job job;
        job.shape = product_shape::matrix;
        job.size = {m, n, k};
        apps::output_file result;
        for (const status& s :
             {apps::open_numbers(folder_ / "A", "matrix", job.a),
              apps::open_numbers(folder_ / "B", "matrix", job.b), result.open_named(folder_ / "C"),
              result.write_at(c.data(), c.size() * sizeof(float), 0)})
            if (!s.ok()) return s;
        job.result = &result;
        return check_result(job, in_order, out, most_products);
    }

private:
    std::filesystem::path folder_;
};

TEST_F(matrix_product_check, passes_the_right_result_and_fails_for_one_wrong_number) {
    check_report report;
    std::vector<float> c(m * n, static_cast<float>(k));
    ASSERT_TRUE(check(c, report).ok());
    EXPECT_EQ(report.rows, m);
    EXPECT_EQ(report.greatest_deviation, 0);
    for (const std::uint64_t wrong : {std::uint64_t{0}, 131 * n + 149, m * n - 1})
        for (const float bad :
             {static_cast<float>(k * (1 + 2 * product_tolerance(k))), 0.0f, NAN, INFINITY}) {
            std::vector<float> broken = c;
            broken[wrong] = static_cast<float>(k * (1 + product_tolerance(k) / 2));
            ASSERT_TRUE(check(broken, report).ok()) << "half of what is allowed";
            broken[wrong] = bad;
            const status s = check(broken, report);
            EXPECT_EQ(s.code, -EILSEQ) << bad;
            EXPECT_NE(s.message.find("row " + std::to_string(wrong / n) + ", column " +
                                     std::to_string(wrong % n) + " "),
                      std::string::npos)
                << s.message;
        }
}

TEST_F(matrix_product_check, allows_a_library_what_roundings_in_any_order_can_do) {
    check_report report;
    std::vector<float> c(m * n, static_cast<float>(k));
    const double limit = any_order_tolerance(k);
    EXPECT_EQ(limit, (k + 1) * 0x1p-24);
    c[n] = static_cast<float>(k * (1 + limit / 2));
    EXPECT_TRUE(check(c, report, 1e9, false).ok());
    EXPECT_EQ(report.tolerance, limit);
    c[n] = static_cast<float>(k * (1 + 2 * limit));
    EXPECT_EQ(check(c, report, 1e9, false).code, -EILSEQ);
}

TEST_F(matrix_product_check, of_a_large_product_sees_a_row_of_every_tile) {
    check_report report;
    for (std::uint64_t row = 0; row < m; row += 128)
        for (std::uint64_t column = 0; column < n; column += 128) {
            std::vector<float> c(m * n, static_cast<float>(k));
            // A whole tile that was never written.
            for (std::uint64_t i = row; i < std::min(row + 128, m); ++i)
                for (std::uint64_t j = column; j < std::min(column + 128, n); ++j) c[i * n + j] = 0;
            EXPECT_EQ(check(c, report, 1).code, -EILSEQ) << row << " " << column;
            EXPECT_EQ(report.rows, 3u);
        }
}

TEST_F(matrix_product_check, fails_for_a_result_of_another_size) {
    check_report report;
    EXPECT_EQ(check(std::vector<float>(m * n + 1, static_cast<float>(k)), report).code, -EILSEQ);
    EXPECT_EQ(check(std::vector<float>(m * n - 1, static_cast<float>(k)), report).code, -EILSEQ);
}

}  // namespace
}  // namespace penstock::matrix
