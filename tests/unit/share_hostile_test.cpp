// A share whose other end lies, says nothing, or ends in the middle: a line that says why, and on
// without it. Seeds are fixed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "unit/share_pretender.hpp"

namespace penstock::test {

using namespace host;

TEST_F(share, last_of_a_name_takes_the_folder_away_and_a_newcomer_makes_it_again) {
    auto first = std::make_unique<rendezvous>();
    rendezvous newcomer;
    ASSERT_TRUE(first->open("test").ok());
    ASSERT_EQ(first->listen(), 0);
    {
        rendezvous other;
        ASSERT_TRUE(other.open("test").ok());
        ASSERT_EQ(other.listen(), 0);
    }
    EXPECT_EQ(socket_count(), 1u);
    ASSERT_TRUE(newcomer.open("test").ok());
    first.reset();
    EXPECT_FALSE(std::filesystem::exists(sockets()));
    EXPECT_TRUE(newcomer.take_turn());
    EXPECT_EQ(newcomer.listen(), -ENOENT);
    ASSERT_TRUE(newcomer.open("test").ok());
    EXPECT_TRUE(newcomer.take_turn());
    EXPECT_EQ(newcomer.listen(), 0);
    EXPECT_EQ(socket_count(), 1u);
}

// As a stopped process would keep it.
TEST_F(hostile_share, forks_do_not_wait_for_a_turn_that_another_has) {
    rendezvous other;
    ASSERT_TRUE(other.open("test").ok());
    ASSERT_TRUE(other.take_turn());
    const auto handles_of_folder = [&] {
        std::size_t count = 0;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
            if (std::filesystem::read_symlink(entry.path(), ignored) == sockets()) ++count;
        return count;
    };
    options o = shared();
    o.host_wait_ms = 60'000;
    std::atomic<bool> is_made{false};
    std::unique_ptr<runtime> rt;
    std::thread maker([&] {
        rt = make_runtime(o);
        is_made = true;
    });
    EXPECT_TRUE(soon([&] { return handles_of_folder() == 2; }));
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const pid_t child = ::fork();
        if (child == 0) ::_exit(0);
        EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    }
    EXPECT_FALSE(is_made);
    other.end_turn();
    maker.join();
    EXPECT_NE(rt, nullptr);
}

TEST_F(hostile_share, other_layout_is_said) {
    const auto rt = make_runtime(shared());
    pretender other;
    other.hello.message.layout ^= 1;
    other.connect(sockets());
    other.greet();
    EXPECT_TRUE(says("is not linked: it is of another version of Penstock"));
}

// The hello of a version to come may have more words than this one has room for.
TEST_F(hostile_share, longer_hello_is_of_another_version) {
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    std::vector<std::byte> longer(sizeof other.hello.message + 64);
    std::memcpy(longer.data(), &other.hello.message, sizeof other.hello.message);
    other.send(longer.data(), longer.size(), other.fds());
    EXPECT_TRUE(says("is not linked: it is of another version of Penstock"));
    EXPECT_EQ(log().find("no message of a link"), std::string::npos);
}

// One that has ended before it was greeted was never there.
TEST_F(hostile_share, newcomers_that_have_gone_are_not_said) {
    const auto rt = make_runtime(quick());
    for (int i = 0; i < 200; ++i) {
        pretender other;
        other.connect(sockets());
        other.socket.reset();
    }
    const auto second = make_runtime(quick());
    EXPECT_TRUE(are_linked(*rt, *second)) << log();
    EXPECT_EQ(log().find("EPIPE"), std::string::npos);
}

TEST_F(hostile_share, sizes_that_the_memory_does_not_have_are_said) {
    const auto rt = make_runtime(shared());
    pretender large;
    large.hello.message.frames_bytes *= 2;
    large.connect(sockets());
    large.greet();
    EXPECT_TRUE(says("is not linked: its memory is smaller than it says"));
    pretender many;
    many.hello.message.frame_count *= 2;
    many.connect(sockets());
    many.greet();
    EXPECT_TRUE(says("is not linked: what it tells of its sizes is wrong"));
    // Each of these alone.
    for (const auto& change : std::vector<std::function<void(link_hello&)>>{
             [](link_hello& h) { h.writes_bytes = 4096; }, [](link_hello& h) { h.writes = 1; },
             [](link_hello& h) { h.word_count = h.words_bytes / 8 + 1; },
             [](link_hello& h) { h.word_count = 0; },
             [](link_hello& h) { h.file_slots = h.file_words_bytes / 8 + 1; },
             [](link_hello& h) {
                 h.file_slots = h.file_words_bytes / 8 + 1;
                 h.directory_bytes = directory_bytes(h.file_slots);
             },
             [](link_hello& h) { h.file_slots = engine::max_file_slots + 1; },
             [](link_hello& h) { h.leaf_shift = 64; },
             [](link_hello& h) { h.frame_count = UINT64_MAX; },
             [](link_hello& h) { h.directory_bytes = 0; },
             [](link_hello& h) { std::memset(h.identity, 'x', sizeof h.identity); }}) {
        link_hello changed = pretender().hello.message;
        EXPECT_EQ(why_not(changed, sizeof changed, 4, 12), "");
        change(changed);
        EXPECT_EQ(why_not(changed, sizeof changed, 4, 12), "what it tells of its sizes is wrong");
    }
    link_hello writes = pretender().hello.message;
    writes.writes = 1;
    writes.writes_bytes = pretender::slots * sizeof(engine::write_record);
    EXPECT_EQ(why_not(writes, sizeof writes, 5, 12), "");
    --writes.writes_bytes;
    EXPECT_EQ(why_not(writes, sizeof writes, 5, 12), "what it tells of its sizes is wrong");
}

// Memory that may become shorter would end the reader with a signal.
TEST_F(hostile_share, memory_without_a_seal_is_refused) {
    const auto rt = make_runtime(shared());
    pretender other;
    const owned_fd loose(::memfd_create("loose", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(loose.get(), 1 << 20), 0);
    std::vector<int> fds = other.fds();
    fds[2] = loose.get();
    other.connect(sockets());
    other.send(&other.hello.message, sizeof other.hello.message, fds);
    EXPECT_TRUE(says("is not linked: its memory is not sealed"));
    EXPECT_EQ(mappings_of(fds[0]), 1) << "this process has it for itself";
}

// So would memory of which there is none when it is read.
TEST_F(hostile_share, memory_of_huge_pages_is_refused) {
    const owned_fd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!huge) GTEST_SKIP() << "no huge pages here";
    ASSERT_EQ(::ftruncate(huge.get(), 1 << 30), 0);
    ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    const auto rt = make_runtime(shared());
    pretender other;
    std::vector<int> fds = other.fds();
    fds[2] = huge.get();
    other.connect(sockets());
    other.send(&other.hello.message, sizeof other.hello.message, fds);
    EXPECT_TRUE(says("is not linked: its memory is of huge pages"));
}

TEST_F(hostile_share, silence_is_not_waited_for) {
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    EXPECT_TRUE(says("does not say what it shares; it is no longer linked"));
    EXPECT_TRUE(soon([&] { return linked(*rt) == 0; }));
}

// An open for writing waits for its answer, for as long as was said.
TEST_F(hostile_share, open_for_writing_does_not_wait_for_ever) {
    const std::string path = make_file("data", pattern(1, 2 * page));
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    other.greet();
    ASSERT_TRUE(soon([&] { return linked(*rt) == 1; }));
    const int fd = rt->open(path, open_read_write);
    EXPECT_GE(fd, 0) << error_text(fd);
    EXPECT_TRUE(says("did not answer for 1000 ms when a file was opened for writing"));
    EXPECT_EQ(linked(*rt), 0u);
    rt->close(fd);
    // Its socket is closed, after a bye.
    EXPECT_TRUE(soon([&] {
        char byte[512];
        return ::recv(other.socket.get(), byte, sizeof byte, MSG_DONTWAIT) == 0;
    }));
}

// It answers ahead of time for all that is to come, and nothing when it is asked.
TEST_F(hostile_share, answer_of_more_than_there_is_counts_for_no_later_open) {
    const std::string path = make_file("data", pattern(1, 2 * page));
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    other.greet();
    ASSERT_TRUE(soon([&] { return linked(*rt) == 1; }));
    other.say(link_verb::seen, UINT64_MAX);
    other.say(link_verb::changed, 1);  // which is answered after the words before it were heard
    EXPECT_TRUE(soon([&] {
        link_hello room;  // the largest message
        received_fds fds;
        return receive_message(other.socket.get(), &room, sizeof room, fds) ==
               static_cast<std::int64_t>(sizeof(link_message));
    }));
    const int fd = rt->open(path, open_read_write);
    EXPECT_GE(fd, 0) << error_text(fd);
    EXPECT_TRUE(says("did not answer for 1000 ms when a file was opened for writing"));
    rt->close(fd);
}

// A group that is inside may have looked at the view that the place had before, and may read on
// from the memory of one that has left.
TEST_F(hostile_share, link_and_end_of_a_link_wait_for_readers_that_began_before) {
    const auto rt = make_runtime(quick());
    engine::neighbour_visits& visits = *rt->ref(0).view.visits;
    const auto inside = [&] {
        const std::uint64_t round = std::atomic_ref(visits.round).load();
        return std::atomic_ref(visits.shards[3].inside[round & 1]);
    };
    pretender stays, other;  // for one that is there the thread looks around often
    stays.hello.message.id = 2;
    stays.connect(sockets());
    stays.greet();
    ASSERT_TRUE(soon([&] { return linked(*rt) == 1; }));
    other.connect(sockets());
    auto reader = inside();
    ++reader;
    other.greet();
    EXPECT_TRUE(soon([&] { return other.mappings() == 2; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(linked(*rt), 1u);
    --reader;
    ASSERT_TRUE(soon([&] { return linked(*rt) == 2; }));
    auto last_reader = inside();
    ++last_reader;
    other.socket.reset();
    EXPECT_TRUE(soon([&] { return linked(*rt) == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(other.mappings(), 2);
    --last_reader;
    EXPECT_TRUE(soon([&] { return other.mappings() == 1; }));
}

// An answer that says more than what was asked would count for a later open for writing, though
// the link was made in between and has entries of that one's file.
TEST_F(hostile_share, answer_of_one_that_is_not_linked_is_of_what_was_asked) {
    const auto rt = make_runtime(quick());
    pretender other;
    other.connect(sockets());
    link_hello room;  // the largest message
    received_fds fds;
    const auto hear = [&](std::size_t size) {
        return soon([&] {
            return receive_message(other.socket.get(), &room, sizeof room, fds) ==
                   static_cast<std::int64_t>(size);
        });
    };
    ASSERT_TRUE(hear(sizeof(link_hello)));
    for (const std::uint64_t asked : {7, 9}) {
        other.say(link_verb::changed, asked);
        ASSERT_TRUE(hear(sizeof(link_message)));
        link_message answer;
        std::memcpy(&answer, &room, sizeof answer);
        EXPECT_EQ(answer.verb, link_verb::seen);
        EXPECT_EQ(answer.version, asked);
    }
}

// Two that start without the turn may connect to each other, and hear each other's hellos in
// another order. Both have to keep the same connection, or there is none.
TEST_F(hostile_share, of_two_connections_both_sides_keep_that_of_the_lower_id) {
    constexpr std::uint64_t lowest = 1, highest = UINT64_MAX;
    for (const std::uint64_t id : {lowest, highest})
        for (const bool hears_its_own_first : {true, false}) {
            pretender other;
            other.hello.message.id = id;
            rendezvous meeting_of_other;
            ASSERT_TRUE(meeting_of_other.open("test").ok());
            ASSERT_EQ(meeting_of_other.listen(), 0);
            const std::string own = std::filesystem::directory_iterator(sockets())->path();
            const auto rt = make_runtime(quick());
            owned_fd made_by_it = meeting_of_other.accept();
            ASSERT_TRUE(made_by_it);
            other.connect(sockets(), own);
            const auto greet = [&](bool by_its_own) {
                if (by_its_own) other.greet_by(made_by_it);
                else other.greet();
            };
            const auto is_open = [&](const owned_fd& socket) {
                std::byte room[sizeof(link_hello)];
                received_fds fds;
                std::int64_t got = 0;
                do got = receive_message(socket.get(), room, sizeof room, fds);
                while (got > 0);
                return got == -EAGAIN;
            };
            greet(hears_its_own_first);
            ASSERT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
            greet(!hears_its_own_first);
            const owned_fd& kept = id == lowest ? other.socket : made_by_it;
            const owned_fd& left = id == lowest ? made_by_it : other.socket;
            EXPECT_TRUE(soon([&] { return !is_open(left) || !is_open(kept); }));
            EXPECT_TRUE(is_open(kept)) << id << ' ' << hears_its_own_first;
            EXPECT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
        }
}

// One whose folder was gone comes again: the link that is there stays, whatever the ids are.
TEST_F(hostile_share, one_that_comes_again_leaves_the_link_that_is_there) {
    rendezvous meeting_of_other;
    ASSERT_TRUE(meeting_of_other.open("test").ok());
    ASSERT_EQ(meeting_of_other.listen(), 0);
    const std::string own = std::filesystem::directory_iterator(sockets())->path();
    const auto rt = make_runtime(quick());
    pretender other;  // of the lowest id
    owned_fd made_by_it = meeting_of_other.accept();
    other.greet_by(made_by_it);
    ASSERT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
    other.hello.message.comes_again = 1;
    other.connect(sockets(), own);
    other.greet();
    EXPECT_TRUE(soon([&] {
        std::byte room[sizeof(link_hello)];
        return ::recv(other.socket.get(), room, sizeof room, 0) <= 0;
    }));
    EXPECT_EQ(linked(*rt), 1u);
}

TEST_F(hostile_share, two_that_start_without_the_turn_are_linked) {
    rendezvous third;
    ASSERT_TRUE(third.open("test").ok());
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(third.take_turn());
        options o = quick();
        o.host_wait_ms = 100;
        std::unique_ptr<runtime> first, second;
        std::thread maker([&] { first = make_runtime(o); });
        second = make_runtime(o);
        maker.join();
        EXPECT_TRUE(are_linked(*first, *second)) << log();
        third.end_turn();
    }
}

// Its directory has files of ours, with whatever else in it and in its arrays.
TEST_F(hostile_share, garbage_in_directory_and_words_stays_within_bounds) {
    constexpr std::uint64_t pages = 8;
    const auto bytes = pattern(2, pages * page);
    const std::string path = make_file("data", bytes);
    options o = quick();
    o.cache_bytes = 8 * page;
    const auto rt = make_runtime(o);
    file_facts facts;
    const int handle = linux_environment().find(AT_FDCWD, path);
    ASSERT_EQ(linux_environment().facts(handle, facts), 0);
    linux_environment().close(handle);
    std::uint64_t entries = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        std::mt19937_64 random(seed);
        pretender other;
        other.hello.message.id = seed + 100;
        const auto fill = [&](void* memory, std::uint64_t count) {
            for (std::uint64_t i = 0; i < count; ++i)
                atomic_store<order::relaxed>(static_cast<std::uint64_t*>(memory) + i, random());
        };
        const auto damage = [&] {
            fill(other.view.words, pretender::words);
            for (std::uint32_t slot = 0; slot < pretender::slots; ++slot) {
                const std::uint32_t generation = 1 + random() % 3;
                // Never the life that an entry has, or its lies would be taken for bytes.
                atomic_store<order::relaxed>(
                    &other.view.file_words[slot],
                    engine::make_file_word(engine::file_live, generation + 8, 0));
                file_life life{slot, generation, random() % (2 * pretender::words),
                               random() % 2 == 0, facts.identity};
                other.directory.set(life, static_cast<offered>(random() % 3));
            }
            fill(other.directory.memory().data() + 64,
                 random() % ((other.directory.memory().bytes() - 64) / 8));
        };
        damage();
        other.connect(sockets());
        other.greet();
        EXPECT_TRUE(soon([&] { return linked(*rt) == 1; })) << log();
        for (int round = 0; round < 30; ++round) {
            damage();
            EXPECT_EQ(read_all(*rt, path, bytes.size()), bytes);
            entries += rt->state().share->shared_lives();
        }
        other.socket.reset();
        EXPECT_TRUE(soon([&] { return linked(*rt) == 0; }));
    }
    EXPECT_GT(entries, 0u);
}

// Any bytes in place of messages, after any number of good ones.
TEST_F(hostile_share, garbage_on_the_socket_ends_that_link_alone) {
    const auto bytes = pattern(3, 4 * page);
    const std::string path = make_file("data", bytes);
    const auto rt = make_runtime(quick());
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        std::mt19937_64 random(seed);
        pretender other;
        other.hello.message.id = seed + 100;
        other.connect(sockets());
        if (seed % 3 != 0) {
            auto* const damaged = reinterpret_cast<std::uint8_t*>(&other.hello.message);
            for (std::uint64_t i = random() % 4; i > 0; --i)
                damaged[random() % sizeof other.hello.message] = random();
            std::vector<int> fds = other.fds();
            if (random() % 8 == 0) std::swap(fds[random() % fds.size()], fds[0]);
            if (random() % 8 == 0) fds.resize(random() % fds.size());
            other.send(damaged,
                       random() % 8 == 0 ? random() % sizeof other.hello.message
                                         : sizeof other.hello.message,
                       fds);
        }
        for (std::uint64_t i = random() % 6; i > 0; --i) {
            std::uint64_t words[64];
            for (std::uint64_t& word : words) word = random() % 2 == 0 ? random() : random() % 6;
            other.send(words, random() % 2 == 0 ? sizeof(link_message) : random() % sizeof words,
                       random() % 4 == 0 ? other.fds() : std::vector<int>{});
        }
        if (seed % 32 == 0) {
            EXPECT_EQ(read_all(*rt, path, bytes.size()), bytes);
        }
    }
    EXPECT_TRUE(soon([&] { return linked(*rt) == 0; }));
    const auto second = make_runtime(quick());
    EXPECT_TRUE(are_linked(*rt, *second)) << log();
    EXPECT_EQ(read_all(*second, path, bytes.size()), bytes);
    EXPECT_EQ(second->stats().file_reads, 0u);
}

// A ninth neighbour is said, and has a place once another has gone.
TEST_F(hostile_share, more_than_eight_are_said) {
    const auto rt = make_runtime(shared());
    std::vector<std::unique_ptr<pretender>> all;
    for (std::uint64_t i = 0; i < 8; ++i) {
        all.push_back(std::make_unique<pretender>());
        all.back()->hello.message.id = i + 100;
        all.back()->connect(sockets());
        all.back()->greet();
    }
    ASSERT_TRUE(soon([&] { return linked(*rt) == 8; })) << log();
    const auto come = [&](std::uint64_t id) {
        all.push_back(std::make_unique<pretender>());
        all.back()->hello.message.id = id;
        all.back()->connect(sockets());
        all.back()->greet();
    };
    come(200);
    EXPECT_TRUE(says("there are 8 neighbours already, and more are not asked"));
    all.erase(all.begin());
    ASSERT_TRUE(soon([&] { return linked(*rt) == 7; }));
    // Its place is free a moment later.
    EXPECT_TRUE(soon([&] {
        if (linked(*rt) == 8) return true;
        come(300 + all.size());
        return soon([&] { return linked(*rt) == 8 || all.size() > 100; });
    }));
}

// As of a process that takes the place of a killed one, while a reader of that one's pages stands
// still.
TEST_F(hostile_share, newcomer_waits_for_the_place_of_one_that_left) {
    options o = shared();
    o.host_wait_ms = 60000;
    const auto rt = make_runtime(o);
    std::vector<std::unique_ptr<pretender>> all;
    const auto come = [&](std::uint64_t id) {
        all.push_back(std::make_unique<pretender>());
        all.back()->hello.message.id = id;
        all.back()->connect(sockets());
        all.back()->greet();
    };
    for (std::uint64_t i = 0; i < 8; ++i) come(i + 100);
    ASSERT_TRUE(soon([&] { return linked(*rt) == 8; })) << log();
    const engine::cache_view view = rt->ref().view;
    engine::neighbour_page inside;
    inside.visit = engine::enter_neighbours(view, 5);
    all.erase(all.begin());
    ASSERT_TRUE(soon([&] { return linked(*rt) == 7; }));
    come(200);
    // As long as some beats, in which it could have been refused.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(linked(*rt), 7u);
    engine::leave_neighbours(view, inside);
    EXPECT_TRUE(soon([&] { return linked(*rt) == 8; })) << log();
    EXPECT_EQ(log().find("there are 8 neighbours already"), std::string::npos);
}

}  // namespace penstock::test
