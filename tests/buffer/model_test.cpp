// Random accesses, pins and flushes over tiny buffers, with every byte and every count looked at
// after each.
#include "buffer/world.hpp"

namespace penstock::buffer::test {

namespace {

class dice {
public:
    explicit dice(std::uint64_t seed) : state_(mix64(seed + 1)) {}
    std::uint64_t below(std::uint64_t limit) {
        return mix64(state_ += 0x9e3779b97f4a7c15ull) % limit;
    }

private:
    std::uint64_t state_;
};

template <typename Core>
class random_run {
public:
    // `rests`: the device takes no pages now and then.
    random_run(const limits& most, std::uint64_t seed, bool rests = false)
        : world_(most),
          most_(most),
          rests_(rests),
          dice_(seed),
          pages_(4 + dice_.below(20)),
          contents_(2 + dice_.below(30)) {
        for (std::uint64_t page = 0; page < 2 * pages_; ++page)
            world_.put_on_disk(name(page), drawn());
    }

    // The number of the first step after which something was wrong, or 0.
    int play(int steps) {
        for (int at = 1; at <= steps; ++at) {
            step();
            if (failure_ = world_.wrong(); !failure_.empty()) return at;
        }
        return 0;
    }
    [[nodiscard]] const std::string& failure() const { return failure_; }
    world<Core>& around() { return world_; }

private:
    static page_id name(std::uint64_t page) {
        return {page / 2, static_cast<std::uint32_t>(page % 2)};
    }

    // A third of the blocks are alone.
    values drawn() {
        values out;
        for (std::uint32_t i = 0; i < most_.blocks_per_page; ++i)
            out.push_back(dice_.below(3) == 0 ? first_alone + ++made_ : 1 + dice_.below(contents_));
        return out;
    }
    void step() {
        const page_id id = name(dice_.below(2 * pages_));
        if (rests_ && dice_.below(8) == 0) world_.core.set_demotes(dice_.below(2) == 0);
        switch (dice_.below(16)) {
            case 0:
                if (world_.core.pin(id) == 0) pinned_.push_back(id);
                break;
            case 1:
                if (pinned_.empty()) break;
                EXPECT_EQ(world_.core.unpin(pinned_.back()), 0);
                pinned_.pop_back();
                break;
            case 2: world_.flush(static_cast<std::uint32_t>(dice_.below(2))); break;
            case 3:
                if (world_.core.inside().block_of(id, 0) != nullptr &&
                    std::find(pinned_.begin(), pinned_.end(), id) == pinned_.end())
                    world_.forget(id);
                break;
            case 4:
            case 5:
            case 6:
            case 7: world_.write(id, drawn()); break;
            default: world_.read(id);
        }
    }

    world<Core> world_;
    limits most_;
    const bool rests_;
    dice dice_;
    std::uint64_t pages_, contents_, made_ = 0;
    std::vector<page_id> pinned_;
    std::string failure_;
};

template <typename Core>
void run_all(std::uint64_t first_seed, bool rests = false) {
    counts all;
    for (const std::uint32_t blocks : {1u, 2u, 4u})
        for (std::uint64_t seed = first_seed; seed < first_seed + 8; ++seed) {
            dice from(seed);
            limits most = sizes(1 + from.below(4), from.below(5), blocks, 1 + from.below(24));
            const std::uint32_t frames = most.host_frames() + most.device_frames(),
                                choices[] = {0, 1, blocks, 2 * frames};
            most.absent_blocks = choices[seed % 4];
            random_run<Core> run(most, seed, rests);
            EXPECT_EQ(run.play(1500), 0)
                << run.failure() << "; seed " << seed << ", H " << most.host_pages << ", G "
                << most.device_pages << ", D " << blocks << ", table " << most.pages << ", absent "
                << most.absent_blocks;
            all.vanished += run.around().moved.vanished;
            all.demoted += run.around().moved.demoted;
            all.promoted += run.around().moved.promoted;
            all.written_from_device += run.around().moved.written_from_device;
        }
    EXPECT_GT(all.demoted, 1000u);
    EXPECT_GT(all.promoted, 1000u);
    EXPECT_GT(all.written_from_device, 100u);
    EXPECT_GT(all.vanished, 100u);
}

}  // namespace

TEST(buffer_model, no_byte_and_no_count_is_wrong_under_lru) { run_all<core<lru_order>>(1); }

TEST(buffer_model, no_byte_and_no_count_is_wrong_under_clock) { run_all<core<clock_order>>(100); }

TEST(buffer_model, no_byte_and_no_count_is_wrong_where_the_device_rests_now_and_then) {
    run_all<core<lru_order>>(200, true);
    run_all<core<clock_order>>(300, true);
}

TEST(buffer_model, an_exchange_that_only_copies_is_found) {
    random_run<core<lru_order>> run(sizes(2, 3, 2, 20), 3);
    run.around().copies_only = true;
    EXPECT_NE(run.play(1500), 0);
    EXPECT_NE(run.failure().find("other bytes"), std::string::npos) << run.failure();
}

}  // namespace penstock::buffer::test
