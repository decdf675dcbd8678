// The hub that runtimes share: what is entered there, and which part is asked or told.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "hub/hub.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using host::file_key;
using host::hub;

constexpr file_key some_file{5, 17}, other_file{5, 18};

class noting_observer final : public host::write_observer {
public:
    noting_observer(std::string& notes, char name) : notes_(notes), name_(name) {}
    std::int64_t change(host::environment&, int, const host::file_change& change,
                        const host::change_step& doing) override {
        notes_ += name_;
        const std::int64_t result = doing();
        if (result == static_cast<std::int64_t>(change.bytes)) notes_ += name_;
        return result;
    }

private:
    std::string& notes_;
    const char name_;
};

class noting_views final : public host::program_views {
public:
    explicit noting_views(int code) : code_(code) {}
    int collect(const file_key& file) override {
        collected_ += file == some_file;
        return code_;
    }
    int take_away(const file_key&, std::uint64_t, std::uint64_t) override { return 0; }
    [[nodiscard]] int collected() const { return collected_; }

private:
    const int code_;
    int collected_ = 0;
};

class played_source final : public host::page_source {
public:
    explicit played_source(std::uint64_t has) : has_(has) {}
    std::uint64_t read(int, std::uint64_t, std::uint64_t, const host::byte_sink&) override {
        ++asked;
        return has_;
    }
    bool lend(const host::file_identity&, host::lent_file&) override {
        ++asked;
        return has_ != 0;
    }
    bool is_lent_as_is(const host::lent_file&) override { return has_ != 0; }
    int asked = 0;

private:
    const std::uint64_t has_;
};

struct counting_part final : host::hub_part {
    explicit counting_part(hub& shared) : of(&shared) { ++made; }
    ~counting_part() override { --made; }
    hub* of;
    static inline int made = 0;
};
struct second_part final : host::hub_part {
    explicit second_part(hub&) {}
};

}  // namespace

TEST(hub, knows_a_file_as_long_as_one_registry_does) {
    hub shared, other;
    EXPECT_FALSE(shared.known.may_have(some_file));
    shared.known.add(some_file);
    shared.known.add(some_file);
    shared.known.remove(some_file);
    EXPECT_TRUE(shared.known.may_have(some_file));
    EXPECT_FALSE(other.known.may_have(some_file));
    shared.known.remove(some_file);
    EXPECT_FALSE(shared.known.may_have(some_file));
}

TEST(hub, tells_every_observer_around_a_write) {
    hub shared;
    std::string notes;
    noting_observer first(notes, 'a'), second(notes, 'b');
    const auto write = [&] {
        return shared.change_told(host::linux_environment(), -1, {0, 8}, [&] {
            notes += '.';
            return std::int64_t{8};
        });
    };
    EXPECT_EQ(write(), 8);
    shared.add_observer(first);
    shared.add_observer(second);
    EXPECT_EQ(write(), 8);
    shared.remove_observer(first);
    EXPECT_EQ(write(), 8);
    shared.remove_observer(second);
    EXPECT_EQ(write(), 8);
    EXPECT_EQ(notes, ".ab.bab.b.") << "no observer, two, one, none";
}

TEST(hub, brings_stores_home_from_every_mount_until_one_fails) {
    hub shared;
    EXPECT_EQ(shared.bring_stores_home(some_file), 0);
    const auto good = std::make_shared<noting_views>(0), bad = std::make_shared<noting_views>(-EIO);
    shared.add_views(good);
    EXPECT_EQ(shared.bring_stores_home(some_file), 1);
    shared.add_views(bad);
    EXPECT_EQ(shared.bring_stores_home(other_file), -EIO);
    EXPECT_EQ(good->collected(), 1);
    shared.remove_views(*bad);
    EXPECT_EQ(shared.views().size(), 1u);
    shared.remove_views(*good);
    EXPECT_TRUE(shared.views().empty());
    EXPECT_EQ(shared.bring_stores_home(some_file), 0);
}

// However many files runtimes know, others are not taken for them, so a mount passes those through.
TEST(hub, takes_no_file_for_one_of_many_that_are_known) {
    hub shared;
    const auto key = [](std::uint64_t inode) { return file_key{5, inode}; };
    for (std::uint64_t inode = 0; inode < 20'000; ++inode) shared.known.add(key(inode));
    for (std::uint64_t inode = 0; inode < 20'000; ++inode)
        ASSERT_TRUE(shared.known.may_have(key(inode))) << inode;
    std::uint64_t mistaken = 0;
    for (std::uint64_t inode = 20'000; inode < 22'000; ++inode)
        mistaken += shared.known.may_have(key(inode)) ? 1 : 0;
    EXPECT_EQ(mistaken, 0u);
    // Many of these have a class with others that are known still.
    for (std::uint64_t inode = 0; inode < 20'000; inode += 2) shared.known.remove(key(inode));
    for (std::uint64_t inode = 0; inode < 20'000; ++inode)
        ASSERT_EQ(shared.known.may_have(key(inode)), inode % 2 != 0) << inode;
    for (std::uint64_t inode = 1; inode < 20'000; inode += 2) shared.known.remove(key(inode));
    for (std::uint64_t inode = 0; inode < 20'000; ++inode)
        ASSERT_FALSE(shared.known.may_have(key(inode))) << inode;
}

// What programs write makes few others look changed.
TEST(hub, takes_few_files_for_those_that_programs_wrote) {
    hub shared;
    for (std::uint64_t inode = 0; inode < 3000; ++inode) {
        shared.passed.begin({5, inode});
        shared.passed.end({5, inode});
    }
    std::uint64_t mistaken = 0;
    for (std::uint64_t inode = 3000; inode < 5000; ++inode)
        mistaken += shared.passed.look({5, inode}).opens;
    EXPECT_LT(mistaken, 200u) << "of 2000";
}

TEST(hub, knows_the_writers_of_passed_files_and_how_many_ever_came) {
    hub shared;
    const auto opens = [&] { return shared.passed.look(some_file).opens; };
    EXPECT_EQ(shared.passed.look(some_file).writers, 0u);
    const std::uint64_t before = opens();
    shared.passed.begin(some_file);
    shared.passed.begin(some_file);
    EXPECT_EQ(shared.passed.look(some_file).writers, 2u);
    EXPECT_EQ(shared.passed.look(other_file).writers, 0u);
    shared.passed.end(some_file);
    shared.passed.end(some_file);
    EXPECT_EQ(shared.passed.look(some_file).writers, 0u);
    EXPECT_EQ(opens(), before + 2) << "what came and went may have written";
}

TEST(hub, asks_sources_in_turn_and_none_that_left) {
    hub shared;
    played_source empty(0), full(7), last(9);
    for (played_source* source : {&empty, &full, &last}) shared.enter(*source);
    EXPECT_EQ(shared.read_cached(0, 0, 9, {}), 7u);
    EXPECT_EQ(last.asked, 0);
    shared.leave(full);
    EXPECT_EQ(shared.read_cached(0, 0, 9, {}), 9u);
    EXPECT_EQ(empty.asked, 2);
    EXPECT_EQ(full.asked, 1);
}

// Also while holders that share it come one after the other.
TEST(request_turns, one_that_waits_alone_comes_before_those_that_share) {
    host::request_turns turns;
    ASSERT_TRUE(turns.try_lock_shared());
    ASSERT_TRUE(turns.try_lock_shared());
    turns.unlock_shared();
    std::atomic<bool> has_it{false};
    std::thread alone([&] {
        turns.lock();
        has_it = true;
        turns.unlock();
    });
    EXPECT_TRUE(soon([&] {
        if (!turns.try_lock_shared()) return true;
        turns.unlock_shared();
        return false;
    }));
    EXPECT_FALSE(has_it);
    turns.unlock_shared();
    alone.join();
    EXPECT_TRUE(turns.try_lock_shared());
    turns.unlock_shared();
}

TEST(hub, makes_one_part_of_a_type_and_destroys_it) {
    {
        hub shared;
        counting_part& part = shared.part<counting_part>();
        shared.part<second_part>();
        EXPECT_EQ(&shared.part<counting_part>(), &part);
        EXPECT_EQ(part.of, &shared);
        EXPECT_EQ(counting_part::made, 1);
    }
    EXPECT_EQ(counting_part::made, 0);
}

TEST(hub, of_a_child_is_new) {
    hub::of_process().known.add(some_file);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(hub::of_process().known.may_have(some_file) ? 1 : 0);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_EQ(WIFEXITED(state) ? WEXITSTATUS(state) : -1, 0);
    EXPECT_TRUE(hub::of_process().known.may_have(some_file));
    hub::of_process().known.remove(some_file);
}

TEST(hub, is_that_of_the_process_unless_a_runtime_is_handed_another) {
    const temporary_folder folder;
    write_file(folder / "f", pattern(1, 5000));
    struct stat facts {};
    ASSERT_EQ(::stat((folder / "f").c_str(), &facts), 0);
    const file_key file{facts.st_dev, facts.st_ino};
    hub own;
    host::runtime_hooks hooks;
    hooks.shared = &own;
    const auto apart = make_runtime(small_options(folder), hooks);
    ASSERT_NE(apart, nullptr);
    const int fd = apart->open(folder / "f");
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(own.known.may_have(file));
    EXPECT_FALSE(hub::of_process().known.may_have(file));
    const auto usual = make_runtime(small_options(folder));
    ASSERT_NE(usual, nullptr);
    const int second = usual->open(folder / "f");
    ASSERT_GE(second, 0);
    EXPECT_TRUE(hub::of_process().known.may_have(file));
    EXPECT_EQ(usual->close(second), 0);
    EXPECT_EQ(apart->close(fd), 0);
}

}  // namespace penstock::test
