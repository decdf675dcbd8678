// Element views from host threads. Their lanes' way through a GPU is in tests/device/view_test.cu.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

struct pair16 {
    std::uint64_t a, b;
};

class views : public testing::Test {
protected:
    static constexpr std::uint64_t size = 40 * 4096 + 1003;

    views() : bytes(pattern(5, size)) {
        write_file(folder / "data", bytes);
        rt = make_runtime(small_options(folder));
        fd = rt->open("data");
    }
    template <typename T>
    void expect_all(std::uint64_t offset) {
        const view<T> v(ref, fd, offset);
        ASSERT_EQ(v.size(), (size - offset) / sizeof(T));
        for (std::uint64_t i = 0; i < v.size(); i += 7) {
            const T got = v[i];
            ASSERT_EQ(std::memcmp(&got, bytes.data() + offset + i * sizeof(T), sizeof(T)), 0) << i;
        }
        EXPECT_TRUE(rt->view_status().ok()) << rt->view_status().message;
    }

    const temporary_folder folder;
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    int fd = -1;
    runtime_ref ref{};
    void SetUp() override { ref = rt->ref(); }
};

}  // namespace

TEST_F(views, elements_of_every_size) {
    expect_all<std::uint8_t>(0);
    expect_all<std::int16_t>(6);
    expect_all<float>(4096);
    expect_all<double>(8);
    expect_all<pair16>(16);
    expect_all<std::array<std::uint8_t, 4>>(size - 3 - (size - 3) % 4);
}

TEST_F(views, for_each_visits_every_element_once) {
    const view<std::uint32_t> v(ref, fd, 4);
    for (const auto& [first, count] : {std::pair<std::uint64_t, std::uint64_t>{0, v.size()},
                                       {1000, 3000},
                                       {1023, 1},
                                       {1022, 2},
                                       {0, 0},
                                       {v.size() - 5, 100},
                                       {v.size(), 1}}) {
        const std::uint64_t wanted = first < v.size() ? std::min(count, v.size() - first) : 0;
        std::vector<int> visited(v.size());
        const std::int64_t n =
            v.for_each(lane{}, first, count, [&](std::uint64_t i, std::uint32_t element) {
                ++visited[i];
                ASSERT_EQ(std::memcmp(&element, bytes.data() + 4 + 4 * i, 4), 0) << i;
            });
        EXPECT_EQ(n, static_cast<std::int64_t>(wanted));
        for (std::uint64_t i = 0; i < v.size(); ++i)
            ASSERT_EQ(visited[i], i >= first && i < first + wanted ? 1 : 0) << i;
    }
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr)
        << "a pin was left";
    std::filesystem::resize_file(folder / "data", 20 * 4096);
    rt = make_runtime(small_options(folder));
    ref = rt->ref();
    fd = rt->open("data");
    std::filesystem::resize_file(folder / "data", 10 * 4096);
    const view<std::uint64_t> cut(ref, fd);
    EXPECT_EQ(cut.for_each(lane{}, 0, cut.size(), [](std::uint64_t, std::uint64_t) {}), 10 * 512)
        << "up to the page that is gone";
    EXPECT_EQ(cut.for_each(lane{}, 15 * 512, 1, [](std::uint64_t, std::uint64_t) {}), -ESTALE);
}

TEST_F(views, for_each_leaves_no_pin_where_a_visitor_throws) {
    const view<std::uint32_t> v(ref, fd);
    const auto visit = [](std::uint64_t i, std::uint32_t) {
        if (i == 1500) throw i;
    };
    for (int round = 0; round < 3; ++round)
        EXPECT_THROW(static_cast<void>(v.for_each(lane{}, 0, v.size(), visit)), std::uint64_t);
    EXPECT_EQ(engine::check_invariants(ref.view, {.references = 1}).rule, nullptr)
        << "a pin was left";
}

TEST_F(views, copy_to_gives_a_stretch_at_once) {
    const view<std::uint32_t> v(ref, fd, 4);
    for (const auto& [first, count] : {std::pair<std::uint64_t, std::uint64_t>{0, v.size()},
                                       {1000, 3000},
                                       {1023, 1},
                                       {0, 0},
                                       {v.size() - 5, 100},
                                       {v.size(), 1},
                                       {~std::uint64_t{0}, 5}}) {
        const std::uint64_t wanted = first < v.size() ? std::min(count, v.size() - first) : 0;
        std::vector<std::uint32_t> out(wanted + 8, 0xa5a5a5a5);
        ASSERT_EQ(v.copy_to(out.data(), first, count), static_cast<std::int64_t>(wanted));
        if (wanted > 0) {
            ASSERT_EQ(std::memcmp(out.data(), bytes.data() + 4 + 4 * first, 4 * wanted), 0)
                << first;
        }
        for (std::uint64_t i = wanted; i < out.size(); ++i) ASSERT_EQ(out[i], 0xa5a5a5a5);
    }
    EXPECT_EQ(v.copy_to(nullptr, 0, 1), -EINVAL);
    EXPECT_EQ(v.copy_to(nullptr, 0, 0), 0);
}

TEST_F(views, copy_to_of_a_file_that_shrank) {
    rt = make_runtime(small_options(folder));
    ref = rt->ref();
    fd = rt->open("data");
    std::filesystem::resize_file(folder / "data", 10 * 4096);
    const view<std::uint64_t> v(ref, fd);
    std::vector<std::uint64_t> out(v.size());
    EXPECT_EQ(v.copy_to(out.data(), 0, v.size()), 10 * 512) << "up to the page that is gone";
    EXPECT_EQ(v.copy_to(out.data(), 15 * 512, 1), -ESTALE);
}

TEST_F(views, empty_ones) {
    EXPECT_EQ(view<double>(ref, fd, 4).size(), 0u)
        << "an offset that is no multiple of the element's size";
    EXPECT_EQ(view<double>(ref, fd, 8 * size).size(), 0u);
    EXPECT_EQ(view<double>(ref, -1).size(), 0u);
    EXPECT_EQ(view<double>(ref, fd + 1).size(), 0u);
}

TEST_F(views, the_first_error_is_kept_with_file_and_offset) {
    const view<std::uint32_t> v(ref, fd, 400);
    EXPECT_TRUE(rt->view_status().ok());
    EXPECT_EQ(v[v.size()], 0u);
    EXPECT_EQ(v[~std::uint64_t{0}], 0u);
    status s = rt->view_status();
    EXPECT_EQ(s.code, -ERANGE);
    EXPECT_NE(s.message.find(folder / "data"), std::string::npos) << s.message;
    EXPECT_NE(s.message.find("byte " + std::to_string(400 + 4 * v.size()) + ":"), std::string::npos)
        << s.message;
    rt->clear_view_status();
    EXPECT_TRUE(rt->view_status().ok());
    std::filesystem::resize_file(folder / "data", 4096);
    EXPECT_EQ(v[10000], 0u);
    s = rt->view_status();
    EXPECT_EQ(s.code, -ESTALE);
    EXPECT_NE(s.message.find("byte 40400:"), std::string::npos) << s.message;
}

TEST_F(views, many_threads_one_view) {
    const view<std::uint8_t> v(ref, fd);
    std::atomic<int> wrong{0};
    launch(*rt, 5000, [&](const auto&, const runtime_ref&, std::uint64_t index) {
        for (std::uint64_t k = 0; k < 20; ++k) {
            const std::uint64_t i = mix64(index * 20 + k) % size;
            wrong += v[i] != bytes[i];
        }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(rt->stats().misses, 40u);
}

}  // namespace penstock::test
