// Iterators over the elements of a file by the algorithms of the standard library. CUB and Thrust
// have tests/device/file_iterator_test.cu.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <numeric>
#include <thread>

#include "penstock/engine/invariants.hpp"
#include "rounds.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

struct wide {
    std::uint64_t words[8];
    bool operator==(const wide&) const = default;
};

static_assert(std::random_access_iterator<file_iterator<double>>);
static_assert(std::sized_sentinel_for<file_iterator<float>, file_iterator<float>>);
static_assert(std::is_trivially_copyable_v<file_iterator<wide>>);
static_assert(sizeof(file_iterator<int>) == 64, "kernels take it by value");

// A file of 160 pages in a cache of 64.
class file_iterators : public testing::Test {
protected:
    static constexpr std::uint64_t size = 160 * page + 1003;

    file_iterators() : bytes(pattern(5, size)) {
        write_file(folder / "data", bytes);
        rt = make_runtime(small_options(folder));
        fd = rt->open("data");
    }
    template <typename T>
    [[nodiscard]] std::vector<T> elements(std::uint64_t offset = 0) const {
        std::vector<T> out((size - offset) / sizeof(T));
        if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size() * sizeof(T));
        return out;
    }
    template <typename T>
    [[nodiscard]] file_range<T> range(std::uint64_t offset = 0) const {
        file_range<T> out;
        const status s = file_range<T>::make(*rt, fd, {.offset_bytes = offset}, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    template <typename T>
    void expect_all(std::uint64_t offset) {
        const std::vector<T> expected = elements<T>(offset);
        const file_range<T> got = range<T>(offset);
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_EQ(got.end() - got.begin(), static_cast<std::ptrdiff_t>(expected.size()));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
};

}  // namespace

TEST_F(file_iterators, give_elements_of_every_size) {
    expect_all<std::uint8_t>(0);
    expect_all<std::int16_t>(6);
    expect_all<std::uint32_t>(4096);
    expect_all<std::uint64_t>(8);
    expect_all<std::array<std::uint64_t, 2>>(16);
    expect_all<std::array<std::uint64_t, 4>>(64);
    expect_all<wide>(64);
    expect_all<std::array<std::uint8_t, 4>>(size - 3 - (size - 3) % 4);
    EXPECT_EQ(engine::check_invariants(rt->ref().view, {.references = 1}).rule, nullptr)
        << "a pin was left";
    EXPECT_GT(rt->stats().evictions, 1000u) << "the file is larger than the cache";
}

TEST_F(file_iterators, serve_algorithms) {
    const std::vector<std::uint64_t> expected = elements<std::uint64_t>();
    const file_range<std::uint64_t> got = range<std::uint64_t>();
    const std::uint64_t sum = std::accumulate(expected.begin(), expected.end(), std::uint64_t{0});
    EXPECT_EQ(std::accumulate(got.begin(), got.end(), std::uint64_t{0}), sum);
    EXPECT_EQ(std::reduce(got.begin(), got.end()), sum);
    EXPECT_EQ(*std::max_element(got.begin(), got.end()),
              *std::max_element(expected.begin(), expected.end()));
    EXPECT_EQ(std::find(got.begin(), got.end(), expected[12345]) - got.begin(), 12345);
    std::vector<std::uint64_t> copied(expected.size());
    std::copy(got.begin(), got.end(), copied.begin());
    EXPECT_EQ(copied, expected);
    std::copy(std::make_reverse_iterator(got.end()), std::make_reverse_iterator(got.begin()),
              copied.rbegin());
    EXPECT_EQ(copied, expected);
    EXPECT_EQ(
        std::inner_product(got.begin(), got.end(), got.begin(), std::uint64_t{0}),
        std::inner_product(expected.begin(), expected.end(), expected.begin(), std::uint64_t{0}));
}

TEST(evaluated_numbers, are_as_they_were) {
    EXPECT_EQ(evaluated(-7), -7);
    EXPECT_EQ(evaluated(~std::uint64_t{0}), ~std::uint64_t{0});
    EXPECT_EQ(evaluated(1.5f), 1.5f);
    EXPECT_EQ(evaluated(-2.25), -2.25);
}

TEST_F(file_iterators, search_a_sorted_file) {
    std::vector<std::uint32_t> sorted(100'000);
    for (std::uint32_t i = 0; i < sorted.size(); ++i) sorted[i] = 3 * i + 1;
    std::vector<std::uint8_t> raw(sorted.size() * 4);
    std::memcpy(raw.data(), sorted.data(), raw.size());
    write_file(folder / "sorted", raw);
    file_range<std::uint32_t> got;
    const shared_file file = rt->open_everywhere(folder / "sorted");
    ASSERT_TRUE(file_range<std::uint32_t>::make(*rt, file, {}, got).ok());
    for (std::uint32_t value = 0; value < 300'010; value += 777)
        ASSERT_EQ(std::lower_bound(got.begin(), got.end(), value) - got.begin(),
                  std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin())
            << value;
    EXPECT_TRUE(std::binary_search(got.begin(), got.end(), 30001u));
    EXPECT_FALSE(std::binary_search(got.begin(), got.end(), 30002u));
    EXPECT_TRUE(std::ranges::is_sorted(got.begin(), got.end()));
}

TEST_F(file_iterators, count_as_pointers_do) {
    const std::vector<std::uint16_t> expected = elements<std::uint16_t>(2);
    const file_range<std::uint16_t> got = range<std::uint16_t>(2);
    const auto i = got.begin();
    auto j = i;
    EXPECT_EQ(*j++, expected[0]);
    EXPECT_EQ(*j, expected[1]);
    EXPECT_EQ(*++j, expected[2]);
    EXPECT_EQ(*j--, expected[2]);
    EXPECT_EQ(*--j, expected[0]);
    EXPECT_EQ(j, i);
    j += 5000;
    EXPECT_EQ(*j, expected[5000]);
    EXPECT_EQ(j[-4999], expected[1]);
    EXPECT_EQ(*(7 + j), expected[5007]);
    EXPECT_EQ(*(j - 7), expected[4993]);
    j -= 4998;
    EXPECT_EQ(j - i, 2);
    EXPECT_EQ(i - j, -2);
    EXPECT_TRUE(i < j && j > i && i <= j && j >= i && i != j && i <= i && !(i < i));
    EXPECT_LT(i - 5, i) << "also before the first byte of the file";
    EXPECT_EQ(got[77], expected[77]);
    file_iterator<std::uint16_t> nothing;
    nothing = j;
    EXPECT_EQ(*nothing, expected[2]);
}

TEST_F(file_iterators, note_the_first_element_that_cannot_be_had) {
    const file_range<std::uint32_t> got = range<std::uint32_t>(4);
    EXPECT_EQ(*got.end(), 0u);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    EXPECT_NE(rt->view_status().message.find("data"), std::string::npos)
        << rt->view_status().message;
    rt->clear_view_status();
    EXPECT_EQ(got.begin()[-2], 0u);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    rt->clear_view_status();
    std::filesystem::resize_file(folder / "data", 10 * page);
    EXPECT_EQ(got[100], elements<std::uint32_t>(4)[100]) << "is still there";
    EXPECT_EQ(got[got.size() - 1], 0u);
    EXPECT_EQ(rt->view_status().code, -ESTALE);
    EXPECT_NE(rt->view_status().message.find(std::to_string(4 + 4 * (got.size() - 1))),
              std::string::npos)
        << rt->view_status().message;
}

TEST_F(file_iterators, outside_the_range_are_zeros_wherever_that_would_lie) {
    const auto expect_outside = [&](std::uint32_t value, std::uint64_t at) {
        EXPECT_EQ(value, 0u);
        const status s = rt->view_status();
        EXPECT_EQ(s.code, -ERANGE);
        EXPECT_NE(s.message.find("byte " + std::to_string(at)), std::string::npos) << s.message;
        rt->clear_view_status();
    };
    constexpr std::uint64_t last_byte = INT64_MAX;
    const runtime_ref ref = rt->ref();
    const file_range<std::uint32_t> made(ref, fd, 4000);
    for (const file_range<std::uint32_t>& some : {range<std::uint32_t>(4000), made}) {
        expect_outside(some[some.size()], 4000 + 4 * some.size());
        expect_outside(some[(std::uint64_t{1} << 62) + 7], last_byte);
        expect_outside(some[UINT64_MAX], last_byte);
        expect_outside(*(some.begin() - 1), 3996);
        expect_outside(some.begin()[-1000], 0);
        expect_outside(some.begin()[-1001], 0);
        expect_outside(*some.end(), 4000 + 4 * some.size());
        EXPECT_EQ(some.end()[-1], some[some.size() - 1]);
    }
    const view<std::uint32_t> v(ref, fd, 4000);
    expect_outside(v[v.size()], 4000 + 4 * v.size());
    expect_outside(v[(std::uint64_t{1} << 62) + 7], last_byte);
}

TEST_F(file_iterators, are_refused_with_the_cure) {
    file_range<std::uint64_t> out = range<std::uint64_t>();
    const auto refusal = [&](int of, const range_options& settings) {
        const status s = file_range<std::uint64_t>::make(*rt, of, settings, out);
        EXPECT_NE(s.message.find("; "), std::string::npos) << s.message;
        EXPECT_EQ(out.size(), size / 8) << "stays as it was";
        return s.code;
    };
    EXPECT_EQ(refusal(fd, {.offset_bytes = 4}), -EINVAL);
    EXPECT_EQ(refusal(fd, {.device = 99}), -EINVAL);
    EXPECT_EQ(refusal(-1, {}), -EBADF);
    const int other = rt->open("data");
    rt->close(other);
    rt->close(fd);
    EXPECT_EQ(refusal(fd, {}), -EBADF);
    const runtime_ref ref = rt->ref();
    const file_range<std::uint64_t> closed(ref, fd);
    EXPECT_TRUE(closed.empty());
    EXPECT_EQ(closed[0], 0u);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    EXPECT_EQ(file_range<std::uint64_t>()[3], 0u);
}

TEST_F(file_iterators, of_an_offset_behind_the_end_are_none) {
    EXPECT_EQ(range<std::uint32_t>(size + 1 + (4 - (size + 1) % 4) % 4).size(), 0u);
    EXPECT_TRUE(range<std::uint64_t>(size / 8 * 8).empty());
    write_file(folder / "nothing", {});
    fd = rt->open("nothing");
    EXPECT_TRUE(range<std::uint64_t>().empty());
}

TEST_F(file_iterators, are_made_of_a_reference_too) {
    const runtime_ref ref = rt->ref();
    const file_range<std::uint64_t> got(ref, fd, 8);
    const std::vector<std::uint64_t> expected = elements<std::uint64_t>(8);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
    EXPECT_TRUE(file_range<std::uint64_t>(ref, fd, 4).empty()) << "no multiple of the element";
}

TEST_F(file_iterators, go_through_a_table_of_leaves) {
    options o = small_options(folder);
    o.page_bytes = 512;
    o.table_bytes = 64 << 10;
    rt = make_runtime(o);
    std::vector<std::uint8_t> long_bytes = pattern(9, 3 << 20);
    write_file(folder / "long", long_bytes);
    fd = rt->open("long");
    ASSERT_GE(fd, 0);
    const file_range<std::uint64_t> got = range<std::uint64_t>();
    ASSERT_EQ(got.size(), long_bytes.size() / 8);
    for (std::uint64_t i = 0; i < got.size(); i += 61) {
        std::uint64_t expected = 0;
        std::memcpy(&expected, long_bytes.data() + 8 * i, 8);
        ASSERT_EQ(got[i], expected) << i;
    }
}

// What a kernel appended is behind the words that the table had when the file was opened.
TEST_F(file_iterators, see_what_the_file_grew_by) {
    options o = small_options(folder);
    o.writable = true;
    rt = make_runtime(o);
    fd = rt->open("data", open_read_write);
    ASSERT_GE(fd, 0);
    const std::vector<std::uint8_t> more = pattern(11, 40 * page + 5);
    ASSERT_EQ(rt->append(fd, more.data(), static_cast<std::int64_t>(more.size())),
              static_cast<std::int64_t>(size));
    bytes.insert(bytes.end(), more.begin(), more.end());
    const file_range<std::uint8_t> got = range<std::uint8_t>();
    ASSERT_EQ(got.size(), bytes.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin(), bytes.end()));
}

// Readers of one range on many threads, each of a cache that has room for a few of their pages,
// while others drag other pages through it: no element of another page may come.
TEST_F(file_iterators, are_right_while_pages_leave) {
    options o = small_options(folder);
    o.cache_bytes = 16 * page;
    rt = make_runtime(o);
    fd = rt->open("data");
    write_file(folder / "other", pattern(6, size));
    const int other = rt->open("other");
    const file_range<std::uint64_t> got = range<std::uint64_t>();
    file_range<wide> noise;
    ASSERT_TRUE(file_range<wide>::make(*rt, other, {}, noise).ok());
    std::atomic<std::uint64_t> wrong{0}, torn{0};
    std::vector<std::thread> threads;
    constexpr auto reads = rounds<std::uint64_t>(16000, 1000);  // of a thread
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t round = 0; round < reads; ++round) {
                const std::uint64_t i = mix64(t * reads + round) % got.size();
                std::uint64_t expected = 0;
                std::memcpy(&expected, bytes.data() + 8 * i, 8);
                if (got.begin()[static_cast<std::ptrdiff_t>(i)] != expected) ++wrong;
                const std::uint64_t k = mix64(round * 4 + t) % noise.size();
                const wide seen = noise[k];
                for (std::uint64_t b = 0; b < sizeof seen; ++b)
                    if (reinterpret_cast<const std::uint8_t*>(&seen)[b] !=
                        pattern_byte(6, k * sizeof seen + b)) {
                        ++torn;
                        break;
                    }
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(torn, 0u);
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    EXPECT_GT(rt->stats().evictions, reads + reads / 4);
    EXPECT_EQ(engine::check_invariants(rt->ref().view, {.references = 2}).rule, nullptr);
}

}  // namespace penstock::test
