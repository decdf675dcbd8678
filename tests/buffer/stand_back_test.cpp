// A buffer that stands back from its device: nothing is lost by it, and it costs what `native`
// does. Time is counted in reads of the disk and moves of the device, so no clock is asked.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "buffer/simulated_part.hpp"
#include "buffered_file.hpp"

namespace penstock::test::stand_back_of {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

constexpr std::uint64_t page_bytes = 512, host = 64, device = 64, pages = 640;

struct ticking_clock {
    std::uint64_t read_ns = 36'000, move_ns = 20'000, moves = 0, before = 0;
    const fault::faulty_environment* disk = nullptr;

    [[nodiscard]] std::uint64_t now() const {
        return before + moves * move_ns + (disk != nullptr ? disk->calls() * read_ns : 0);
    }
    // From now on reads and moves take so long.
    void set(std::uint64_t read, std::uint64_t move) {
        const std::uint64_t then = now();
        read_ns = read, move_ns = move;
        before = 0;
        before = then - now();
    }
};

class counted_frames final : public buffer::device_frames {
public:
    counted_frames(frames_owner real, ticking_clock& clock)
        : real_(std::move(real)), clock_(clock) {}
    [[nodiscard]] std::byte* host_frames() const override { return real_->host_frames(); }
    int begin(unsigned queue, const std::vector<buffer::frame_move>& batch) override {
        ++clock_.moves;
        return real_->begin(queue, batch);
    }
    int end(unsigned queue) override { return real_->end(queue); }
    int compare(unsigned queue, const std::vector<buffer::frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        return real_->compare(queue, pairs, equal);
    }
    int hash(unsigned queue, buffer::signature_kind kind, const std::vector<std::uint32_t>& frames,
             std::vector<buffer::content_hash>& out) override {
        return real_->hash(queue, kind, frames, out);
    }

private:
    const frames_owner real_;
    ticking_clock& clock_;
};

struct timed_buffer {
    explicit timed_buffer(backend where, bool stands_back = true,
                          order_kind order = order_kind::lru)
        : content(pattern(7, pages * page_bytes)) {
        manager_settings settings = small(host, device, order, page_bytes);
        settings.stands_back = stands_back;
        settings.begins = buffer::begun_reads::none;
        settings.clock = [this] { return clock.now(); };
        file = std::make_unique<buffered_file>(settings, content, where, [&](frames_owner real) {
            return std::make_unique<counted_frames>(std::move(real), clock);
        });
        file->env.set({.calls = fault::call_read});  // counts them
        clock.disk = &file->env;
        session = file->all->open_session();
    }
    ~timed_buffer() {
        session.reset();
        clock.disk = nullptr;
        file.reset();
    }

    void read(std::uint64_t page) {
        fixed_page fixed;
        ASSERT_EQ(session->fix({page, 0}, use_kind::read, fixed), 0);
        EXPECT_EQ(std::memcmp(fixed.data, content.data() + page * page_bytes, page_bytes), 0)
            << page;
        session->unfix(fixed, false);
    }
    void write(std::uint64_t page, std::uint8_t value) {
        fixed_page fixed;
        ASSERT_EQ(session->fix({page, 0}, use_kind::write, fixed), 0);
        fixed.data[5] = std::byte{value};
        content[page * page_bytes + 5] = value;
        session->unfix(fixed, true);
    }
    void read_many(std::uint64_t count, std::uint64_t seed = 1) {
        const page_sequence of = uniform(pages, seed);
        for (std::uint64_t i = 0; i < count; ++i) read(of(i));
    }
    [[nodiscard]] buffer::manager_counts counts() const { return file->all->counts(); }

    ticking_clock clock;
    bytes content;
    std::unique_ptr<buffered_file> file;
    std::unique_ptr<buffer::session> session;
};

using stand_back = on_backends;

}  // namespace

TEST_P(stand_back, costs_no_more_than_native_where_the_device_is_slow) {
    constexpr std::uint64_t accesses = 20'000;
    timed_buffer part(GetParam().where), always(GetParam().where, false);
    part.read_many(accesses);
    always.read_many(accesses);
    const buffer::manager_counts seen = part.counts(), all = always.counts();
    EXPECT_TRUE(seen.stands_back);
    EXPECT_GE(seen.stand_backs, 1u);
    // What the device answers changes places with a victim, at no cost of its own.
    EXPECT_LT(seen.demotions - seen.promotions, accesses / 20);
    EXPECT_GT(seen.kept_back, accesses / 2);
    // Under LRU `native` reads each page that is not in the host.
    const auto native = static_cast<double>((accesses - seen.host_hits) * part.clock.read_ns);
    EXPECT_EQ(seen.host_hits, all.host_hits);
    EXPECT_LT(static_cast<double>(part.clock.now()), 1.02 * native);
    EXPECT_GT(static_cast<double>(always.clock.now()), 1.1 * native);  // the canary
    // What the time of requests is, and the device's part of it.
    EXPECT_EQ(seen.request_ns, part.clock.now());
    EXPECT_EQ(seen.device_ns, part.clock.moves * part.clock.move_ns);
}

TEST_P(stand_back, uses_the_device_again_when_the_disk_becomes_slow) {
    timed_buffer part(GetParam().where);
    part.read_many(10'000);
    ASSERT_TRUE(part.counts().stands_back);
    const std::uint64_t hits = part.counts().device_hits;
    part.clock.set(5'000'000, 20'000);
    part.read_many(60'000, 2);
    EXPECT_FALSE(part.counts().stands_back);
    EXPECT_GT(part.counts().device_hits - hits, 60'000u / 20);
    part.file->expect_right();
}

// A page that was changed and lies in the device has no other place: it comes from there, however
// slow the device is.
TEST_P(stand_back, loses_no_changed_page_that_the_device_has) {
    timed_buffer part(GetParam().where, true, order_kind::clock);
    for (std::uint64_t page = 0; page < pages; ++page)  // some of these go there
        part.write(page, static_cast<std::uint8_t>(page));
    part.clock.set(1'000, 1'000'000);
    const std::uint64_t before = part.counts().device_hits;
    part.read_many(10'000);
    EXPECT_TRUE(part.counts().stands_back);
    EXPECT_GT(part.counts().device_hits, before);
    ASSERT_EQ(part.session->flush(0), 0);
    EXPECT_EQ(part.file->on_disk(), part.content);
    part.file->expect_right();
}

// Random reads and writes while the device and the disk change their times, and fail.
TEST_P(stand_back, loses_nothing_where_times_change_and_the_disk_fails) {
    std::uint64_t stand_backs = 0, demotions = 0, kept_back = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        timed_buffer part(GetParam().where, true,
                          seed % 2 == 0 ? order_kind::lru : order_kind::clock);
        std::mt19937_64 random(seed);
        const int operations = rounds(20'000);
        for (int i = 0; i < operations; ++i) {
            if (i % 2000 == 0)
                part.clock.set(1'000 + random() % 200'000, 1'000 + random() % 100'000);
            if (seed > 2 && i % 100 == 0) {
                fail_somehow(part.file->env, random);
                part.clock.disk = nullptr;  // its calls begin again
                part.clock.moves += random() % 10;
            }
            const std::uint64_t page = random() % pages;
            fixed_page fixed;
            const use_kind kind = random() % 3 == 0 ? use_kind::write : use_kind::read;
            const int code = part.session->fix({page, 0}, kind, fixed);
            if (seed <= 2) {
                ASSERT_EQ(code, 0);
            }
            if (code != 0) continue;
            ASSERT_EQ(std::memcmp(fixed.data, part.content.data() + page * page_bytes, page_bytes),
                      0)
                << "seed " << seed << ", operation " << i << ", page " << page;
            if (kind == use_kind::write) {
                const auto value = static_cast<std::uint8_t>(random());
                fixed.data[5] = std::byte{value};
                part.content[page * page_bytes + 5] = value;
            }
            part.session->unfix(fixed, kind == use_kind::write);
        }
        part.file->env.clear();
        EXPECT_EQ(part.session->flush(0), 0);
        EXPECT_EQ(part.file->on_disk(), part.content) << "seed " << seed;
        part.file->expect_right();
        stand_backs += part.counts().stand_backs;
        demotions += part.counts().demotions;
        kept_back += part.counts().kept_back;
    }
    EXPECT_GT(stand_backs, 2u);
    const std::uint64_t few = rounds(std::uint64_t{20'000}) / 5;
    EXPECT_GT(demotions, few);
    EXPECT_GT(kept_back, few);
}

INSTANTIATE_TEST_SUITE_P(on, stand_back,
                         testing::Values(buffer_kind(backend::cpu), buffer_kind(backend::gpu)),
                         name_of);

}  // namespace penstock::test::stand_back_of
