// Writable views on the cpu back end: elements by themselves, additions by many threads, and what
// is refused.
#include <atomic>
#include <cstring>
#include <thread>

#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

class write_view : public testing::Test {
protected:
    static options writing_options(const temporary_folder& folder) {
        options o = small_options(folder);
        o.writable = true;
        o.cache_bytes = 16 * 4096;
        return o;
    }
    template <typename T>
    std::vector<T> elements_of_file() {
        std::ifstream in(path, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
        std::vector<T> out(bytes.size() / sizeof(T));
        std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
        return out;
    }
    void expect_sound() {
        const engine::invariant_report found = engine::check_invariants(rt->ref().view, {});
        EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    }

    temporary_folder folder;
    std::unique_ptr<runtime> rt = make_runtime(writing_options(folder));
    const runtime_ref fs = rt->ref();
    const std::string path = folder / "elements";
};

struct three_of_16 {
    std::uint32_t a, b, c, d;
};

TEST_F(write_view, fills_a_new_file) {
    const int fd = rt->open(path, open_read_write | open_create);
    constexpr std::uint64_t count = 9000;  // 18 pages through a cache of 16
    const writable_view<std::uint64_t> v(fs, fd, count);
    ASSERT_EQ(v.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) v[(i * 7919) % count] = (i * 7919) % count * 3;
    EXPECT_EQ(static_cast<std::uint64_t>(v[777]), 777 * 3u);
    v[5] = v[6];
    ASSERT_EQ(rt->close(fd), 0);
    const auto now = elements_of_file<std::uint64_t>();
    ASSERT_EQ(now.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(now[i], (i == 5 ? 6 : i) * 3) << i;
    EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    expect_sound();
}

TEST_F(write_view, every_size_of_element_at_an_offset) {
    const int fd = rt->open(path, open_read_write | open_create);
    const writable_view<std::uint8_t> bytes(fs, fd, 16, 0);
    const writable_view<std::uint16_t> halves(fs, fd, 8, 16);
    const writable_view<float> floats(fs, fd, 4, 32);
    const writable_view<three_of_16> wide(fs, fd, 2, 48);
    for (std::uint8_t i = 0; i < 16; ++i) bytes[i] = i;
    for (std::uint16_t i = 0; i < 8; ++i) halves[i] = static_cast<std::uint16_t>(1000 + i);
    for (int i = 0; i < 4; ++i)
        floats[static_cast<std::uint64_t>(i)] = 0.5f * static_cast<float>(i);
    wide[1] = three_of_16{1, 2, 3, 4};
    ASSERT_EQ(rt->close(fd), 0);
    const auto now = elements_of_file<std::uint8_t>();
    ASSERT_EQ(now.size(), 80u);
    EXPECT_EQ(now[15], 15);
    std::uint16_t half = 0;
    std::memcpy(&half, &now[16 + 14], 2);
    EXPECT_EQ(half, 1007);
    float number = 0;
    std::memcpy(&number, &now[32 + 12], 4);
    EXPECT_EQ(number, 1.5f);
    EXPECT_EQ(now[48], 0) << "not written";
    EXPECT_EQ(now[76], 4);
    expect_sound();
}

TEST_F(write_view, no_addition_is_lost) {
    const int fd = rt->open(path, open_read_write | open_create);
    constexpr std::uint64_t counters = 8500;  // 17 pages, of which 16 fit
    const writable_view<std::uint64_t> v(fs, fd, counters);
    const writable_view<double> sum(fs, fd, 1, counters * 8);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < 10000; ++i) {
                v.atomic_add(mix64(t * 10000 + i) % counters, 1);
                if (i % 100 == 0) sum.atomic_add(0, 0.25);
            }
        });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(rt->close(fd), 0);
    std::vector<std::uint64_t> expected(counters + 1);
    for (std::uint64_t i = 0; i < 40000; ++i) ++expected[mix64(i) % counters];
    const double total = 100.0;
    std::memcpy(&expected[counters], &total, 8);
    EXPECT_EQ(elements_of_file<std::uint64_t>(), expected);
    EXPECT_EQ(rt->view_status().code, 0) << rt->view_status().message;
    expect_sound();
}

TEST_F(write_view, only_the_element_is_written) {
    write_file(path, pattern(3, 8192));
    auto expected = pattern(3, 8192);
    const int fd = rt->open(path, open_write);
    const writable_view<std::uint32_t> v(fs, fd, 2048);
    v[1023] = 0x01020304u;
    {
        std::fstream beside(path, std::ios::in | std::ios::out | std::ios::binary);
        beside.seekp(4091);
        beside.put('!');  // the byte before it, by another program
    }
    ASSERT_EQ(rt->close(fd), 0);
    expected[4091] = '!';
    for (int i = 0; i < 4; ++i)
        expected[4092 + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(4 - i);
    EXPECT_EQ(elements_of_file<std::uint8_t>(), expected);
}

TEST_F(write_view, says_what_it_cannot) {
    write_file(path, pattern(4, 100));
    const int reading = rt->open(path), fd = rt->open(path, open_read_write);
    EXPECT_EQ(writable_view<int>(fs, reading, 10).size(), 0u) << "not open for writing";
    EXPECT_EQ(writable_view<int>(fs, fd, 10, 2).size(), 0u) << "no multiple of four";
    EXPECT_EQ(writable_view<int>(fs, fd, ~std::uint64_t{0}).size(), 0u);
    EXPECT_EQ(writable_view<int>(fs, 4711, 10).size(), 0u);
    const writable_view<int> v(fs, fd, 10);
    v[10] = 1;
    const status found = rt->view_status();
    EXPECT_EQ(found.code, -ERANGE);
    EXPECT_NE(found.message.find("elements"), std::string::npos) << found.message;
    rt->clear_view_status();
    const writable_view<int> far(fs, fd, 1000);
    EXPECT_EQ(static_cast<int>(far[500]), 0) << "behind the end";
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(reading), 0);
    EXPECT_EQ(elements_of_file<std::uint8_t>(), pattern(4, 100)) << "as it was";
}

}  // namespace penstock::test
