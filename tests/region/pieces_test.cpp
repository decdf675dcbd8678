// A file in pieces: what comes, what leaves, what changed meanwhile, and what is refused. On CPU
// threads and, where there is one, on the GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "fault/faulty_environment.hpp"
#include "fault/plain_environment.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t piece = 2 << 20, pieces = 7, size = (pieces - 1) * piece + 123457;

class piece_test : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        bytes = pattern(3, size);
        write_file(path, bytes);
        rt = make_runtime(region_runtime(folder, GetParam()));
        ASSERT_NE(rt, nullptr);
    }
    // Room for so many pieces.
    void map(std::uint64_t room, piece_options settings = {}) {
        settings.piece_bytes = piece;
        settings.device_bytes = room * piece;
        const status s = map_pieces(*rt, path, settings, file);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    static byte_range range_of(std::uint64_t first, std::uint64_t count = 1) {
        return {first * piece, std::min(count * piece, size - first * piece)};
    }
    [[nodiscard]] std::vector<std::uint8_t> peek(const byte_range& range) const {
        std::vector<std::uint8_t> out(range.bytes);
        copy_bytes(out.data(), static_cast<const std::byte*>(file->data()) + range.offset_bytes,
                   range.bytes, GetParam());
        return out;
    }
    [[nodiscard]] bool is_right(const byte_range& range) const {
        return std::equal(
            bytes.begin() + static_cast<std::ptrdiff_t>(range.offset_bytes),
            bytes.begin() + static_cast<std::ptrdiff_t>(range.offset_bytes + range.bytes),
            peek(range).begin());
    }
    void change(std::uint64_t at, std::uint64_t seed, std::uint64_t count = 1000) {
        const std::vector<std::uint8_t> fresh = pattern(seed, count);
        patch_file(path, at, fresh);
        std::copy(fresh.begin(), fresh.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    std::vector<std::uint8_t> bytes;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_pieces> file;
};

std::string name_of_backend(const testing::TestParamInfo<backend>& info) {
    return info.param == backend::gpu ? "gpu" : "cpu";
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(on, piece_test, testing::Values(backend::cpu, backend::gpu),
                         name_of_backend);

TEST_P(piece_test, come_and_leave_for_a_file_larger_than_the_room) {
    map(3);
    ASSERT_EQ(file->size_bytes(), size);
    ASSERT_EQ(file->piece_bytes(), piece);
    for (int round = 0; round < 2; ++round)
        for (std::uint64_t n = 0; n < pieces; ++n) {
            ASSERT_EQ(file->expect(range_of(n)), 1) << n;
            EXPECT_TRUE(is_right(range_of(n))) << n;
            ASSERT_EQ(file->done(range_of(n)), 0);
        }
    const piece_traffic t = file->traffic();
    EXPECT_EQ(t.pieces_read, 2 * pieces);
    EXPECT_EQ(t.bytes_read, 2 * size);
    EXPECT_EQ(t.pieces_dropped, 2 * pieces - 3);
    EXPECT_EQ(t.bytes_resident, 3 * piece);
    EXPECT_EQ(t.room_bytes, 3 * piece);
}

TEST_P(piece_test, leave_in_the_order_in_which_they_were_expected) {
    let_files_settle();
    map(3);
    const auto use = [&](std::uint64_t n) {
        const std::int64_t came = file->expect(range_of(n));
        EXPECT_EQ(file->done(range_of(n)), 0);
        return came;
    };
    EXPECT_EQ(use(0), 1);
    EXPECT_EQ(use(1), 1);
    EXPECT_EQ(use(2), 1);
    EXPECT_EQ(use(0), 0);
    EXPECT_EQ(use(3), 1);
    EXPECT_TRUE(file->is_resident(range_of(0)));
    EXPECT_FALSE(file->is_resident(range_of(1))) << "it was expected longest ago";
    EXPECT_TRUE(file->is_resident(range_of(2, 2)));
    EXPECT_FALSE(file->is_resident(range_of(0, 4)));
}

TEST_P(piece_test, stay_while_they_are_in_use) {
    let_files_settle();
    map(3);
    ASSERT_EQ(file->expect(range_of(0, 2)), 2);
    ASSERT_EQ(file->expect(range_of(1)), 0) << "a second use";
    EXPECT_EQ(file->expect(range_of(2, 2)), -ENOSPC) << "four pieces";
    EXPECT_FALSE(file->is_resident(range_of(2))) << "nothing came";
    for (std::uint64_t n = 2; n < pieces; ++n) {
        ASSERT_EQ(file->expect(range_of(n)), 1) << n;
        ASSERT_EQ(file->done(range_of(n)), 0);
    }
    EXPECT_TRUE(is_right(range_of(0, 2)));
    ASSERT_EQ(file->done(range_of(0, 2)), 0);
    EXPECT_EQ(file->done(range_of(0)), -EINVAL) << "its use has ended";
    EXPECT_EQ(file->expect(range_of(2, 3)), -ENOSPC) << "piece 1 is in use still";
    ASSERT_EQ(file->done(range_of(1)), 0);
    EXPECT_EQ(file->expect(range_of(2, 3)), 3) << "two leave for them, and piece 6";
    EXPECT_TRUE(is_right(range_of(2, 3)));
    EXPECT_EQ(file->close(), -EBUSY);
    ASSERT_EQ(file->done(range_of(2, 3)), 0);
    EXPECT_EQ(file->close(), 0);
    EXPECT_EQ(file->close(), -EBADF);
    EXPECT_EQ(file->expect(range_of(0)), -EBADF);
}

TEST_P(piece_test, are_told_before_a_launch) {
    map(3);
    const status absent = file->verify(range_of(1));
    EXPECT_EQ(absent.code, -ENODATA);
    EXPECT_NE(absent.message.find("bytes 2097152 to 4194303 are absent; expect()"),
              std::string::npos)
        << absent.message;
    ASSERT_EQ(file->expect(range_of(1)), 1);
    EXPECT_TRUE(file->verify({piece + 17, 100}).ok());
    EXPECT_EQ(file->verify({piece - 17, 100}).code, -ENODATA);
    ASSERT_EQ(file->done(range_of(1)), 0);
    EXPECT_NE(file->verify(range_of(1)).message.find("may leave"), std::string::npos);
    EXPECT_TRUE(file->is_resident(range_of(1)));
    EXPECT_EQ(file->verify({size, 1}).code, -EINVAL);
    EXPECT_EQ(file->expect({size - 1, 2}), -EINVAL);
    EXPECT_EQ(file->expect({size + 1, 0}), -EINVAL);
    EXPECT_EQ(file->expect({UINT64_MAX, 2}), -EINVAL);
    EXPECT_EQ(file->expect({size, 0}), 0) << "no piece";
    EXPECT_EQ(file->done({size, 0}), 0);
}

TEST_P(piece_test, of_several_ranges_come_at_once) {
    map(4);
    const byte_range some[] = {range_of(6), {5, 10}, {piece - 1, 2}, range_of(4)};
    ASSERT_EQ(file->expect(some), 4);
    for (const std::uint64_t n : {0, 1, 4, 6}) EXPECT_TRUE(is_right(range_of(n))) << n;
    EXPECT_FALSE(file->is_resident(range_of(2)));
    EXPECT_EQ(file->done(some), 0);
    EXPECT_EQ(file->done(some), -EINVAL);
}

TEST_P(piece_test, have_what_others_wrote_when_they_come_again) {
    let_files_settle();
    map(3);
    ASSERT_EQ(file->expect(range_of(0, 2)), 2);
    ASSERT_EQ(file->done(range_of(1)), 0);
    const std::vector<std::uint8_t> before = peek(range_of(0));
    change(100, 8);
    change(piece + 100, 9);
    ASSERT_EQ(file->expect(range_of(0, 2)), 1) << "piece 0 is in use and keeps its bytes";
    EXPECT_EQ(peek(range_of(0)), before);
    EXPECT_TRUE(is_right(range_of(1)));
    ASSERT_EQ(file->done(range_of(0, 2)), 0);
    ASSERT_EQ(file->done(range_of(0)), 0);
    EXPECT_GE(file->expect(range_of(0)), 1);
    EXPECT_TRUE(is_right(range_of(0)));
    ASSERT_EQ(file->done(range_of(0)), 0);
    for (std::uint64_t n = 2; n < 5; ++n) {
        ASSERT_EQ(file->expect(range_of(n)), 1);
        ASSERT_EQ(file->done(range_of(n)), 0);
    }
    change(300, 10);
    ASSERT_EQ(file->expect(range_of(0)), 1) << "it had left";
    EXPECT_TRUE(is_right(range_of(0)));
    ASSERT_EQ(file->done(range_of(0)), 0);
}

TEST_P(piece_test, go_to_host_memory_and_come_back) {
    let_files_settle();
    map(2, {.host_bytes = 3 * piece});
    const auto use = [&](std::uint64_t n) {
        ASSERT_EQ(file->expect(range_of(n)), 1) << n;
        EXPECT_TRUE(is_right(range_of(n))) << n;
        ASSERT_EQ(file->done(range_of(n)), 0);
    };
    for (int round = 0; round < 4; ++round)
        for (std::uint64_t n = 0; n < 4; ++n) use(n);
    const piece_traffic t = file->traffic();
    EXPECT_EQ(t.pieces_read, 4u) << "each once";
    EXPECT_EQ(t.pieces_from_host, 12u);
    change(5, 11);
    for (std::uint64_t n = 0; n < 4; ++n) use(n);
    EXPECT_EQ(file->traffic().pieces_from_host, 12u) << "the copies are outdated";
    for (std::uint64_t n = 4; n < pieces; ++n) use(n);
}

TEST_P(piece_test, that_are_absent_read_as_poison) {
    map(2, {.poison_absent = true});
    const auto is_poison = [&](std::uint64_t n) {
        const std::vector<std::uint8_t> got = peek(range_of(n));
        return std::all_of(got.begin(), got.end(), [](std::uint8_t b) { return b == poison_byte; });
    };
    for (std::uint64_t n = 0; n < pieces; ++n) EXPECT_TRUE(is_poison(n)) << n;
    for (std::uint64_t n = 0; n < pieces; ++n) {
        ASSERT_EQ(file->expect(range_of(n)), 1);
        EXPECT_TRUE(is_right(range_of(n))) << n;
        ASSERT_EQ(file->done(range_of(n)), 0);
        if (n >= 2) {
            EXPECT_TRUE(is_poison(n - 2)) << n;
        }
    }
}

TEST_P(piece_test, of_a_file_that_became_shorter_are_refused) {
    map(3);
    ASSERT_EQ(file->expect(range_of(0)), 1);
    std::filesystem::resize_file(path, piece);
    EXPECT_EQ(file->expect(range_of(0)), -ESTALE);
    EXPECT_EQ(file->expect(range_of(1)), -ESTALE);
    EXPECT_FALSE(file->is_resident(range_of(1)));
    EXPECT_TRUE(is_right(range_of(0))) << "what is in use stays";
    EXPECT_EQ(file->done(range_of(0)), 0);
}

TEST_P(piece_test, behind_the_end_of_the_file_are_zeros) {
    map(1);
    ASSERT_EQ(file->expect(range_of(0)), 1);
    ASSERT_EQ(file->done(range_of(0)), 0);
    ASSERT_EQ(file->expect(range_of(6)), 1);
    const std::vector<std::uint8_t> rest = peek({size, pieces * piece - size});
    EXPECT_TRUE(std::all_of(rest.begin(), rest.end(), [](std::uint8_t b) { return b == 0; }));
    ASSERT_EQ(file->done(range_of(6)), 0);
}

TEST_P(piece_test, are_absent_after_an_error_and_come_later) {
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    rt = make_runtime(region_runtime(folder, GetParam()), hooks);
    map(3);
    ASSERT_EQ(file->expect(range_of(0)), 1);
    for (std::uint64_t nth = 1; nth <= 2; ++nth) {
        env.set({.calls = fault::call_read, .nth = nth, .error = -EIO});
        EXPECT_EQ(file->expect(range_of(0, 3)), -EIO) << nth;
        EXPECT_FALSE(file->is_resident(range_of(1, 2)) && nth == 1);
        EXPECT_EQ(file->verify(range_of(1)).code, -ENODATA) << "no use has begun";
        EXPECT_TRUE(is_right(range_of(0)));
    }
    env.clear();
    EXPECT_GE(file->expect(range_of(0, 3)), 1);
    EXPECT_TRUE(is_right(range_of(0, 3)));
    ASSERT_EQ(file->done(range_of(0, 3)), 0);
    ASSERT_EQ(file->done(range_of(0)), 0);
    file.reset();
    rt.reset();
}

TEST_P(piece_test, are_refused_with_the_cure) {
    const auto refusal = [&](const std::string& of, const piece_options& settings) {
        const status s = map_pieces(*rt, of, settings, file);
        EXPECT_NE(s.message.find("; "), std::string::npos) << s.message;
        EXPECT_EQ(file, nullptr);
        return s.code;
    };
    EXPECT_EQ(refusal(path, {.piece_bytes = 0}), -EINVAL);
    EXPECT_EQ(refusal(path, {.piece_bytes = 3 << 20}), -EINVAL);
    EXPECT_EQ(refusal(path, {.device = 77}), -EINVAL);
    EXPECT_EQ(refusal(path, {.piece_bytes = piece, .device_bytes = piece - 1}), -ENOMEM);
    EXPECT_EQ(refusal(folder / "none", {}), -ENOENT);
    EXPECT_EQ(refusal(folder.path(), {}), -EISDIR);
    write_file(folder / "empty", {});
    EXPECT_EQ(refusal(folder / "empty", {}), -EINVAL);
}

TEST_P(piece_test, of_a_small_file_are_one) {
    write_file(path, bytes = pattern(4, 5000));
    ASSERT_TRUE(map_pieces(*rt, path, {}, file).ok());
    EXPECT_EQ(file->piece_bytes(), piece) << "no more than the file needs";
    ASSERT_EQ(file->expect({0, 5000}), 1);
    EXPECT_EQ(peek({0, 5000}), bytes);
    rt.reset();
    EXPECT_EQ(file->done({0, 5000}), 0) << "it outlives its runtime";
    EXPECT_GE(file->expect({0, 5000}), 0);
    EXPECT_EQ(peek({0, 5000}), bytes);
    EXPECT_EQ(file->done({0, 5000}), 0);
}

// On CPU threads a touch of an absent piece, and a store to any, end the process.
TEST_P(piece_test, that_are_absent_are_a_fault) {
    if (GetParam() == backend::gpu) GTEST_SKIP() << "the fault would end the context";
    map(2);
    auto* const at = static_cast<std::uint8_t*>(const_cast<void*>(file->data()));
    std::atomic<std::uint8_t> sink{0};
    EXPECT_DEATH(sink = at[piece], "");
    ASSERT_EQ(file->expect(range_of(1)), 1);
    sink = at[piece];
    EXPECT_DEATH(at[piece] = sink, "");
    EXPECT_EQ(file->done(range_of(1)), 0);
}

namespace {

// Random uses and changes against what each piece must have: the file's bytes when its first use
// began, for as long as it is in use.
struct piece_model {
    std::mt19937_64 random;
    std::uint64_t seed, room, host;
    host::environment* env = nullptr;
    std::uint64_t checked = 0, wrong = 0, refused = 0;

    void run(int steps, backend where) {
        const temporary_folder folder;
        const std::string path = folder / "data";
        std::vector<std::uint8_t> now = pattern(seed, size);
        write_file(path, now);
        host::runtime_hooks hooks;
        hooks.env = env;
        const auto rt = make_runtime(region_runtime(folder, where), hooks);
        std::unique_ptr<file_pieces> file;
        ASSERT_TRUE(
            map_pieces(
                *rt, path,
                {.piece_bytes = piece, .device_bytes = room * piece, .host_bytes = host * piece},
                file)
                .ok());
        std::vector<std::uint64_t> uses(pieces);
        std::vector<std::vector<std::uint8_t>> has(pieces);
        const auto part = [](std::uint64_t n) {
            return byte_range{n * piece, std::min(piece, size - n * piece)};
        };
        for (int step = 0; step < steps && wrong == 0; ++step) {
            const std::uint64_t n = random() % pieces;
            switch (random() % 8) {
                case 0: {
                    const std::uint64_t at = random() % (size - 5000);
                    const std::vector<std::uint8_t> fresh = pattern(random(), 1 + random() % 5000);
                    patch_file(path, at, fresh);
                    std::copy(fresh.begin(), fresh.end(),
                              now.begin() + static_cast<std::ptrdiff_t>(at));
                    break;
                }
                case 1:
                case 2:
                case 3: {
                    std::uint64_t in_use = uses[n] == 0 ? 1 : 0;
                    for (const std::uint64_t u : uses) in_use += u != 0 ? 1 : 0;
                    const std::int64_t came = file->expect(part(n));
                    if (in_use > room) {
                        wrong += came == -ENOSPC ? 0 : 1;
                        ++refused;
                        break;
                    }
                    wrong += came >= 0 ? 0 : 1;
                    if (uses[n]++ == 0)
                        has[n].assign(
                            now.begin() + static_cast<std::ptrdiff_t>(n * piece),
                            now.begin() + static_cast<std::ptrdiff_t>(n * piece + part(n).bytes));
                    break;
                }
                case 4:
                case 5:
                    if (uses[n] == 0) break;
                    wrong += file->done(part(n)) == 0 ? 0 : 1;
                    --uses[n];
                    break;
                default: {
                    wrong += file->verify(part(n)).ok() == (uses[n] != 0) ? 0 : 1;
                    if (uses[n] == 0) break;
                    std::vector<std::uint8_t> got(part(n).bytes);
                    copy_bytes(got.data(), static_cast<const std::byte*>(file->data()) + n * piece,
                               got.size(), where);
                    wrong += got == has[n] ? 0 : 1;
                    ++checked;
                }
            }
        }
        for (std::uint64_t n = 0; n < pieces; ++n)
            for (; uses[n] > 0; --uses[n]) ASSERT_EQ(file->done(part(n)), 0);
        EXPECT_EQ(file->close(), 0);
    }
};

}  // namespace

TEST_P(piece_test, model) {
    for (std::uint64_t seed = 1; seed <= rounds(std::uint64_t{4}); ++seed) {
        piece_model model{std::mt19937_64(seed), seed, 1 + seed % 4, seed % 3};
        model.run(rounds(400, 150), GetParam());
        EXPECT_EQ(model.wrong, 0u) << "seed " << seed;
        EXPECT_GT(model.checked, 5u) << "seed " << seed;
        EXPECT_GT(model.refused, 0u) << "seed " << seed;
    }
}

namespace {

// An operating system that says of no file that it was changed.
class unchanged_times final : public fault::plain_files {
public:
    int facts(int handle, host::file_facts& out) override {
        const int code = real_.facts(handle, out);
        out.identity.modified_ns = out.identity.changed_ns = 1;
        out.exact_times = true;
        out.writing = host::writers::none;
        return code;
    }
};

}  // namespace

// Pieces that do not notice changes of the file are found.
TEST_P(piece_test, model_finds_outdated_bytes) {
    unchanged_times env;
    piece_model model{std::mt19937_64(7), 7, 3, 1, &env};
    model.run(400, GetParam());
    EXPECT_GT(model.wrong, 0u);
}

TEST_P(piece_test, are_used_by_many_threads) {
    let_files_settle();
    map(4);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            std::mt19937_64 random(t);
            for (int i = 0; i < rounds(40); ++i) {
                const byte_range range = range_of(random() % pieces);
                if (file->expect(range) < 0 || !is_right(range) || file->done(range) != 0) ++wrong;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(file->close(), 0);
}

}  // namespace penstock::test
