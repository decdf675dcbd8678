// The parts of penstock-matrix that multiply with a vector and have a simple truth to be compared
// with.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "methods.hpp"
#include "parts_support.hpp"
#include "vector_sums.hpp"

namespace penstock::matrix {
namespace {

TEST(matrix_vector_kernels, add_each_product_to_the_part_of_its_place_with_one_rounding) {
    const std::vector<float> a = random_numbers(10000, 1), x = random_numbers(10000, 2),
                             before = random_numbers(part_count, 3);
    for (const std::uint32_t phase : {0u, 1u, 64u, 127u})
        for (const std::uint64_t count :
             {0ull, 1ull, 63ull, 127ull, 128ull, 129ull, 384ull, 2048ull, 2049ull, 9997ull})
            for (const lane_kernels* kernel : kernels_here()) {
                alignas(64) float parts[part_count];
                std::vector<float> expected = before;
                std::copy(before.begin(), before.end(), parts);
                // From an odd place, as rows may begin there.
                kernel->add_products(parts, a.data() + 3, x.data() + 1, phase, count);
                for (std::uint64_t i = 0; i < count; ++i) {
                    float& part = expected[(phase + i) % part_count];
                    part = std::fma(a[3 + i], x[1 + i], part);
                }
                for (std::uint32_t i = 0; i < part_count; ++i)
                    ASSERT_EQ(parts[i], expected[i]) << kernel->name << ", phase " << phase
                                                     << ", count " << count << ", part " << i;
            }
}

TEST(matrix_vector_items, are_all_of_the_matrix_once_and_follow_each_other) {
    for (const auto& [rows, columns] : {std::pair<std::uint64_t, std::uint64_t>{1, 1},
                                        {9000, 1},
                                        {5000, 77},
                                        {300, 4001},
                                        {3, 65536},
                                        {3, 65537},
                                        {2, 200000}}) {
        vector_view v{};
        v.rows = rows, v.columns = columns;
        v.segments = pieces_of(columns, segment_columns);
        v.item_rows = rows_of_item(columns);
        std::uint64_t place = 0, items_of_bands = 0;
        for (std::uint64_t item = 0; item < v.item_count(); ++item) {
            const item_place at = place_of(v, item);
            const stretch here = at.elements(columns);
            ASSERT_EQ(here.begin, place);
            ASSERT_LT(here.begin, here.end);
            ASSERT_EQ(at.rows.begin / band_rows, (at.rows.end - 1) / band_rows)
                << "an item must lie in one band";
            place = here.end;
        }
        ASSERT_EQ(place, rows * columns);
        for (std::uint64_t band = 0; band < v.band_count(); ++band) {
            const stretch of = rows_of_band(v, band);
            items_of_bands +=
                v.segments == 1 ? pieces_of(of.count(), v.item_rows) : of.count() * v.segments;
        }
        ASSERT_EQ(items_of_bands, v.item_count()) << "or a band would never end";
    }
}

// Gives at most `most` numbers at a time, as pages do; or an error from some place on.
struct source_in_pieces {
    const float* data;
    std::uint64_t most;
    std::uint64_t fails_at = ~0ull;
    struct piece {
        const float* data;
        std::int64_t count;
    };

    void expect(const lane&, std::uint64_t, std::uint64_t) const {}
    piece take(const lane&, std::uint64_t first, std::uint64_t count) const {
        if (first >= fails_at) return {nullptr, -EIO};
        return {data + first, static_cast<std::int64_t>(lesser(count, most - first % most))};
    }
    void give_back(const lane&, const piece&) const {}
};

struct small_product {
    static constexpr std::uint64_t rows = 50, columns = 333;
    std::vector<float> matrix = random_numbers(rows * columns, 4),
                       vector = random_numbers(columns, 5), y = std::vector<float>(rows, NAN);
    std::uint64_t ended = 0;
    apps::work_totals totals{};
    std::vector<stretch> written;

    void run(const source_in_pieces& source, int write_code = 0) {
        const vector_view v{
            rows,     columns, 1,       rows_of_item(columns),        vector.data(), y.data(),
            y.data(), &ended,  &totals, chosen_kernels().add_products};
        sum_items(
            lane{}, source, v, [] { return false; },
            [&](const stretch& of) {
                written.push_back(of);
                return std::int64_t{write_code};
            });
    }
};

TEST(matrix_vector_items, give_the_same_bits_however_the_matrix_comes_in_pieces) {
    small_product whole;
    whole.run({whole.matrix.data(), 1u << 30});
    ASSERT_EQ(whole.written.size(), 1u);
    ASSERT_EQ(whole.written[0].count(), small_product::rows);
    for (const std::uint64_t most : {1u, 7u, 128u, 332u, 1024u}) {
        small_product cut;
        cut.run({cut.matrix.data(), most});
        for (std::uint64_t row = 0; row < small_product::rows; ++row)
            ASSERT_EQ(cut.y[row], whole.y[row]) << "pieces of " << most << ", row " << row;
    }
}

TEST(matrix_vector_items, write_no_band_of_which_a_number_could_not_be_had) {
    small_product broken;
    broken.run({broken.matrix.data(), 1024, 40 * small_product::columns});
    EXPECT_TRUE(broken.written.empty());
    EXPECT_EQ(broken.totals.code, -EIO);
    EXPECT_EQ(static_cast<bad_file>(broken.totals.failed), bad_file::a);
    small_product full;
    full.run({full.matrix.data(), 1024}, -ENOSPC);
    EXPECT_EQ(full.totals.code, -ENOSPC);
    EXPECT_EQ(static_cast<bad_file>(full.totals.failed), bad_file::result);
}

// --check on files of its own.
class matrix_vector_check : public testing::Test {
protected:
    static constexpr std::uint64_t rows = 30;

    void SetUp() override {
        folder_ = std::filesystem::temp_directory_path() /
                  ("penstock-matrix-vector-" + std::to_string(::getpid()));
        std::filesystem::create_directory(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    static void put(const std::filesystem::path& path, const std::vector<float>& numbers) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size() * sizeof(float)));
    }
    // Of ones, so that each row is `columns`, and the sum of the sizes too.
    status check(std::uint64_t columns, const std::vector<float>& y, check_report& out,
                 bool in_order = true) {
        const auto matrix = folder_ / "A", vector = folder_ / "x";
        put(matrix, std::vector<float>(rows * columns, 1.0f));
        put(vector, std::vector<float>(columns, 1.0f));
        matrix_job job;
        job.size = {rows, 1, columns};
        apps::output_file result;
        for (const status& s :
             {apps::open_numbers(matrix, "matrix", job.a),
              apps::open_numbers(vector, "vector", job.b), result.open_named(folder_ / "y"),
              result.write_at(y.data(), y.size() * sizeof(float), 0)})
            if (!s.ok()) return s;
        job.result = &result;
        return check_result(job, in_order, out);
    }

private:
    std::filesystem::path folder_;
};

TEST_F(matrix_vector_check, passes_the_right_result_and_fails_for_one_wrong_row) {
    for (const std::uint64_t columns : {1, 1000, 70000})
        for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{17}, rows - 1}) {
            check_report report;
            std::vector<float> y(rows, static_cast<float>(columns));
            ASSERT_TRUE(check(columns, y, report).ok());
            EXPECT_EQ(report.greatest_deviation, 0);
            const auto limit = static_cast<float>(vector_tolerance(columns));
            y[wrong] *= 1 + limit / 2;
            ASSERT_TRUE(check(columns, y, report).ok()) << "half of what is allowed";
            EXPECT_EQ(report.worst_row, wrong);
            for (const float bad :
                 {static_cast<float>(columns) * (1 + 2 * limit),
                  static_cast<float>(columns) * (1 - 2 * limit), 0.0f, NAN, INFINITY}) {
                y[wrong] = bad;
                const status s = check(columns, y, report);
                EXPECT_EQ(s.code, -EILSEQ) << bad;
                EXPECT_NE(s.message.find("row " + std::to_string(wrong) + " "), std::string::npos)
                    << s.message;
            }
        }
}

TEST_F(matrix_vector_check, allows_a_library_what_roundings_in_any_order_can_do) {
    constexpr std::uint64_t columns = 3000;
    check_report report;
    std::vector<float> y(rows, static_cast<float>(columns));
    const double limit = any_order_tolerance(columns);
    EXPECT_GT(limit, 2 * vector_tolerance(columns));
    y[3] = static_cast<float>(columns * (1 + limit / 2));
    EXPECT_EQ(check(columns, y, report).code, -EILSEQ) << "in order it is wrong";
    EXPECT_TRUE(check(columns, y, report, false).ok());
    y[3] = static_cast<float>(columns * (1 + 2 * limit));
    EXPECT_EQ(check(columns, y, report, false).code, -EILSEQ);
}

TEST_F(matrix_vector_check, fails_for_a_result_of_another_size) {
    check_report report;
    EXPECT_EQ(check(10, std::vector<float>(rows + 1, 10.0f), report).code, -EILSEQ);
    EXPECT_FALSE(check(10, std::vector<float>(rows - 1, 10.0f), report).ok());
}

}  // namespace
}  // namespace penstock::matrix
