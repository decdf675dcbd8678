// The directory of lives that processes read from each other, and the counts by which the host
// waits for readers.
#include <atomic>

#include "links/life_directory.hpp"
#include "links/visit_drain.hpp"
#include "penstock/engine/neighbour.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using namespace host;

constexpr std::uint32_t slots = 32;

// Every word of it follows from one number.
file_life life_with(std::uint32_t slot, std::uint64_t number) {
    const auto wide = static_cast<std::int64_t>(number);
    return {slot,
            static_cast<std::uint32_t>(number % 1000 + 1),
            number % 500,
            number % 2 == 0,
            {number, number + 1, number + 2, wide + 3, wide + 4}};
}

bool is_whole(const file_life& life) {
    const file_life wanted = life_with(life.slot, life.identity.device);
    return life.generation == wanted.generation && life.table == wanted.table &&
           life.two_level == wanted.two_level && life.identity == wanted.identity;
}

life_reader reader_of(const life_directory& directory) {
    return {directory.memory().data(), {slots, 500}};
}

}  // namespace

TEST(life_directory, gives_what_changed_since) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    life_reader reader = reader_of(directory);
    std::vector<std::pair<offered, std::uint32_t>> got;
    const auto take = [&](offered state, const file_life& life) {
        got.emplace_back(state, life.slot);
        EXPECT_TRUE(state == offered::nothing || is_whole(life));
    };
    EXPECT_EQ(reader.read(take), 0u);
    EXPECT_TRUE(got.empty());
    directory.set(life_with(3, 10), offered::to_read);
    directory.set(life_with(5, 11), offered::written);
    EXPECT_EQ(reader.read(take), 2u);
    EXPECT_EQ(got, (std::vector<std::pair<offered, std::uint32_t>>{{offered::to_read, 3},
                                                                   {offered::written, 5}}));
    got.clear();
    directory.set(life_with(3, 10), offered::nothing);
    EXPECT_EQ(reader.read(take), 3u);
    EXPECT_EQ(got, (std::vector<std::pair<offered, std::uint32_t>>{{offered::nothing, 3}}));
    // A newcomer reads all.
    got.clear();
    life_reader late = reader_of(directory);
    EXPECT_EQ(late.read(take), 3u);
    EXPECT_EQ(got.size(), 2u);
}

TEST(life_directory, more_changes_than_the_list_has_miss_none) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    life_reader reader = reader_of(directory);
    reader.read([](offered, const file_life&) {});
    for (std::uint64_t i = 0; i < listed_changes + 7; ++i)
        directory.set(life_with(i < 5 ? 9 : 1, i), offered::to_read);
    bool has_nine = false;
    reader.read([&](offered, const file_life& life) { has_nine = has_nine || life.slot == 9; });
    EXPECT_TRUE(has_nine);
}

// While it is read the list comes round, over a place that was not read yet.
TEST(life_directory, changes_that_come_meanwhile_hide_none) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    life_reader reader = reader_of(directory);
    reader.read([](offered, const file_life&) {});
    directory.set(life_with(4, 1), offered::to_read);
    directory.set(life_with(5, 2), offered::to_read);
    bool has_five = false;
    std::uint64_t left = listed_changes;
    EXPECT_EQ(reader.read([&](offered, const file_life& life) {
        has_five = has_five || life.slot == 5;
        for (; left != 0; --left) directory.set(life_with(1, left), offered::to_read);
    }),
              2u);
    EXPECT_TRUE(has_five);
}

// A writer that was killed in the middle leaves an odd number.
TEST(life_directory, record_under_change_has_no_life_and_is_read_again) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    directory.set(life_with(4, 1), offered::to_read);
    auto* const record =
        reinterpret_cast<life_record*>(directory.memory().data() + sizeof(life_header)) + 4;
    ++record->number;
    life_reader reader = reader_of(directory);
    offered last = offered::written;
    const auto take = [&](offered state, const file_life&) { last = state; };
    reader.read(take);
    EXPECT_EQ(last, offered::nothing);
    ++record->number;
    reader.read(take);
    EXPECT_EQ(last, offered::to_read);
}

TEST(life_directory, values_out_of_bounds_have_no_life) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    const auto last_of = [&](const file_life& life, offered state) {
        life_reader reader = reader_of(directory);
        directory.set(life, state);
        offered last = offered::written;
        reader.read([&](offered got, const file_life&) { last = got; });
        return last;
    };
    file_life life = life_with(0, 3);
    EXPECT_EQ(last_of(life, offered::to_read), offered::to_read);
    EXPECT_EQ(last_of(life, static_cast<offered>(3)), offered::nothing);
    life.table = 500;
    EXPECT_EQ(last_of(life, offered::to_read), offered::nothing);
    life = life_with(0, 3);
    life.generation = engine::file_generation_mask + 1;
    EXPECT_EQ(last_of(life, offered::to_read), offered::nothing);
    life.generation = 0;
    EXPECT_EQ(last_of(life, offered::to_read), offered::nothing);
}

TEST(life_directory, reader_beside_the_writer_finds_whole_records) {
    life_directory directory;
    ASSERT_EQ(directory.make(slots), 0);
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        for (std::uint64_t i = 0; !stop; ++i)
            directory.set(life_with(static_cast<std::uint32_t>(i % slots), i), offered::to_read);
    });
    life_reader reader = reader_of(directory);
    std::uint64_t wrong = 0, taken = 0;
    while (taken < 200000) {
        const std::uint64_t before = taken;
        reader.read([&](offered state, const file_life& life) {
            if (state == offered::nothing) return;
            ++taken;
            wrong += is_whole(life) ? 0 : 1;
        });
        // The writer has no processor; it gets none while the reader looks again and again.
        if (taken == before) std::this_thread::yield();
    }
    stop = true;
    writer.join();
    EXPECT_EQ(wrong, 0u);
    // All that was set is found at rest.
    std::vector<std::uint64_t> seen(slots);
    life_reader late = reader_of(directory);
    const auto note = [&](offered, const file_life& life) {
        seen[life.slot] = life.identity.device;
    };
    late.read(note);
    const std::vector<std::uint64_t> all = seen;
    reader.read(note);
    EXPECT_EQ(seen, all);
}

TEST(visit_drain, waits_for_readers_from_before_and_no_others) {
    const auto device = make_cpu_device();
    engine::cache_view view{};
    view.visits = static_cast<engine::neighbour_visits*>(
        device->allocate_device(sizeof(engine::neighbour_visits)));
    visit_drain<> drain(*device, view.visits);
    const auto steps = [&] {
        for (int i = 0; i < 10; ++i) drain.step();
    };
    EXPECT_TRUE(drain.is_idle());
    EXPECT_EQ(drain.begin(), 1u);
    steps();
    EXPECT_EQ(drain.cycles(), 1u);
    for (std::uint64_t page = 0; page < 100; ++page) {
        engine::neighbour_page before{}, after{};
        before.visit = engine::enter_neighbours(view, page);
        const std::uint64_t ticket = drain.begin();
        steps();
        EXPECT_LT(drain.cycles(), ticket);
        // Readers that come now are not waited for, whatever their number.
        after.visit = engine::enter_neighbours(view, page);
        EXPECT_NE(after.visit, before.visit);
        engine::leave_neighbours(view, before);
        steps();
        EXPECT_GE(drain.cycles(), ticket);
        engine::leave_neighbours(view, after);
        // A cycle that was under way already does not do for what comes later.
        before.visit = engine::enter_neighbours(view, page);
        const std::uint64_t first = drain.begin();
        drain.step();
        const std::uint64_t second = drain.begin();
        EXPECT_GT(second, first);
        engine::leave_neighbours(view, before);
        steps();
        EXPECT_GE(drain.cycles(), second);
    }
}

}  // namespace penstock::test
