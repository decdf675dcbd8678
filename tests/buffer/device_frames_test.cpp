// Pages that move between frames of the host and of a device: on CPU threads and on the GPU.
#include "buffer/pool/device_frames.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "region/support.hpp"

namespace penstock::test {

namespace {

using buffer::direction;
using buffer::frame_move;

class frames : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    }
    static std::unique_ptr<buffer::device_frames> make(const buffer::frames_shape& shape) {
        std::string why;
        auto out = GetParam() == backend::gpu ? buffer::make_gpu_frames(0, shape, why)
                                              : buffer::make_cpu_frames(shape, why);
        EXPECT_NE(out, nullptr) << why;
        return out;
    }
};

// The frames of one thread, and what they should hold. A frame is of one number all over, but for
// its first word, which also says how often it was moved to.
struct shadow {
    shadow(buffer::device_frames& all, std::uint64_t frame_bytes, std::uint32_t first,
           std::uint32_t count)
        : all(all), frame_bytes(frame_bytes), first(first), host(count), device(count, 0) {
        for (std::uint32_t i = 0; i < count; ++i) put(i, host[i] = 1000 * first + i + 1);
    }
    std::byte* frame(std::uint32_t i) const {
        return all.host_frames() + (first + i) * frame_bytes;
    }
    void put(std::uint32_t i, std::uint64_t value) const {
        for (std::uint64_t at = 0; at < frame_bytes; at += 8) {
            const std::uint64_t word = value + at;
            std::memcpy(frame(i) + at, &word, 8);
        }
    }
    // 0 in all words, or a number that grows with the place.
    [[nodiscard]] bool holds(std::uint32_t i, std::uint64_t value) const {
        for (std::uint64_t at = 0; at < frame_bytes; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, frame(i) + at, 8);
            if (word != (value == 0 ? 0 : value + at)) return false;
        }
        return true;
    }
    // Some moves between frames of our own, at random, no frame twice.
    std::vector<frame_move> moves(std::mt19937_64& random, std::uint64_t most) {
        std::vector<std::uint32_t> near(device.size()), far(host.size());
        for (std::uint32_t i = 0; i < near.size(); ++i) near[i] = far[i] = i;
        std::shuffle(near.begin(), near.end(), random);
        std::shuffle(far.begin(), far.end(), random);
        std::vector<frame_move> out(random() % (std::min<std::uint64_t>(most, near.size()) + 1));
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = {first + far[i], first + near[i], static_cast<direction>(random() % 3)};
            if (out[i].way == direction::exchange) std::swap(host[far[i]], device[near[i]]);
            else if (out[i].way == direction::to_host) host[far[i]] = device[near[i]];
            else device[near[i]] = host[far[i]];
        }
        return out;
    }
    buffer::device_frames& all;
    const std::uint64_t frame_bytes;
    const std::uint32_t first;
    std::vector<std::uint64_t> host, device;
};

}  // namespace

TEST_P(frames, hold_what_was_moved_to_them) {
    for (const std::uint64_t frame_bytes : {16u, 64u, 512u, 4096u, 4096u + 16u, 65536u}) {
        const auto all = make({40, 40, frame_bytes, 1, 30});
        shadow expected(*all, frame_bytes, 0, 40);
        std::mt19937_64 random(frame_bytes);
        for (int round = 0; round < 60; ++round) {
            ASSERT_EQ(all->move(0, expected.moves(random, 30)), 0);
            for (std::uint32_t i = 0; i < 40; ++i)
                ASSERT_TRUE(expected.holds(i, expected.host[i]))
                    << frame_bytes << ' ' << round << ' ' << i;
        }
    }
}

// Moves that no caller waits for come before the next requests to their queue: other moves of the
// same frames, and looks at them.
TEST_P(frames, that_were_begun_to_move_are_there_for_what_the_queue_does_next) {
    const auto all = make({40, 40, 4096, 2, 30});
    shadow expected(*all, 4096, 0, 40);
    std::mt19937_64 random(7);
    std::vector<std::uint8_t> equal;
    for (int round = 0; round < 100; ++round) {
        for (int batch = 0; batch < 3; ++batch)
            ASSERT_EQ(all->begin(0, expected.moves(random, 30)), 0);
        if (round % 2 == 0) {
            const auto i = static_cast<std::uint32_t>(random() % 40),
                       k = static_cast<std::uint32_t>(random() % 40);
            ASSERT_EQ(all->compare(0, {{i, k}}, equal), 0);
            ASSERT_EQ(equal[0] == 1, expected.host[i] == expected.device[k]);
        }
        ASSERT_EQ(all->end(0), 0);
        for (std::uint32_t i = 0; i < 40; ++i)
            ASSERT_TRUE(expected.holds(i, expected.host[i])) << round << ' ' << i;
    }
    EXPECT_EQ(all->end(0), 0) << "nothing was begun";
    EXPECT_EQ(all->end(1), 0);
    EXPECT_EQ(all->end(2), -EINVAL);
}

// Each thread has a queue and frames of its own; the host's part is written by the CPU in between.
TEST_P(frames, are_moved_by_many_threads_at_once) {
    constexpr unsigned threads = 4;
    constexpr std::uint32_t each = 64;
    const auto all = make({threads * each, threads * each, 4096, threads, each});
    std::vector<std::jthread> running;
    for (unsigned t = 0; t < threads; ++t)
        running.emplace_back([&, t] {
            shadow expected(*all, 4096, t * each, each);
            std::mt19937_64 random(t);
            for (std::uint64_t round = 0; round < 80; ++round) {
                ASSERT_EQ(all->move(t, expected.moves(random, each)), 0);
                const auto i = static_cast<std::uint32_t>(random() % each);
                ASSERT_TRUE(expected.holds(i, expected.host[i]));
                expected.put(i, expected.host[i] = 1'000'000 * (round + 1) + t);
            }
            for (std::uint32_t i = 0; i < each; ++i)
                ASSERT_TRUE(expected.holds(i, expected.host[i]));
        });
}

TEST_P(frames, that_do_not_exist_are_refused_and_nothing_moves) {
    const auto all = make({4, 4, 64, 2, 3});
    shadow expected(*all, 64, 0, 4);
    EXPECT_EQ(all->move(0, {{0, 0, direction::exchange}, {4, 1, direction::exchange}}), -EINVAL);
    EXPECT_EQ(all->move(0, {{0, 0, direction::exchange}, {1, 4, direction::exchange}}), -EINVAL);
    EXPECT_EQ(all->move(0, {{0, 0, direction::to_host},
                            {1, 1, direction::to_host},
                            {2, 2, direction::to_host},
                            {3, 3, direction::to_host}}),
              -EINVAL);
    EXPECT_EQ(all->move(2, {}), -EINVAL);
    EXPECT_EQ(all->move(1, {}), 0);
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(expected.holds(i, expected.host[i]));
}

INSTANTIATE_TEST_SUITE_P(on, frames, testing::Values(backend::cpu, backend::gpu),
                         [](const testing::TestParamInfo<backend>& info) {
                             return info.param == backend::gpu ? "gpu" : "cpu";
                         });

}  // namespace penstock::test
