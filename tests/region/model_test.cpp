// Random writes, acquires and releases of several regions, of the whole and of parts, and of a
// program that knows nothing of them, against what each must see.
//
// Each byte has one writer, by its number, so what each must see is known: a region its own
// bytes as it wrote them, and the others' as they were in the file when it last acquired. Files are
// compared after releases. (Two that write one byte: region_test.cpp.)
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "fault/plain_environment.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t size = (2 << 20) + 312345;

constexpr std::uint64_t seeds = rounds(std::uint64_t{4});
constexpr int steps = std::max(100, rounds(300));

struct actor {
    std::unique_ptr<file_region> region;
    std::vector<std::uint8_t> sees;
};

struct outcome {
    std::uint64_t wrong = 0, checked = 0, pages_fetched = 0, pages_released = 0,
                  pages_from_neighbours = 0;
};

class region_model {
public:
    // `outside`: a program writes the file too, each fourth byte of it.
    region_model(std::uint64_t seed, backend where, bool outside, host::environment* env = nullptr)
        : random_(seed), where_(where), outside_(outside) {
        write_file(path_, file_ = pattern(seed, size));
        let_files_settle();
        host::runtime_hooks hooks;
        hooks.env = env;
        for (std::size_t i = 0; i < runtimes_.size(); ++i) {  // on two GPUs where there are two
            options o = region_runtime(folder_, where);
            o.device = where == backend::gpu && gpu_count() > 1 ? static_cast<int>(i) : 0;
            runtimes_[i] = make_runtime(o, hooks);
        }
        for (std::size_t i = 0; i < actors_.size(); ++i) map(i);
    }

    outcome run(int steps) {
        for (int i = 0; i < steps && out_.wrong == 0; ++i) step();
        for (std::size_t i = 0; i < actors_.size(); ++i) release(i);
        check_file();
        for (std::size_t i = 0; i < actors_.size(); ++i) {
            acquire(i);
            check(i, 0, size);
        }
        for (const actor& a : actors_) note(*a.region);
        return out_;
    }

private:
    void map(std::size_t holder) {
        actors_[holder].region = map_whole(*runtimes_[holder % 2], path_, protection::read_write,
                                           {.outside_writers = outside_});
        actors_[holder].sees = file_;
    }
    void step() {
        const std::size_t holder = random_() % actors_.size();
        switch (random_() % 16) {
            case 0:
                acquire(holder);
                check(holder, 0, size);
                return;
            case 1: release(holder); return;
            case 2:
                release(holder);
                acquire(holder);
                return;
            case 3: check_file(); return;
            case 4:
                if (random_() % 4 != 0) return;
                note(*actors_[holder].region);
                EXPECT_EQ(actors_[holder].region->close(), 0);
                put(holder, 0, size);
                map(holder);
                return;
            case 5:
            case 6:
                if (outside_) write_outside();
                return;
            case 7: check(holder, random_() % (size - 5000), 5000); return;
            case 8:
                release_and_acquire_parts(holder);
                check(holder, 0, size);
                return;
            default: write(holder);
        }
    }
    // Some of its bytes, from single ones to many pages.
    void write(std::size_t holder) {
        const std::uint64_t length = std::min<std::uint64_t>(
            random_() % 3 == 0 ? random_() % 60000 + 1 : random_() % 64 + 1, size);
        const std::uint64_t at = random_() % (size - length + 1);
        actor& a = actors_[holder];
        for (std::uint64_t i = at; i < at + length; ++i)
            if (owner(i) == holder && random_() % 2 == 0)
                a.sees[i] = static_cast<std::uint8_t>(random_());
        poke(*a.region, where_, at,
             {a.sees.begin() + static_cast<std::ptrdiff_t>(at),
              a.sees.begin() + static_cast<std::ptrdiff_t>(at + length)});
    }
    void write_outside() {
        std::uint64_t at = random_() % size / 4 * 4 + 3;
        for (int i = 0; i < 20 && at < size; ++i, at += random_() % 3000 / 4 * 4 + 4) {
            file_[at] = static_cast<std::uint8_t>(random_());
            patch_file(path_, at, {file_[at]});
        }
    }
    void acquire(std::size_t holder) {
        EXPECT_GE(actors_[holder].region->acquire(), 0);
        take(holder, 0, size);
    }
    void release(std::size_t holder) {
        EXPECT_GE(actors_[holder].region->release(), 0);
        put(holder, 0, size);
    }
    // Of a part, and as requests that go on by themselves, one behind the other.
    void release_and_acquire_parts(std::size_t holder) {
        file_region& r = *actors_[holder].region;
        const region_part out = some_part(), in = some_part();
        if (random_() % 2 == 0) {
            EXPECT_GE(r.release(out), 0);
            EXPECT_GE(r.acquire(in), 0);
        } else {
            const region_request released = r.release_async(out), acquired = r.acquire_async(in);
            EXPECT_GE(acquired.wait(), 0);
            EXPECT_TRUE(released.is_done()) << "they end in order";
            EXPECT_GE(released.wait(), 0);
        }
        put(holder, out.offset, *out.bytes);
        take(holder, in.offset, *in.bytes);
    }
    region_part some_part() {
        const std::uint64_t at = random_() % size;
        return {at, random_() % (size - at)};
    }
    // Whole pages that the part touches.
    static std::uint64_t begin_of(std::uint64_t at) { return at / 4096 * 4096; }
    static std::uint64_t end_of(std::uint64_t at, std::uint64_t bytes) {
        return bytes == 0 ? begin_of(at) : std::min(size, begin_of(at + bytes + 4095));
    }
    void take(std::size_t holder, std::uint64_t at, std::uint64_t bytes) {
        actor& a = actors_[holder];
        for (std::uint64_t i = begin_of(at); i < end_of(at, bytes); ++i)
            if (owner(i) != holder) a.sees[i] = file_[i];
    }
    void put(std::size_t holder, std::uint64_t at, std::uint64_t bytes) {
        for (std::uint64_t i = begin_of(at); i < end_of(at, bytes); ++i)
            if (owner(i) == holder) file_[i] = actors_[holder].sees[i];
    }
    void check(std::size_t holder, std::uint64_t at, std::uint64_t length) {
        const std::vector<std::uint8_t> now = peek(*actors_[holder].region, where_, at, length);
        for (std::uint64_t i = 0; i < length; ++i)
            out_.wrong += now[i] != actors_[holder].sees[at + i] ? 1 : 0;
        out_.checked += length;
    }
    void check_file() {
        const std::vector<std::uint8_t> now = read_file(path_);
        out_.wrong += now.size() != size ? 1 : 0;
        for (std::uint64_t i = 0; i < std::min<std::uint64_t>(size, now.size()); ++i)
            out_.wrong += now[i] != file_[i] ? 1 : 0;
        out_.checked += now.size();
    }
    void note(const file_region& r) {
        out_.pages_fetched += r.traffic().pages_fetched;
        out_.pages_released += r.traffic().pages_released;
        out_.pages_from_neighbours += r.traffic().pages_from_neighbours;
    }
    // 0 to 2: a region; 3: the program, or no writer.
    static std::size_t owner(std::uint64_t byte) { return byte % 4; }

    std::mt19937_64 random_;
    const backend where_;
    const bool outside_;
    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    std::vector<std::uint8_t> file_;  // as it must be
    std::array<std::unique_ptr<runtime>, 2> runtimes_;
    std::array<actor, 3> actors_;
    outcome out_;
};

// Says that it wrote, and did not, each 50th time.
class losing_environment final : public fault::plain_files {
public:
    int open_writing(int handle) override { return real_.open_writing(handle); }
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        if (++writes_ % 50 == 0) return static_cast<std::int64_t>(pieces->bytes);
        return real_.write(fd, pieces, count, offset);
    }

private:
    std::atomic<std::uint64_t> writes_{0};
};

class region_models : public testing::TestWithParam<backend> {
protected:
    static void expect_both_sources(const outcome& o) {
        EXPECT_GT(o.pages_from_neighbours, 0u) << "never met: a page of another region";
        EXPECT_GT(o.pages_fetched, o.pages_from_neighbours) << "never met: a page of the file";
    }
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    }
};

}  // namespace

TEST_P(region_models, regions_and_a_program_that_writes) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const outcome o = region_model(seed, GetParam(), true).run(steps);
        EXPECT_EQ(o.wrong, 0u) << "seed " << seed;
        EXPECT_GT(o.checked, 5 * size);
        expect_both_sources(o);
    }
}

TEST_P(region_models, regions_alone_move_only_what_changed) {
    for (std::uint64_t seed = 11; seed < 11 + seeds; ++seed) {
        const outcome o = region_model(seed, GetParam(), false).run(steps);
        EXPECT_EQ(o.wrong, 0u) << "seed " << seed;
        EXPECT_GT(o.checked, 5 * size);
        expect_both_sources(o);
    }
}

TEST(region_model, a_lost_write_is_found) {
    losing_environment env;
    EXPECT_GT(region_model(21, backend::cpu, false, &env).run(steps).wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(on, region_models, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& info) {
                             return std::string(info.param == backend::gpu ? "gpu" : "cpu");
                         });

}  // namespace penstock::test
