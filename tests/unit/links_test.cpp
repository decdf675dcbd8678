// Linked caches: a runtime of several devices reads each page from the file once, and never a byte
// of another version or another file.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "links/links.hpp"
#include "unit/first_store.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

options linked_caches(const temporary_folder& folder) {
    options o = small_options(folder);
    o.devices = {0, 1};
    o.admit_one_in = 1;
    return o;
}

// Reads a whole file by the cache of one device.
std::vector<std::uint8_t> read_by(runtime& rt, std::uint32_t device, const shared_file& file,
                                  std::uint64_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    const runtime_ref fs = rt.ref(device);
    const std::int64_t done =
        read(lane{}, fs, file.of(fs), out.data(), static_cast<std::int64_t>(bytes), 0);
    out.resize(done < 0 ? 0 : static_cast<std::size_t>(done));
    return out;
}

// Opens the file on one device, reads a part of it and closes it.
int read_part(runtime& rt, std::uint32_t device, const std::string& name, void* to,
              std::uint64_t bytes, std::uint64_t offset) {
    const runtime_ref fs = rt.ref(device);
    const int fd = open(lane{}, fs, name.c_str());
    if (fd < 0) return fd;
    const std::int64_t done = read(lane{}, fs, fd, to, static_cast<std::int64_t>(bytes),
                                   static_cast<std::int64_t>(offset));
    close(lane{}, fs, fd);
    return static_cast<int>(done);
}

}  // namespace

TEST(links, second_device_reads_the_first_ones_pages) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 20 * page + 100);
    write_file(folder / "data", bytes);
    let_files_settle();
    const auto rt = make_runtime(linked_caches(folder));
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0);
    EXPECT_EQ(read_by(*rt, 0, file, bytes.size()), bytes);
    EXPECT_EQ(read_by(*rt, 1, file, bytes.size()), bytes);
    EXPECT_EQ(rt->stats(0).misses, 21u);
    const statistics second = rt->stats(1);
    EXPECT_EQ(second.neighbour_reads + second.neighbour_loads, 21u);
    EXPECT_EQ(second.file_reads, 0u);
}

// A reader that began before has the view of the guest that had the place before.
TEST(links, a_guest_has_entries_only_while_it_is_connected) {
    constexpr std::uint32_t slots = 4;
    const auto device = host::make_cpu_device();
    engine::cache_view view{};
    view.file_slots = slots;
    view.neighbours = static_cast<engine::neighbour_view*>(
        device->allocate_device(sizeof(engine::neighbour_view)));
    view.neighbour_entries = static_cast<engine::neighbour_entry*>(
        device->allocate_device(slots * sizeof(engine::neighbour_entry)));
    host::links all({{device.get(), view}}, 1);
    const host::file_life life{0, 1, 2, false, {1, 2, 3, 4, 5}};
    all.observer(0).entered(life);
    const auto shared_now = [&] {
        all.guest_has(0, life, false);
        all.settle();
        return all.shared_lives();
    };
    for (int round = 0; round < 2; ++round) {
        ASSERT_EQ(all.place(0, engine::neighbour_view{}), 0);
        EXPECT_EQ(shared_now(), 0u) << round;
        all.connect_guest(0);
        EXPECT_EQ(shared_now(), 1u) << round;
        // Its next life in the slot is not written because an earlier one was.
        all.guest_has(0, life, true);
        all.settle();
        EXPECT_EQ(all.shared_lives(), 0u) << round;
        EXPECT_EQ(shared_now(), 1u) << round;
        all.withdraw(0);
        EXPECT_EQ(all.shared_lives(), 0u) << round;
    }
}

// A file that changes between opens, with all its versions still there. Looks are counted, so the
// machine's speed does not matter.
class links_of_versions : public testing::Test {
protected:
    static constexpr std::uint32_t versions = 200;

    links_of_versions() {
        for (int i = 0; i < 2; ++i) {
            engine::cache_view view{};
            view.file_slots = versions;
            view.neighbours = static_cast<engine::neighbour_view*>(
                device->allocate_device(sizeof(engine::neighbour_view)));
            view.neighbour_entries = static_cast<engine::neighbour_entry*>(
                device->allocate_device(versions * sizeof(engine::neighbour_entry)));
            members.push_back({device.get(), view});
        }
        all = std::make_unique<host::links>(members);
        for (const std::uint32_t i : {0u, 1u})
            EXPECT_EQ(all->connect(i, 1 - i, engine::same_memory), 0);
    }
    static host::file_life life_of(std::uint32_t i) { return {i, 1, 2, false, {1, 2, 3, i, i}}; }
    void open_all() {
        for (std::uint32_t i = 0; i < versions; ++i)
            for (const std::uint32_t member : {0u, 1u}) {
                all->observer(member).entered(life_of(i));
                all->settle();
            }
    }

    const std::unique_ptr<host::cache_device> device = host::make_cpu_device();
    std::vector<host::links::member> members;
    std::unique_ptr<host::links> all;
};

TEST_F(links_of_versions, each_open_looks_at_the_lives_of_its_own_version) {
    open_all();
    EXPECT_EQ(all->shared_lives(), 2u * versions);
    EXPECT_LE(all->looks(), 10u * versions);
    for (std::uint32_t i = 0; i < versions; ++i)
        for (const std::uint32_t member : {0u, 1u}) {
            all->observer(member).ended(life_of(i));
            all->settle();
        }
    EXPECT_EQ(all->shared_lives(), 0u);
    EXPECT_LE(all->looks(), 20u * versions);
}

TEST_F(links_of_versions, a_writer_of_one_takes_away_the_entries_of_all) {
    open_all();
    const std::uint64_t before = all->looks();
    all->observer(1).written(life_of(7));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 0u);
    all->observer(0).written(life_of(8));
    all->observer(1).ended(life_of(7));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 0u) << "another writer is left";
    all->observer(0).ended(life_of(8));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 2u * (versions - 2));
    EXPECT_LE(all->looks() - before, 20u * versions);
}

// A rename changed its times between the open and the first write.
TEST_F(links_of_versions, a_life_with_new_times_has_its_place_among_those) {
    all->observer(0).entered(life_of(1));
    all->observer(1).entered(life_of(1));
    host::file_life renamed = life_of(1);
    renamed.identity.changed_ns = 9;
    all->observer(0).written(renamed);
    all->settle();
    EXPECT_EQ(all->shared_lives(), 0u);
    all->observer(0).ended(renamed);
    all->observer(1).ended(life_of(1));
    all->observer(1).entered(life_of(1));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 0u);
    all->observer(0).entered(life_of(1));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 2u);
}

TEST_F(links_of_versions, an_open_to_read_beside_a_writer_ends_no_writer) {
    all->observer(1).entered(life_of(0));
    all->observer(0).written(life_of(0));
    all->observer(0).entered(life_of(0));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 0u);
    all->observer(0).ended(life_of(0));
    all->observer(0).entered(life_of(0));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 2u) << "the writer is gone with that life";
}

TEST_F(links_of_versions, the_end_of_an_earlier_life_is_no_end_of_the_later) {
    host::file_life later = life_of(0);
    later.generation = 2;
    all->observer(0).entered(later);
    all->observer(1).entered(life_of(0));
    all->observer(0).ended(life_of(0));
    all->settle();
    EXPECT_EQ(all->shared_lives(), 2u);
}

// A reader that finds the life believes the table.
TEST_F(links_of_versions, the_life_of_an_entry_comes_after_its_table) {
    const void* stored = nullptr;
    const first_store met([&](const void* at) { stored = at; });
    auto* const entries = reinterpret_cast<engine::neighbour_entry*>(met.memory());
    members[0].view.neighbour_entries = entries;
    host::links of_two(members);
    for (const std::uint32_t i : {0u, 1u})
        ASSERT_EQ(of_two.connect(i, 1 - i, engine::same_memory), 0);
    for (const std::uint32_t i : {0u, 1u}) of_two.observer(i).entered(life_of(0));
    of_two.settle();
    EXPECT_EQ(stored, &entries[0].table);
    EXPECT_NE(entries[0].life, 0u);
    EXPECT_EQ(entries[0].table, life_of(0).table);
}

TEST_F(links_of_versions, that_were_all_taken_away_do_not_come_again) {
    open_all();
    all->withdraw_all();
    EXPECT_EQ(all->shared_lives(), 0u);
    for (const std::uint32_t member : {0u, 1u}) {
        all->observer(member).ended(life_of(3));
        all->observer(member).entered(life_of(3));
        all->settle();
    }
    EXPECT_EQ(all->shared_lives(), 0u);
}

TEST(links, none_where_the_option_is_off) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 20 * page + 100);
    write_file(folder / "data", bytes);
    let_files_settle();
    options o = linked_caches(folder);
    o.links = false;
    const auto rt = make_runtime(o);
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0);
    EXPECT_EQ(read_by(*rt, 0, file, bytes.size()), bytes);
    EXPECT_EQ(read_by(*rt, 1, file, bytes.size()), bytes);
    EXPECT_EQ(rt->stats(1).misses, 21u);
    EXPECT_EQ(rt->stats().neighbour_reads + rt->stats().neighbour_loads, 0u);
}

TEST(links, mapped_and_prefetched_pages_are_copied) {
    const temporary_folder folder;
    const auto bytes = pattern(2, 8 * page);
    write_file(folder / "data", bytes);
    let_files_settle();
    const auto rt = make_runtime(linked_caches(folder));
    const shared_file file = rt->open_everywhere(folder / "data");
    EXPECT_EQ(read_by(*rt, 1, file, bytes.size()), bytes);
    const runtime_ref fs = rt->ref(0);
    const mapping m = map(lane{}, fs, file.of(fs), page, 100);
    ASSERT_EQ(m.bytes, 100);
    EXPECT_EQ(std::memcmp(m.data, bytes.data() + page, 100), 0);
    EXPECT_EQ(unmap(lane{}, fs, m), 0);
    EXPECT_EQ(prefetch(lane{}, fs, file.of(fs), 0, static_cast<std::int64_t>(bytes.size())),
              static_cast<std::int64_t>(bytes.size()));
    EXPECT_EQ(rt->stats(0).neighbour_loads, 8u);
    EXPECT_EQ(rt->stats(0).file_reads, 0u);
}

TEST(links, prefetch_everywhere_reads_the_file_once) {
    const temporary_folder folder;
    const auto bytes = pattern(9, 50 * page + 10);
    write_file(folder / "data", bytes);
    let_files_settle();
    options o = linked_caches(folder);
    o.devices = {0, 1, 2};
    const auto rt = make_runtime(o);
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0);
    EXPECT_EQ(rt->prefetch(file), static_cast<std::int64_t>(bytes.size()));
    const statistics s = rt->stats();
    EXPECT_EQ(s.misses, 3 * 51u);
    EXPECT_EQ(s.neighbour_loads, 2 * 51u);
    EXPECT_EQ(s.file_read_bytes, bytes.size());
    EXPECT_EQ(rt->prefetch(file, static_cast<std::int64_t>(bytes.size())), 0);
    EXPECT_EQ(rt->prefetch(file, -1, 10), -EINVAL);
    rt->close(file);
    EXPECT_EQ(rt->prefetch(file), -EBADF);
}

// While a program has the file open for writing it may change and look the same.
TEST(links, file_that_may_change_unseen_is_not_shared) {
    const temporary_folder folder;
    const auto bytes = pattern(3, 4 * page);
    const auto rt = make_runtime(linked_caches(folder));
    write_file(folder / "data", bytes);
    const int program = ::open((folder / "data").c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(program, 0);
    const shared_file file = rt->open_everywhere(folder / "data");
    EXPECT_EQ(read_by(*rt, 0, file, bytes.size()), bytes);
    EXPECT_EQ(read_by(*rt, 1, file, bytes.size()), bytes);
    EXPECT_EQ(rt->stats().neighbour_reads + rt->stats().neighbour_loads, 0u);
    ::close(program);
}

TEST(links, writers_are_alone) {
    const temporary_folder folder;
    const auto before = pattern(4, 4 * page), after = pattern(5, 4 * page);
    write_file(folder / "data", before);
    let_files_settle();
    options o = linked_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    const runtime_ref writer = rt->ref(1);
    const shared_file file = rt->open_everywhere(folder / "data");
    EXPECT_EQ(read_by(*rt, 1, file, before.size()), before);
    const int fd = open(lane{}, writer, "data", open_read_write);
    ASSERT_GE(fd, 0) << error_text(fd);
    ASSERT_EQ(write(lane{}, writer, fd, after.data(), static_cast<std::int64_t>(after.size()), 0),
              static_cast<std::int64_t>(after.size()));
    // What is not in the file yet is not seen by the other device.
    EXPECT_EQ(read_by(*rt, 0, file, before.size()), before);
    EXPECT_EQ(rt->stats(0).neighbour_reads + rt->stats(0).neighbour_loads, 0u);
    EXPECT_EQ(close(lane{}, writer, fd), 0);
    rt->close(file);
    std::vector<std::uint8_t> got(after.size());
    EXPECT_EQ(read_part(*rt, 0, "data", got.data(), got.size(), 0), 4 * static_cast<int>(page));
    EXPECT_EQ(got, after);
}

TEST(links, changed_file_is_another_file) {
    const temporary_folder folder;
    const auto before = pattern(6, 4 * page), after = pattern(7, 4 * page);
    write_file(folder / "data", before);
    let_files_settle();
    const auto rt = make_runtime(linked_caches(folder));
    std::vector<std::uint8_t> got(before.size());
    EXPECT_GT(read_part(*rt, 0, "data", got.data(), got.size(), 0), 0);
    EXPECT_EQ(got, before);
    write_file(folder / "data", after);
    let_files_settle();
    EXPECT_GT(read_part(*rt, 1, "data", got.data(), got.size(), 0), 0);
    EXPECT_EQ(got, after);
    EXPECT_EQ(rt->stats(1).neighbour_reads + rt->stats(1).neighbour_loads, 0u);
    // The first device opens it again, and finds the second one's pages.
    EXPECT_GT(read_part(*rt, 0, "data", got.data(), got.size(), 0), 0);
    EXPECT_EQ(got, after);
    EXPECT_EQ(rt->stats(0).neighbour_reads + rt->stats(0).neighbour_loads, 4u);
}

// More files than slots and more pages than frames on both sides, by several threads on each.
TEST(links, slots_and_frames_change_hands) {
    constexpr std::uint32_t files = 24, pages = 16, threads = 4, rounds = 1500;
    const temporary_folder folder;
    for (std::uint32_t i = 0; i < files; ++i)
        write_file(folder / std::to_string(i), pattern(100 + i, pages * page));
    let_files_settle();
    options o = linked_caches(folder);
    o.max_files = 16;
    o.cache_bytes = 24 * page;
    o.admit_one_in = 4;
    const auto rt = make_runtime(o);
    std::atomic<std::uint64_t> wrong{0}, done{0};
    std::vector<std::thread> all;
    for (std::uint32_t t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            std::mt19937_64 random(t);
            std::vector<std::uint8_t> got(3 * page);
            for (std::uint32_t round = 0; round < rounds; ++round) {
                const std::uint64_t file = random() % files, offset = random() % (pages * page),
                                    bytes = 1 + random() % (3 * page);
                const int code =
                    read_part(*rt, t % 2, std::to_string(file), got.data(), bytes, offset);
                if (code == -ENFILE || code == -ENOMEM) continue;
                if (code < 0) ++wrong;
                for (std::int64_t i = 0; i < code; ++i)
                    wrong += got[i] != pattern_byte(100 + file, offset + i);
                ++done;
            }
        });
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(done, rounds);
    EXPECT_GT(rt->stats().neighbour_reads + rt->stats().neighbour_loads, 0u);
}

}  // namespace penstock::test
