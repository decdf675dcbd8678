// The device memory that a runtime says it has allocated.
#include <string>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t frames = 64;

// Of a runtime with rings of a fixed size, which else depends on other options.
std::uint64_t device_bytes(const options& o) {
    host::runtime_hooks hooks;
    hooks.ring_slots = 16;
    const auto rt = make_runtime(o, hooks);
    return rt == nullptr ? 0 : rt->stats().device_bytes;
}

}  // namespace

TEST(device_bytes, grow_with_what_is_asked_for) {
    const temporary_folder folder;
    const options least = small_options(folder, 1);
    const std::uint64_t bytes = device_bytes(least);
    EXPECT_GT(bytes, *least.cache_bytes + least.table_bytes);

    options o = least;
    o.cache_bytes = 2 * frames * page;
    EXPECT_EQ(device_bytes(o) - bytes, frames * (page + sizeof(engine::frame_word)));
    o = least;
    o.table_bytes += 3 << 20;
    EXPECT_EQ(device_bytes(o) - bytes, 3u << 20);
    // Of a page: its number, lock and pristine word, and a bit for each byte.
    o = least;
    o.writable = true;
    EXPECT_EQ(device_bytes(o) - bytes, frames * (page / 8 + 3 * 8) + sizeof(std::uint64_t) +
                                           o.max_files * sizeof(engine::write_record));
    // Host memory is no device memory, but the tier's page words are.
    o = least;
    o.tier_bytes = 16 * page;
    const std::uint64_t with_tier = device_bytes(o);
    o.tier_bytes = 32 * page;
    EXPECT_EQ(device_bytes(o) - with_tier, 16 * 2 * 8u) << "frame word and mark";
    EXPECT_GT(with_tier, bytes + least.table_bytes);
}

TEST(device_bytes, have_the_room_of_tables_from_the_first_table_on) {
    const temporary_folder folder;
    write_file(folder / "rows", pattern(1, 64 * 100));
    table_layout layout{.row_bytes = 64};
    layout.pieces.push_back({folder / "rows", 0, 100});
    const auto rt = make_runtime(small_options(folder, 1));
    const std::uint64_t bytes = rt->stats().device_bytes;
    std::unique_ptr<table> first, second;
    ASSERT_TRUE(table::make(*rt, layout, {}, first).ok());
    const std::uint64_t with_table = rt->stats().device_bytes;
    EXPECT_EQ(with_table - bytes, host::table_room::most_runs * sizeof(engine::table_run) +
                                      host::table_room::most_tables * 8);
    ASSERT_TRUE(table::make(*rt, layout, {}, second).ok());
    first.reset();
    EXPECT_EQ(rt->stats().device_bytes, with_table);
    EXPECT_NE(rt->stats().to_json().find("\"device_bytes\":" + std::to_string(with_table) + ","),
              std::string::npos);
}

}  // namespace penstock::test
