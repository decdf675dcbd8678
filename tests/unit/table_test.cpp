// Tables on the cpu back end: rows of several files by lists of numbers, of which some cannot be
// had; rows that are written; kernels' own calls.
#include "penstock/table.hpp"

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "penstock/launch.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t row = 96, most_rows = 400;

class tables : public testing::Test {
protected:
    // Piece i has 100 * (i + 1) rows from byte 8 * i on.
    void make(const table_options& settings = {}, std::uint64_t equal_rows = 0) {
        layout = {.row_bytes = row};
        layout.stride_bytes = 128;
        for (std::uint64_t i = 0; i < 3; ++i) {
            const std::uint64_t rows = equal_rows != 0 ? equal_rows : 100 * (i + 1);
            const std::string path = folder / ("piece" + std::to_string(i));
            bytes.push_back(pattern(i + 1, 8 * i + rows * 128));
            write_file(path, bytes.back());
            layout.pieces.push_back({path, 8 * i, rows});
        }
        options o = small_options(folder);
        o.writable = settings.writable;
        rt = make_runtime(o);
        const status s = table::make(*rt, layout, settings, rows);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    [[nodiscard]] const std::uint8_t* expected(std::uint64_t number) const {
        std::uint64_t piece = 0;
        while (number >= layout.pieces[piece].rows) number -= layout.pieces[piece++].rows;
        return &bytes[piece][layout.pieces[piece].first_byte + number * 128];
    }
    template <typename Number>
    void expect_rows(const std::vector<Number>& numbers, const std::vector<std::uint8_t>& got,
                     std::uint64_t stride = row) const {
        for (std::size_t i = 0; i < numbers.size(); ++i)
            ASSERT_EQ(std::memcmp(&got[i * stride],
                                  expected(static_cast<std::uint64_t>(numbers[i])), row),
                      0)
                << "row " << numbers[i] << " at place " << i;
    }
    template <typename Number>
    void gather_all() {
        std::vector<Number> numbers;
        for (std::uint64_t i = 0; i < 2000; ++i)
            numbers.push_back(static_cast<Number>(mix64(i) % rows->size()));
        std::vector<std::uint8_t> got(numbers.size() * 112, 0xa5);
        ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data(), {.stride_bytes = 112}),
                  0);
        expect_rows(numbers, got, 112);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            for (std::size_t k = row; k < 112; ++k)
                ASSERT_EQ(got[i * 112 + k], 0xa5) << "between the rows";
        EXPECT_TRUE(rows->check().ok());
    }

    const temporary_folder folder;
    table_layout layout;
    std::vector<std::vector<std::uint8_t>> bytes;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
};

bool is_zero(const std::vector<std::uint8_t>& got, std::size_t place) {
    for (std::size_t k = 0; k < row; ++k)
        if (got[place * row + k] != 0) return false;
    return true;
}

}  // namespace

TEST_F(tables, numbers_of_every_type_find_rows_of_pieces_of_every_length) {
    make();
    EXPECT_EQ(rows->size(), 600u);
    EXPECT_EQ(rows->ref().view.rows_per_run, 0u);
    gather_all<std::int32_t>();
    gather_all<std::uint32_t>();
    gather_all<std::int64_t>();
    gather_all<std::uint64_t>();
}

TEST_F(tables, pieces_of_one_length_are_found_by_a_division) {
    make({}, 50);
    EXPECT_EQ(rows->ref().view.rows_per_run, 50u);
    gather_all<std::int32_t>();
}

TEST_F(tables, padding_yields_zeros_and_no_error) {
    make();
    const std::vector<std::int64_t> numbers = {5, -1, 599, -1};
    std::vector<std::uint8_t> got(numbers.size() * row, 0xa5);
    ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data(), {.padding = -1}), 0);
    EXPECT_TRUE(rows->check().ok());
    EXPECT_EQ(std::memcmp(&got[0], expected(5), row), 0);
    EXPECT_EQ(std::memcmp(&got[2 * row], expected(599), row), 0);
    EXPECT_TRUE(is_zero(got, 1) && is_zero(got, 3));
}

// As 64 bits, so one that is negative is a number of uint64 and none of uint32.
TEST_F(tables, padding_of_unsigned_numbers_is_compared_as_64_bits) {
    make();
    std::vector<std::uint8_t> got(2 * row, 0xa5);
    const auto code_of = [&]<typename Number>(Number last, std::int64_t padding) {
        const Number numbers[] = {5, last};
        EXPECT_EQ(rows->gather(numbers, 2, got.data(), {.padding = padding}), 0);
        EXPECT_EQ(std::memcmp(&got[0], expected(5), row), 0);
        EXPECT_TRUE(is_zero(got, 1));
        return rows->check().code;
    };
    EXPECT_EQ(code_of(~std::uint64_t{0}, -1), 0);
    EXPECT_EQ(code_of(~std::uint32_t{0}, -1), -ERANGE);
    EXPECT_EQ(code_of(~std::uint32_t{0}, 0xffffffff), 0);
    EXPECT_EQ(code_of(std::int32_t{-1}, -1), 0);
    EXPECT_EQ(code_of(std::int32_t{-1}, 0xffffffff), -ERANGE);
}

TEST_F(tables, a_number_outside_is_zero_and_noted_while_the_others_are_right) {
    make();
    for (const std::int64_t wrong : {std::int64_t{600}, std::int64_t{-1}, INT64_MIN}) {
        const std::vector<std::int64_t> numbers = {7, wrong, 300};
        std::vector<std::uint8_t> got(numbers.size() * row, 0xa5);
        ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
        EXPECT_EQ(std::memcmp(&got[0], expected(7), row), 0);
        EXPECT_EQ(std::memcmp(&got[2 * row], expected(300), row), 0);
        EXPECT_TRUE(is_zero(got, 1));
        EXPECT_EQ(rows->gather(numbers.data(), 1, got.data()), -ERANGE) << "until it is looked at";
        const status s = rows->check();
        EXPECT_EQ(s.code, -ERANGE);
        EXPECT_NE(s.message.find("number " + std::to_string(wrong) + " at place 1 "),
                  std::string::npos)
            << s.message;
        EXPECT_NE(s.message.find("600 rows"), std::string::npos) << s.message;
        EXPECT_TRUE(rows->check().ok());
        EXPECT_EQ(rows->gather(numbers.data(), 1, got.data()), 0);
    }
}

TEST_F(tables, a_file_that_is_cut_loses_its_rows_alone) {
    make();
    ASSERT_EQ(::truncate(layout.pieces[1].path.c_str(), 8 + 50 * 128), 0);
    const std::vector<std::uint32_t> numbers = {20, 290, 120, 580};
    std::vector<std::uint8_t> got(numbers.size() * row, 0xa5);
    ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
    EXPECT_TRUE(is_zero(got, 1));
    EXPECT_EQ(std::memcmp(&got[0], expected(20), row), 0);
    EXPECT_EQ(std::memcmp(&got[3 * row], expected(580), row), 0);
    const status s = rows->check();
    EXPECT_EQ(s.code, -ESTALE);
    EXPECT_NE(s.message.find("piece1': row 290 at place 1 of a list, at byte " +
                             std::to_string(8 + 190 * 128)),
              std::string::npos)
        << s.message;
}

TEST_F(tables, scattered_rows_are_gathered_and_reach_the_files) {
    make({.writable = true});
    std::vector<std::int32_t> numbers;
    for (std::int32_t i = 0; i < 600; i += 7) numbers.push_back(i);
    const auto values = pattern(9, numbers.size() * row);
    numbers.push_back(-1);
    ASSERT_EQ(rows->scatter(numbers.data(), numbers.size(), values.data(), {.padding = -1}), 0);
    EXPECT_EQ(rows->sync(), 0);
    EXPECT_TRUE(rows->check().ok());
    numbers.pop_back();
    std::vector<std::uint8_t> got(values.size());
    ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
    EXPECT_EQ(got, values);
    for (std::size_t i = 0; i < numbers.size(); ++i)
        std::memcpy(const_cast<std::uint8_t*>(expected(static_cast<std::uint64_t>(numbers[i]))),
                    &values[i * row], row);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(bytes_on_disk(layout.pieces[i].path), bytes[i]);
}

TEST_F(tables, prefetched_rows_are_hits) {
    make();
    const std::vector<std::int32_t> numbers = {0, 1, 2, 0};
    ASSERT_EQ(rows->prefetch(numbers.data(), numbers.size()), 0);
    const std::uint64_t misses = rt->stats().misses;
    std::vector<std::uint8_t> got(numbers.size() * row);
    ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
    EXPECT_EQ(rt->stats().misses, misses);
    expect_rows(numbers, got);
}

TEST_F(tables, a_note_of_a_call_and_the_note_of_the_table_are_apart) {
    make({.writable = true});
    const std::vector<std::int64_t> good = {7, 300}, bad = {7, 601, 300};
    std::vector<std::uint8_t> got(bad.size() * row);
    status own;
    const auto expect_own_error = [&](int code) {
        EXPECT_EQ(code, 0);
        EXPECT_EQ(own.code, -ERANGE);
        EXPECT_NE(own.message.find("number 601 at place 1 "), std::string::npos) << own.message;
        own = {};
    };
    expect_own_error(rows->gather(bad.data(), 3, got.data(), {.own_note = &own}));
    expect_own_error(rows->prefetch(bad.data(), 3, {.own_note = &own}));
    expect_own_error(rows->scatter(bad.data(), 3, got.data(), {.own_note = &own}));
    EXPECT_TRUE(rows->check().ok());

    const std::int64_t first = 600;
    ASSERT_EQ(rows->gather(&first, 1, got.data()), 0);  // noted by the table
    EXPECT_EQ(rows->gather(good.data(), 2, got.data()), -ERANGE);
    own = {-EIO, "of another call"};
    ASSERT_EQ(rows->gather(good.data(), 2, got.data(), {.own_note = &own}), 0);
    EXPECT_TRUE(own.ok()) << own.message;
    expect_rows(good, got);
    expect_own_error(rows->gather(bad.data(), 3, got.data(), {.own_note = &own}));
    const status noted = rows->check();
    EXPECT_NE(noted.message.find("number 600 at place 0 "), std::string::npos) << noted.message;
    EXPECT_TRUE(rows->check().ok());
}

TEST_F(tables, a_check_tells_the_note_of_one_device_and_the_next_that_of_the_next) {
    const std::string path = folder / "rows";
    write_file(path, pattern(1, 100 * row));
    options o = small_options(folder);
    o.devices = {0, 1};
    rt = make_runtime(o);
    layout = {.row_bytes = row};
    layout.pieces.push_back({path, 0, 100});
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    std::vector<std::uint8_t> got(row);
    for (std::uint32_t device = 0; device < 2; ++device) {
        const std::int64_t number = 200 + device;
        penstock::gather(lane{}, rt->ref(device), rows->ref(device), &number, 1, got.data());
    }
    const status first = rows->check(), second = rows->check();
    EXPECT_NE(first.message.find("number 200 "), std::string::npos) << first.message;
    EXPECT_NE(second.message.find("number 201 "), std::string::npos) << second.message;
    EXPECT_TRUE(rows->check().ok());
}

// Two calls at once, long enough to have workers, while a third thread looks at the table's note.
TEST_F(tables, calls_of_threads_have_their_own_errors) {
    make({.writable = true});
    constexpr std::uint64_t count = 1000;
    constexpr int rounds = 300;
    std::barrier<> gate(2);
    std::atomic<int> of_others{0}, missing{0}, wrong{0}, done{0};
    const auto call_all = [&](bool is_bad) {
        std::vector<std::int64_t> numbers(count);
        std::vector<std::uint8_t> values(count * row), got(count * row);
        for (std::uint64_t i = 0; i < count; ++i) {
            numbers[i] = static_cast<std::int64_t>(mix64(i) % 600);
            std::memcpy(&values[i * row], expected(static_cast<std::uint64_t>(numbers[i])), row);
        }
        if (is_bad) {
            numbers[count / 2] = 601;
            std::memset(&values[count / 2 * row], 0, row);
        }
        status own;
        const auto judge = [&](int code) {
            if (code != 0 || (!is_bad && !own.ok())) ++of_others;
            if (is_bad && own.message.find("number 601 at place 500 ") == std::string::npos)
                ++missing;
            own = {};
        };
        for (int i = 0; i < rounds; ++i) {
            gate.arrive_and_wait();
            judge(rows->gather(numbers.data(), count, got.data(), {.own_note = &own}));
            if (got != values) ++wrong;
            std::fill(got.begin(), got.end(), std::uint8_t{0xa5});
            judge(rows->scatter(numbers.data(), count, values.data(), {.own_note = &own}));
            judge(rows->prefetch(numbers.data(), count, {.own_note = &own}));
        }
        ++done;
    };
    std::thread bad(call_all, true), good(call_all, false);
    while (done < 2)
        if (!rows->check().ok()) ++of_others;
    bad.join();
    good.join();
    EXPECT_EQ(of_others, 0);
    EXPECT_EQ(missing, 0);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(rows->sync(), 0);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(bytes_on_disk(layout.pieces[i].path), bytes[i]);
}

TEST_F(tables, kernels_read_rows_by_themselves) {
    make();
    std::vector<std::uint8_t> got(600 * row);
    const auto body = [&, table = rows->ref()](const auto& g, const runtime_ref& fs,
                                               std::uint64_t i) {
        EXPECT_EQ(read_row(g, fs, table, i, &got[i * row]), static_cast<std::int64_t>(row));
    };
    ASSERT_EQ(launch(*rt, 600, body), 0);
    for (std::uint64_t i = 0; i < 600; ++i)
        ASSERT_EQ(std::memcmp(&got[i * row], expected(i), row), 0) << i;
    std::vector<std::uint8_t> nothing(row, 0xa5);
    EXPECT_EQ(read_row(lane{}, rt->ref(), rows->ref(), 600, nothing.data()), -ERANGE);
    EXPECT_TRUE(is_zero(nothing, 0));
    EXPECT_EQ(rows->check().code, -ERANGE);
    const std::uint32_t few[] = {599, 0, 1000};
    EXPECT_EQ(gather(lane{}, rt->ref(), rows->ref(), few, 3, got.data()), 1u);
    EXPECT_EQ(std::memcmp(&got[row], expected(0), row), 0);
}

TEST_F(tables, wrong_arguments_change_nothing) {
    make();
    const std::int32_t number = 0;
    std::uint8_t out[row];
    EXPECT_EQ(rows->gather(static_cast<const std::int32_t*>(nullptr), 1, out), -EINVAL);
    EXPECT_EQ(rows->gather(&number, 1, nullptr), -EINVAL);
    EXPECT_EQ(rows->gather(&number, 1, out, {.stride_bytes = row - 1}), -EINVAL);
    EXPECT_EQ(rows->gather(&number, UINT64_MAX / 4, out), -EINVAL);
    EXPECT_EQ(rows->gather(&number, 0, nullptr), 0);
    EXPECT_EQ(rows->scatter(&number, 1, out), -EROFS);
    EXPECT_TRUE(rows->check().ok());
}

TEST_F(tables, numbers_lie_at_multiples_of_their_size) {
    make();
    alignas(8) std::byte room[64]{};
    std::vector<std::uint8_t> out(4 * row);
    const auto at = [&](std::size_t byte) { return room + byte; };
    EXPECT_EQ(rows->gather(reinterpret_cast<std::int64_t*>(at(4)), 2, out.data()), -EINVAL);
    EXPECT_EQ(rows->gather(reinterpret_cast<std::uint32_t*>(at(2)), 2, out.data()), -EINVAL);
    EXPECT_EQ(rows->gather(reinterpret_cast<std::uint32_t*>(at(4)), 2, out.data()), 0);
    EXPECT_EQ(rows->prefetch(reinterpret_cast<std::int64_t*>(at(1)), 2), -EINVAL);
    EXPECT_TRUE(rows->check().ok());
}

TEST_F(tables, a_layout_that_does_not_fit_its_files_makes_no_table) {
    make();
    const auto refused = [&](const table_layout& wrong, int code, const std::string& part) {
        std::unique_ptr<table> out;
        const status s = table::make(*rt, wrong, {}, out);
        EXPECT_EQ(s.code, code) << s.message;
        EXPECT_NE(s.message.find(part), std::string::npos) << s.message;
        EXPECT_EQ(out, nullptr);
    };
    table_layout wrong = layout;
    wrong.pieces[2].rows += 1;
    refused(wrong, -EINVAL, "piece2'");
    wrong = layout;
    wrong.pieces[0].rows = UINT64_MAX / 64;
    refused(wrong, -EINVAL, "piece0'");
    wrong = layout;
    wrong.pieces[1].path = folder / "missing";
    refused(wrong, -ENOENT, "missing'");
    wrong = layout;
    wrong.stride_bytes = row - 1;
    refused(wrong, -EINVAL, "stride_bytes");
    refused({}, -EINVAL, "row");
    std::unique_ptr<table> out;
    const status s = table::make(*rt, layout, {.writable = true}, out);
    EXPECT_EQ(s.code, -EROFS) << s.message;
    EXPECT_NE(s.message.find("options::writable"), std::string::npos) << s.message;
}

TEST_F(tables, a_file_that_took_the_name_of_an_open_one_makes_no_table) {
    make();
    const std::string& path = layout.pieces[1].path;
    write_file(path + ".new", pattern(7, bytes[1].size() + 128));
    ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
    std::unique_ptr<table> again;
    const status s = table::make(*rt, layout, {}, again);
    EXPECT_EQ(s.code, -ESTALE);
    EXPECT_NE(s.message.find(path), std::string::npos) << s.message;
    EXPECT_EQ(again, nullptr);
    gather_all<std::int64_t>();  // the first table has the rows that it had

    rows.reset();
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    bytes[1] = pattern(7, bytes[1].size() + 128);
    gather_all<std::int64_t>();
}

TEST_F(tables, room_of_tables_that_ended_is_used_again) {
    make();
    for (int i = 0; i < 3000; ++i) {
        std::unique_ptr<table> out;
        ASSERT_TRUE(table::make(*rt, layout, {}, out).ok()) << i;
    }
}

TEST(tables_options, pages_suit_the_rows) {
    const auto page = [](std::uint64_t row_bytes, std::uint64_t stride = 0) {
        table_layout layout;
        layout.row_bytes = row_bytes;
        layout.stride_bytes = stride;
        return options_for(layout, {}).page_bytes;
    };
    EXPECT_EQ(page(64), 512u);
    EXPECT_EQ(page(512), 512u);
    EXPECT_EQ(page(513), 1024u);
    EXPECT_EQ(page(3072), 4096u);
    EXPECT_EQ(page(64, 5000), 8192u);
    EXPECT_EQ(page(100 << 20), 2u << 20);
    table_layout large{.row_bytes = 512};
    large.pieces.push_back({"a", 0, 100 << 20});
    EXPECT_GE(options_for(large, {}).table_bytes, std::uint64_t{100} << 23);
}

// Else the program could not tell how to cure what runtime::make refuses.
TEST(tables_options, sizes_of_the_caller_suit_the_pages) {
    const auto settled = [](std::uint64_t row_bytes, const options& base) {
        table_layout layout;
        layout.row_bytes = row_bytes;
        return options_for(layout, base);
    };
    options base;
    base.where = backend::cpu;
    base.cache_bytes = base.tier_bytes = 1 << 20;
    const options wide = settled(1 << 20, base);
    EXPECT_EQ(wide.page_bytes, 1u << 20);
    EXPECT_EQ(wide.cache_bytes, 8u << 20);
    EXPECT_EQ(wide.tier_bytes, 8u << 20);
    base.tier_bytes = 0;
    EXPECT_EQ(settled(1 << 20, base).tier_bytes, 0u);
    base.cache_bytes = std::uint64_t{200} << 30;
    EXPECT_EQ(settled(100, base).page_bytes, 1024u);
    base.cache_bytes = 1 << 20;
    base.tier_bytes = std::uint64_t{1} << 40;
    EXPECT_EQ(settled(100, base).page_bytes, 8192u);
}

TEST(tables_options, memory_of_the_caller_keeps_its_size) {
    std::vector<std::byte> memory((1 << 20) + 256);
    options base;
    base.where = backend::cpu;
    base.cache_memory = reinterpret_cast<void*>(
        (reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
    base.cache_bytes = 1 << 20;
    table_layout layout;
    layout.row_bytes = 1 << 20;
    const options wanted = options_for(layout, base);
    EXPECT_EQ(wanted.cache_bytes, 1u << 20);
    std::unique_ptr<runtime> rt;
    const status s = runtime::make(wanted, rt);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("less than 8 pages"), std::string::npos) << s.message;
}

}  // namespace penstock::test
