// What windows take they give back: words, handles, shares of the handles of the process, and
// memory that devices share.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "fault/scenario.hpp"
#include "files/file_registry.hpp"
#include "service/size_asker.hpp"
#include "service/windows.hpp"
#include "soon.hpp"
#include "unit/first_store.hpp"
#include "unit/parts_in_memory.hpp"

namespace penstock::fault {

namespace {

// Sets of one device each, with words for one file that is in memory.
class window_accounts : public testing::Test {
protected:
    static constexpr std::uint32_t slots = 8;
    static constexpr std::uint64_t words_of_file = 2, size = engine::window_chunk_bytes + 5000;
    static constexpr auto all_of_it = static_cast<std::int64_t>(size);

    struct one_set {
        std::array<std::uint64_t, slots> words{};
        std::array<std::uint64_t, words_of_file> chunks{};
        std::unique_ptr<host::window_set> set;
    };

    window_accounts() {
        test::write_file(path, test::pattern(3, size));
        in_memory.bring_in(path);
        env.allow_leases();
        const int found = env.find(-1, path);
        fd = env.open_found(found);
        env.close(found);
    }
    ~window_accounts() override { env.close(fd); }
    void make(one_set& of) {
        engine::cache_view view{};
        view.windows = of.words.data();
        view.window_chunks = of.chunks.data();
        of.set = std::make_unique<host::window_set>(
            env, *device, view, of.chunks.size(),
            host::window_rules{.runs = runs, .watched = &watched});
    }
    std::int64_t open_in(one_set& of, std::uint32_t slot, std::uint32_t generation = 1) {
        return of.set->open({slot, generation, fd, size}, 0, size, note);
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    test::parts_in_memory in_memory;
    faulty_environment env;
    const std::unique_ptr<host::cache_device> device = host::make_cpu_device();
    const std::shared_ptr<host::window_runs> runs =
        std::make_shared<host::window_runs>(env, *device, 2, slots* size);
    std::atomic<std::size_t> watched{0};
    int fd = -1;
    std::string note;
    one_set first, second;
};

}  // namespace

TEST_F(window_accounts, what_is_closed_is_free_for_the_next_file) {
    make(first);
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
        ASSERT_EQ(open_in(first, slot), all_of_it) << slot;
        EXPECT_EQ(first.set->open_bytes(), size);
        EXPECT_EQ(open_in(first, slot + 1), -ENOSPC) << "there are words for one file";
        EXPECT_EQ(first.set->open_files(), 1u);
        EXPECT_EQ(watched, 1u);
        first.set->close_all();
        EXPECT_EQ(first.set->open_bytes(), 0u);
        EXPECT_EQ(first.set->open_files(), 0u);
        EXPECT_EQ(watched, 0u);
        EXPECT_EQ(runs->exposed_bytes(), 0u);
    }
}

TEST_F(window_accounts, a_file_of_which_nothing_could_be_opened_takes_nothing) {
    make(first);
    const int before = env.handles();
    for (int i = 0; i < 3; ++i) {
        env.set({.calls = call_map, .nth = 1, .for_ever = true, .error = -ENOMEM});
        EXPECT_EQ(open_in(first, 1), -ENOMEM);
        EXPECT_EQ(env.handles(), before);
        EXPECT_EQ(first.set->open_files(), 0u);
        EXPECT_EQ(watched, 0u);
        env.set({.calls = call_open_found, .nth = 1, .for_ever = true, .error = -EMFILE});
        EXPECT_EQ(open_in(first, 1), -EMFILE);
        EXPECT_EQ(watched, 0u) << "it has no handle, and so no share of them";
    }
    env.clear();
    EXPECT_EQ(open_in(first, 1), all_of_it);
}

// It has no end that memory could be taken for.
TEST_F(window_accounts, a_file_that_is_written_has_no_window) {
    make(first);
    EXPECT_EQ(first.set->open({1, 1, fd, host::size_of_written}, 0, INT64_MAX, note), -ENOSPC);
    EXPECT_EQ(first.set->open_files(), 0u);
    EXPECT_EQ(open_in(first, 1), all_of_it);
}

// A later life of the slot has no window, so the word of the earlier one goes.
TEST_F(window_accounts, the_window_of_an_earlier_life_of_the_slot_goes) {
    make(first);
    ASSERT_EQ(open_in(first, 5), all_of_it);
    EXPECT_NE(first.words[5], 0u);
    EXPECT_EQ(open_in(first, 5, 2), -ENOSPC) << "devices may still read the words of the first";
    EXPECT_EQ(first.words[5], 0u);
    EXPECT_EQ(watched, 0u);
}

// A reader that finds the window word believes the words of its chunks.
TEST_F(window_accounts, the_word_of_a_window_comes_after_the_words_of_its_chunks) {
    auto chunks_then = second.chunks;
    const test::first_store met([&](const void*) { chunks_then = first.chunks; });
    engine::cache_view view{};
    view.windows = reinterpret_cast<std::uint64_t*>(met.memory());
    view.window_chunks = first.chunks.data();
    first.set = std::make_unique<host::window_set>(env, *device, view, first.chunks.size(),
                                                   host::window_rules{.runs = runs});
    ASSERT_EQ(open_in(first, 1), all_of_it);
    ASSERT_TRUE(met.was_met());
    EXPECT_NE(view.windows[1], 0u);
    for (const std::uint64_t chunk : chunks_then) EXPECT_NE(chunk, 0u);
    first.set.reset();
}

// Whatever the writer does to pages and times: memory from before its open is shared with no set
// that opens windows after it.
TEST_F(window_accounts, memory_of_a_window_that_a_writer_ended_is_not_shared_any_more) {
    make(first), make(second);
    ASSERT_EQ(open_in(first, 1), all_of_it);
    ASSERT_EQ(open_in(second, 1), all_of_it);
    const auto old = first.chunks;
    if (second.chunks != old) GTEST_SKIP() << "no leases on this file system";
    second.set->close_all();
    std::jthread writer([&] { ::close(::open(path.c_str(), O_WRONLY | O_CLOEXEC)); });
    EXPECT_TRUE(soon([&] {
        first.set->watch();
        return first.set->open_files() == 0;
    }));
    writer.join();
    ASSERT_EQ(open_in(second, 1), all_of_it);
    for (std::size_t i = 0; i < old.size(); ++i) EXPECT_NE(second.chunks[i], old[i]) << i;
}

// Of files whose sizes a thread asks for.
TEST(size_asker, handles_go_when_they_are_given_up_and_with_the_end) {
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(3, 5000));
    faulty_environment env;
    const int found = env.find(-1, folder / "data");
    const auto open = [&] { return env.open_found(found); };
    const int before = env.handles();
    {
        host::size_asker asker(env);
        const std::array<int, 3> fds{open(), open(), open()};
        for (const int fd : fds) asker.add(fd, 5000);
        asker.close(fds[1]);  // no beat follows that would ask
        EXPECT_TRUE(soon([&] { return env.handles() == before + 2; }));
        EXPECT_FALSE(asker.is_shorter(fds[0]));
        EXPECT_FALSE(asker.is_shorter(fds[2]));
    }
    EXPECT_EQ(env.handles(), before);
    env.close(found);
}

}  // namespace penstock::fault
